"""Which machines can start under Secure Boot."""

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.registry import lustre_client
from cluster.platforms.gcp.image.source import installs
from cluster.roster import MachineSpec


def secure_boot(config: ClusterConfig, spec: MachineSpec) -> bool:
    """Whether the kernel may refuse modules that nobody signed.

    Drivers and Lustre clients are built on the machine or in a bake (DKMS) and have no signature that the firmware
    knows, so only machines with the distribution's own modules and nothing else can have it: a plain base without GPUs
    and without Lustre.
    """
    return installs(config) and spec.gpu is None and lustre_client(config) == "none"
