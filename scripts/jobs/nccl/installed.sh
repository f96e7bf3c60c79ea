# shellcheck shell=bash
# shellcheck disable=SC2034 # the whole script's
# Programs that the nodes have themselves: srun needs nothing before a command.
contained=()
