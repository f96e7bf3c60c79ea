"""Configuration: the models of a stack file. `cluster.load` reads one."""

from cluster.config.cluster import ClusterConfig

__all__ = ["ClusterConfig"]
