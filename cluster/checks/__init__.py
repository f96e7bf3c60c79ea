"""Findings about a whole configuration: rules between its parts, and warnings."""
