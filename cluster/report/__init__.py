"""Logs of benchmarks -> tables, findings and plots. Pure: nothing here reads a cluster or prints."""
