"""Many resources that take no time."""
