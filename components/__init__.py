"""Pulumi components, one class and its args per file."""
