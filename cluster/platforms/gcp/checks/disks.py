"""Disks on Google Cloud: types that their machines take, in sizes that exist."""

from collections.abc import Iterator

from cluster.catalog import DISK_TYPES, MACHINE_TYPES, DiskType
from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Disk
from cluster.findings import Finding, Location
from cluster.platforms.gcp import disks
from cluster.platforms.gcp.checks.disk_types import find_size_errors, find_type_errors
from cluster.platforms.gcp.image.source import bakes

SYSTEM_GB = 20
"""What an operating system with Slurm, drivers and a user's packages needs at least."""


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    for at, disk, role, machine_type in _boots(config):
        kind = MACHINE_TYPES[machine_type]
        name, size = disks.boot(disk, role, kind)
        if kind.platform == "gcp" and kind.family.fabric.set_up:
            yield from find_type_errors(at, DISK_TYPES[name], kind, boot=True)
            yield from _boot_size(config, at, DISK_TYPES[name], size)
    name, size = disks.state_disk(config)
    kind = MACHINE_TYPES[config.controller.machine_type]
    if kind.platform == "gcp":
        yield from find_type_errors(("controller", "state_disk"), DISK_TYPES[name], kind)
        yield from find_size_errors(("controller", "state_disk"), DISK_TYPES[name], size)


def _boots(config: ClusterConfig) -> Iterator[tuple[Location, Disk, str, str]]:
    """Where each boot disk stands, what is said of it, and the role and type of its machine."""
    controller = config.controller
    yield ("controller", "disk"), controller.disk, "controller", controller.machine_type
    if not config.login.on and config.login.count:
        yield ("login", "disk"), config.login.disk, "login", config.login.machine_type or controller.machine_type
    for name, section in config.nodesets.items():
        if not section.on:
            yield ("nodesets", name, "disk"), section.disk, "node", section.machine_type or controller.machine_type


def _boot_size(config: ClusterConfig, at: Location, row: DiskType, size: int) -> Iterator[Finding]:
    image = config.image.builder.size_gb if bakes(config) else SYSTEM_GB
    if size < image:
        why = "image.builder.size_gb, which the image has" if bakes(config) else "for the system and its software"
        yield Finding(
            id="disk-boot-size",
            at=(*at, "size_gb"),
            given=str(size),
            allowed=f"at least {image}: {why}",
            todo=f"write {image} or more, or remove it for {disks.BOOT_GB}",
        )
    else:
        yield from find_size_errors(at, row, size)
