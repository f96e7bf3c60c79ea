"""Findings about a running cluster, from what was observed on its machines: pure functions."""
