"""Findings about a configuration that only the rehearsal can have."""
