"""How commands reach the machines of a cluster."""
