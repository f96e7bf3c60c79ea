"""The `./hpc` command: previews, changes, inspects and enters clusters from a terminal, a pipe or a program.

It owns words, colours, exit codes and the choice of engine. It decides nothing about clusters: what a stack holds comes
from `cluster`, how it is built from the program, how it is changed from `engine` or the Pulumi CLI.
"""
