"""One file per noun; a function here is a command, and its docstring is the command's help.

Modules here are imported for every command line, so they import what is heavy inside the functions.
"""
