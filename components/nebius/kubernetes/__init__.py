"""The Kubernetes side of a cluster: kubectl, charts, namespaces, secrets."""
