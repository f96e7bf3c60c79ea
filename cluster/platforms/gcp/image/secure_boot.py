"""Which machines can start under Secure Boot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.platforms.gcp.image.source import installs

if TYPE_CHECKING:
    from cluster.config.cluster import ClusterConfig
    from cluster.roster import MachineSpec


def secure_boot(config: ClusterConfig, spec: MachineSpec) -> bool:
    """Whether the kernel may refuse modules that nobody signed.

    Drivers and Lustre clients are built on the machine or in a bake (DKMS) and have no signature that the firmware
    knows, so only machines with the distribution's own modules and nothing else can have it: a plain base without GPUs
    and without Lustre.
    """
    return installs(config) and spec.gpu is None and config.storage.lustre is None
