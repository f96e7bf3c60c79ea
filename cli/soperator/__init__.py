"""Clusters that Soperator runs on Kubernetes: what `status`, `logs` and `drift` read of them, and how it is shown."""
