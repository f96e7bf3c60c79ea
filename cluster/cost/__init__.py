"""The price of a cluster: its parts, their rates, and what they cost an hour and a month."""
