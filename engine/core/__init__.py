"""A run of the engine: registrations, steps, diffs, deletions."""
