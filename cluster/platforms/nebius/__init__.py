"""The platform `nebius`: managed Kubernetes with Soperator."""
