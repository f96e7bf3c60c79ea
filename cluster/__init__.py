"""Plans of clusters, without a deployment: configuration, machine types, rosters, address plans and Slurm's files.

Plain data and pure functions. Imports neither Pulumi nor anything that does, so that every part of it can be tested,
and used by the command line, without a deployment.
"""
