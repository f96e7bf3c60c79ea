"""The `./hpc` command: previews, changes, inspects and logs in to clusters from a terminal, a pipe or a program.

It owns messages, colours, exit codes and the choice of engine. It decides nothing about clusters: what a stack holds
comes from `cluster`, how it is built from the program, how it is changed from `engine` or the Pulumi CLI.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The project's folder."""
