"""One run of the engine: registrations, diffs, steps and deletions."""
