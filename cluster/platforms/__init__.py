"""Platforms: where clusters can be made, and all that differs between them."""
