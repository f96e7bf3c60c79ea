"""Observations of a running cluster: health, drift, logs, nodes and usage. Pure functions."""
