"""What makes a stack's machines, whichever platform that is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.catalog import SYSTEMS
from cluster.config import ClusterConfig
from cluster.roster import MachineSpec, controller_name
from components.machine import Machine
from components.slurm.keys import ClusterKeys

Mounts = Callable[[MachineSpec], Sequence[Mapping[str, pulumi.Input[str]]]]


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Machines that answer SSH, and what Slurm's set-up must know of the place that they are in."""

    machines: Sequence[Machine]
    """In the roster's order: controller, login machines, nodes."""
    mounts: Mounts
    """Shared file systems of a machine: source, target, fs_type, options."""
    addresses: Mapping[str, str]
    """Address of every machine by name, where the platform knows it beforehand; else empty, and names are resolved."""
    state: Mapping[str, Any] | None = None
    """What the controller keeps on a file system that outlives its machine."""
    exports: Mapping[str, Any] | None = None
    """What the controller shares by NFS."""
    ready: Sequence[pulumi.Resource] = ()
    """What machines are only set up after."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """What the stack exports of the platform, beside what all stacks export."""


def make(config: ClusterConfig, keys: ClusterKeys) -> Platform:
    """Make the stack's machines where its file says. A platform's code is imported for its own stacks alone."""
    return {"local": _local, "gcp": _gcp}[config.platform](config, keys)


def _local(config: ClusterConfig, keys: ClusterKeys) -> Platform:
    from components.local.platform import LocalPlatform, LocalPlatformArgs, mounts, state  # noqa: PLC0415
    from components.slurm.boot import boot_files  # noqa: PLC0415

    made = LocalPlatform(
        config.name,
        LocalPlatformArgs(
            config=config,
            admin_key=keys.admin.public_key_openssh,
            boot=boot_files(keys, mounts=mounts(config), controller=controller_name(config)),
            os_release=SYSTEMS[config.image.presents_as] if config.image.presents_as else {},
        ),
    )
    return Platform(machines=made.machines, mounts=lambda _: made.mounts, addresses=made.addresses, state=state(config))


def _gcp(config: ClusterConfig, keys: ClusterKeys) -> Platform:
    from components.gcp.platform import GcpPlatform, GcpPlatformArgs, exported, state  # noqa: PLC0415

    made = GcpPlatform(config.name, GcpPlatformArgs(config=config, keys=keys))
    return Platform(
        machines=made.machines,
        mounts=made.mounts,
        addresses={},
        state=state(config),
        exports=exported(config),
        ready=made.ready,
        outputs=made.outputs,
    )
