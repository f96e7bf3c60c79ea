"""Effects that depend on what a field was and what it becomes. Pure functions from an edit to its consequence."""
