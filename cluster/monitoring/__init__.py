"""Metrics and alerts: the files of Prometheus and Alertmanager, and the table of alerts. Pure functions."""
