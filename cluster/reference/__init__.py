"""The JSON Schema of a stack file, and the reference page of its keys."""
