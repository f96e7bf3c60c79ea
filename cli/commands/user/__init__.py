"""`./hpc user`: the people who use a cluster."""
