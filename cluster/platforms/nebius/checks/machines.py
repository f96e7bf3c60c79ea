"""Nodes: platforms of the region, presets and disks that suffice, one architecture, and how capacity is asked for."""

from collections.abc import Iterator

from cluster.catalog import MACHINE_TYPES
from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Disk
from cluster.findings import Finding, Location, listing, suggest
from cluster.platforms.nebius.machine_types import PLATFORMS, preset_of
from cluster.platforms.nebius.section import GPU_DISK_GIB, LOGIN_DISK_GIB, SMALLEST_DISK_GIB, Nebius
from cluster.roster import nodeset_type

_LEAST_VCPUS = {"system": 8, "controller": 4, "login": 8, "accounting": 8, "node": 8}
"""vCPUs that a node needs for what runs there, by role (nebius-solutions-library, available_resources/preset.tf;
accounting: MariaDB alone takes 2 vCPUs and 12 GiB)."""
_WAYS = ("on_demand", "spot", "reservation")
LARGEST_DISK_GIB = 8192
"""GiB of one network-ssd disk (docs.nebius.com/compute/storage/types)."""


def find_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    for at, machine_type, role in machine_types(config, settings):
        yield from _type(at, machine_type, role, settings)
    yield from _architectures(config)
    yield from _disk(("controller", "disk"), config.controller.disk, SMALLEST_DISK_GIB)
    yield from _disk(("login", "disk"), config.login.disk, LOGIN_DISK_GIB)
    for name, section in config.nodesets.items():
        has_gpus = nodeset_type(config, section).gpu is not None
        yield from _disk(("nodesets", name, "disk"), section.disk, GPU_DISK_GIB if has_gpus else SMALLEST_DISK_GIB)
    yield from _capacity(config)
    if not config.login.count:
        yield Finding(
            id="nebius-login-count",
            at=("login", "count"),
            given="0",
            allowed="1 or more: users and this program log in to the cluster by login pods",
            todo="write 2",
        )
    for name in settings.workers:
        if name not in config.nodesets:
            yield Finding(
                id="nebius-workers-unknown",
                at=("nebius", "workers", name),
                given=name,
                allowed=f"a nodeset that exists: {listing(config.nodesets)}",
                todo=suggest(name, config.nodesets, f"define {name} under `nodesets`, or remove it here"),
                missing=name,
            )


def machine_types(config: ClusterConfig, settings: Nebius) -> Iterator[tuple[Location, str, str]]:
    """Place, machine type and role of all node groups."""
    yield ("nebius", "system", "machine_type"), settings.system.machine_type, "system"
    yield ("nebius", "accounting", "machine_type"), settings.accounting.machine_type, "accounting"
    yield ("controller", "machine_type"), config.controller.machine_type, "controller"
    yield ("login", "machine_type"), config.login.machine_type or config.controller.machine_type, "login"
    for name, section in config.nodesets.items():
        yield ("nodesets", name, "machine_type"), section.machine_type or config.controller.machine_type, "node"


def _type(at: Location, machine_type: str, role: str, settings: Nebius) -> Iterator[Finding]:
    found = MACHINE_TYPES[machine_type]
    if found.platform != "nebius":
        if at[0] == "nebius":  # the others are found by cluster/checks/machines.py
            yield Finding(
                id="nebius-group-type",
                at=at,
                given=machine_type,
                allowed="a machine type of nebius, e.g. cpu-d3/8vcpu-32gb",
                todo="write PLATFORM/PRESET",
            )
        return
    platform, preset = PLATFORMS[found.family.name], preset_of(machine_type)
    if settings.region not in platform.regions:
        there = [one.name for one in PLATFORMS.values() if settings.region in one.regions]
        yield Finding(
            id="nebius-region",
            at=at,
            given=machine_type,
            allowed=f"a platform that {settings.region} has: {listing(there)}; {platform.name} is in "
            f"{listing(platform.regions)}",
            todo="write another machine type, or nebius.region of a project in another region",
        )
    if role != "node" and (platform.gpu or platform.architecture != "x86_64"):
        yield Finding(
            id="nebius-service-type",
            at=at,
            given=machine_type,
            allowed="a platform without GPUs, e.g. cpu-d3/16vcpu-64gb: only nodesets compute",
            todo="write one of cpu-d3",
        )
    elif preset.vcpus < _LEAST_VCPUS[role]:
        yield Finding(
            id="nebius-preset-small",
            at=at,
            given=machine_type,
            allowed=f"a preset of {_LEAST_VCPUS[role]} vCPUs or more, which is what runs there",
            todo=f"write {_larger(platform.name, _LEAST_VCPUS[role])}",
        )


def _larger(platform: str, vcpus: int) -> str:
    return next(f"{platform}/{one.name}" for one in PLATFORMS[platform].presets if one.vcpus >= vcpus)


def _architectures(config: ClusterConfig) -> Iterator[Finding]:
    """All nodes share one jail, whose programs are of one architecture."""
    found = {name: nodeset_type(config, section).family for name, section in config.nodesets.items()}
    first = next(iter(found))
    for name, family in found.items():
        if family.architecture != found[first].architecture:
            yield Finding(
                id="nebius-architecture",
                at=("nodesets", name, "machine_type"),
                given=f"{family.name}, which is {family.architecture}",
                allowed=f"{found[first].architecture}, as nodeset {first}: all nodes share one jail",
                todo="make a stack of its own for these nodes",
            )


def _disk(at: Location, disk: Disk, least: int) -> Iterator[Finding]:
    if disk.type is not None:
        yield Finding(
            id="nebius-disk-type",
            at=(*at, "type"),
            given=disk.type,
            allowed="size_gb alone: boot disks on Nebius are network-ssd",
            todo="remove it",
        )
    if disk.size_gb is not None and not least <= disk.size_gb <= LARGEST_DISK_GIB:
        yield Finding(
            id="nebius-disk-size",
            at=(*at, "size_gb"),
            given=str(disk.size_gb),
            allowed=f"{least} to {LARGEST_DISK_GIB} GiB: Kubernetes keeps 48 GiB and 15 % of it, and container images "
            "fill the rest",
            todo=f"write {least if disk.size_gb < least else LARGEST_DISK_GIB}, or remove it for the default",
        )


def _capacity(config: ClusterConfig) -> Iterator[Finding]:
    for name, section in config.nodesets.items():
        capacity, at = section.capacity, ("nodesets", name, "capacity")
        if capacity is None:
            continue
        if capacity.way not in _WAYS:
            yield Finding(
                id="nebius-capacity",
                at=(*at, capacity.way),
                given=capacity.way,
                allowed=f"on Nebius: {listing(_WAYS)}",
                todo="write {spot: {}} for preemptible nodes, or {reservation: capacityblockgroup-...}",
            )
        if capacity.placement is not None:
            yield Finding(
                id="nebius-placement",
                at=(*at, capacity.way, "placement"),
                given=f"max_distance {capacity.placement.max_distance}",
                allowed="nothing on Nebius: nodes of a GPU cluster are on one fabric",
                todo="remove it, and write nebius.workers with `infiniband`",
            )
        reserved = capacity.reservation
        if reserved and reserved.placement_policy:
            yield Finding(
                id="nebius-placement-policy",
                at=(*at, "reservation", "placement_policy"),
                given=reserved.placement_policy,
                allowed="the id of a capacity block group alone, e.g. {reservation: capacityblockgroup-e00abc}",
                todo="remove it",
            )
        if reserved and not reserved.name.startswith("capacityblockgroup-"):
            yield Finding(
                id="nebius-reservation",
                at=(*at, "reservation"),
                given=reserved.name,
                allowed="the id of a capacity block group, e.g. capacityblockgroup-e00abc",
                todo="copy it from `nebius capacity capacity-block-group list`",
            )
