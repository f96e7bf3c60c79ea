"""Parses the settings of a stack file to a ClusterConfig, or to every error at once."""
