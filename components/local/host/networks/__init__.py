"""A stack's bridge on the host, its packet filter and its names."""
