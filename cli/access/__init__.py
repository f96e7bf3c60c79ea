"""Connections from commands to the machines of a cluster."""
