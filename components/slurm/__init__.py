"""Turns machines into a Slurm cluster, over SSH, the same way on every platform."""
