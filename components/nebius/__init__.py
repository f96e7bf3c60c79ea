"""A cluster on Nebius: managed Kubernetes with Soperator."""
