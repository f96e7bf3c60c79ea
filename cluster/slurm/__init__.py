"""Slurm's files, rendered from the configuration by pure functions: the same configuration gives the same text."""
