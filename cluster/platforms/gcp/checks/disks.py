"""Disks on Google Cloud: types that their machines take, in sizes that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.catalog import DISK_TYPES, MACHINE_TYPES, DiskType, MachineType
from cluster.findings import Broken, Location, listing
from cluster.platforms.gcp import disks
from cluster.platforms.gcp.image.source import bakes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig
    from cluster.config.lustre import Targets
    from cluster.config.machines import Disk

SYSTEM_GB = 20
"""What an operating system with Slurm, drivers and a user's packages needs at least."""


def broken(config: ClusterConfig) -> Iterator[Broken]:
    """Rules of disks that do not hold."""
    if config.platform != "gcp":
        return
    for at, disk, role, machine_type in _boots(config):
        name, size = disks.boot(disk, role)
        kind = MACHINE_TYPES[machine_type]
        if kind.platform == "gcp" and kind.family.usable:
            yield from _type(at, DISK_TYPES[name], kind, boot=True)
            yield from _boot_size(config, at, DISK_TYPES[name], size)
    name, size = disks.state_disk(config)
    kind = MACHINE_TYPES[config.controller.machine_type]
    if kind.platform == "gcp":
        yield from _type(("controller", "state_disk"), DISK_TYPES[name], kind)
        yield from _size(("controller", "state_disk"), DISK_TYPES[name], size)
    yield from _targets(config)


def _boots(config: ClusterConfig) -> Iterator[tuple[Location, Disk, str, str]]:
    """Where each boot disk stands, what is said of it, and the role and type of its machine."""
    controller = config.controller
    yield ("controller", "disk"), controller.disk, "controller", controller.machine_type
    if not config.login.on and config.login.count:
        yield ("login", "disk"), config.login.disk, "login", config.login.machine_type or controller.machine_type
    for name, section in config.nodesets.items():
        if not section.on:
            yield ("nodesets", name, "disk"), section.disk, "node", section.machine_type or controller.machine_type


def _type(at: Location, row: DiskType, kind: MachineType, *, boot: bool = False) -> Iterator[Broken]:
    takes = [one.name for one in DISK_TYPES.values() if kind.takes(one.name) and (one.bootable or not boot)]
    if row.name not in takes:
        least = kind.family.disks.get(row.name)
        more = f" ({row.name} needs {least} vCPUs)" if least and least > kind.cpus else ""
        yield Broken(
            at=(*at, "type"),
            given=f"{row.name}, of {kind.name}",
            allowed=f"on {kind.name}{' to boot from' if boot else ''}: {listing(takes)}{more}",
            todo="take one of these, or another machine type",
        )


def _boot_size(config: ClusterConfig, at: Location, row: DiskType, size: int) -> Iterator[Broken]:
    image = config.image.builder.size_gb if bakes(config) else SYSTEM_GB
    if size < image:
        why = "image.builder.size_gb, which the image has" if bakes(config) else "for the system and its software"
        yield Broken(
            at=(*at, "size_gb"),
            given=str(size),
            allowed=f"at least {image}: {why}",
            todo=f"write {image} or more, or remove it for {disks.BOOT_GB}",
        )
    else:
        yield from _size(at, row, size)


def _size(at: Location, row: DiskType, size: int) -> Iterator[Broken]:
    if not row.smallest_gb <= size <= row.largest_gb:
        yield Broken(
            at=(*at, "size_gb"),
            given=f"{size}, of {row.name}",
            allowed=f"{row.smallest_gb} to {row.largest_gb} GB of {row.name}",
            todo="correct the size, or take another type",
        )


def _targets(config: ClusterConfig) -> Iterator[Broken]:
    lustre = config.storage.lustre
    if lustre is None or lustre.kind != "exascaler":
        return
    servers: list[tuple[str, str, dict[str, Targets]]] = [
        ("mgs", lustre.mgs.machine_type, {"mgt": lustre.mgs.mgt, "mnt": lustre.mgs.mnt}),
        ("mds", lustre.mds.machine_type, {"mdt": lustre.mds.mdt}),
        ("oss", lustre.oss.machine_type, {"ost": lustre.oss.ost}),
    ]
    for server, machine_type, parts in servers:
        kind = MACHINE_TYPES[machine_type]
        if kind.platform != "gcp":
            continue
        for part, targets in parts.items():
            at: Location = ("storage", "lustre", server, part)
            row = DISK_TYPES[targets.type]
            yield from _type(at, row, kind)
            yield from _size(at, row, targets.size_gb)
            yield from _provisioned(at, row, targets)


def _provisioned(at: Location, row: DiskType, targets: Targets) -> Iterator[Broken]:
    for key, bounds in (("iops", row.iops), ("mbps", row.mbps)):
        value = getattr(targets, key)
        if value is None or (bounds and bounds[0] <= value <= bounds[1]):
            continue
        takers = [one.name for one in DISK_TYPES.values() if getattr(one, key)]
        yield Broken(
            at=(*at, key),
            given=f"{value}, of {row.name}",
            allowed=f"{bounds[0]} to {bounds[1]} of {row.name}" if bounds else f"{key} of {listing(takers)}",
            todo="correct it, or remove it" if bounds else f"remove it: {row.name} has what its size gives",
        )
