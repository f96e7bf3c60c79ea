"""Where the software of machines comes from: an image that the stack bakes, one that is there, or the first boot."""

from cluster.config.cluster import ClusterConfig

BAKED = ("ubuntu-2204",)
"""Bases that are baked where the file says nothing: building drivers, Slurm and a Lustre client takes an hour."""


def bakes(config: ClusterConfig) -> bool:
    """Whether the stack makes an image of its own."""
    if config.image.name:
        return False
    return config.image.base in BAKED if config.image.bake is None else config.image.bake


def installs(config: ClusterConfig) -> bool:
    """Whether each machine installs what it needs at its first boot."""
    return not config.image.name and not bakes(config)
