# shellcheck shell=bash
# Programs that the nodes have themselves: srun needs nothing before a command.
contained=()
