"""A controller in two zones on Google Cloud: its machine, and the machine that watches it."""
