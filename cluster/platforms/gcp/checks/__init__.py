"""Findings about a configuration that only Google Cloud can have."""
