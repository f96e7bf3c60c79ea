"""Edits of the text of stack files, which keep comments, order and style."""
