"""One run: registrations, steps, diffs, deletions."""
