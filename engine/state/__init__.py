"""The state of a stack: its file, its encryption, its lock, and edits of single resources."""
