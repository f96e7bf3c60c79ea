"""Slurm's files, from configuration to text: pure functions, the same text for the same configuration."""
