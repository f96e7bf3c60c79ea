"""Plans of clusters, without a deployment: configuration, machine types, rosters, address plans and Slurm's files.

Plain data and pure functions. It imports neither Pulumi nor anything that does, so that tests and the command line can
use every part of it without a deployment.
"""
