"""A file for each noun; a function here is a command, and its docstring is the command's help.

A module is imported when one of its commands runs. What is slow to import (the SDK, cluster.config, rich) is imported
where it is used, if the module has other commands too.
"""
