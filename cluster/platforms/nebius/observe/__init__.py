"""What is seen of a cluster of pods over Kubernetes' API, and what of it is wrong: pure functions."""
