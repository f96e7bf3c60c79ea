"""What commands print: runs, changes, the status of a cluster."""
