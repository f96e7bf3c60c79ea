"""Helm releases of a cluster of pods, in the order in which they are installed."""
