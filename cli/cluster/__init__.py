"""A cluster that is up: its outputs, its scheduler, and maintenance of its nodes."""
