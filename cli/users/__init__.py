"""Users of a stack: edits of its file, and what is in effect on its cluster."""
