"""How a cluster is, on one screen."""
