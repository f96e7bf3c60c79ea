"""Output of commands: runs, changes, the status of a cluster."""
