"""Logs of benchmarks -> tables, verdicts and plots. Pure: nothing here reads a cluster or prints."""
