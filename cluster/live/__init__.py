"""What a running cluster says of itself: the text of Slurm's own commands and of logs, as data. Pure functions."""
