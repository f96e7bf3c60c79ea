"""Runs of a stack: preview, up, destroy and refresh, by either engine."""
