"""One machine on the host: its root, its control group, its process."""
