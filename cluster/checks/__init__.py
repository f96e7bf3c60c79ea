"""Findings about a whole configuration: rules that tie one part of it to another, and warnings."""
