"""Where the software of machines comes from (a bake, an image that is there, the first boot), and Secure Boot."""

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.registry import lustre_client
from cluster.roster import MachineSpec

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


def secure_boot(config: ClusterConfig, spec: MachineSpec) -> bool:
    """Whether the kernel may refuse unsigned modules.

    Drivers and Lustre clients are built on the machine or in a bake (DKMS) and have no signature that the firmware
    has, so only machines with the distribution's own modules and nothing else can have it: a plain base without GPUs
    and without Lustre.
    """
    return installs(config) and spec.gpu is None and lustre_client(config) == "none"
