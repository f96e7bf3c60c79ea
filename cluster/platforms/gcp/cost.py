"""Parts of a cluster on Google Cloud that cost money."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

from cluster.config.cluster import ClusterConfig
from cluster.cost_parts import Part
from cluster.platforms.gcp.disks import boot_disk, state_disk, state_zones
from cluster.platforms.gcp.filesystems.registry import file_systems, servers
from cluster.platforms.gcp.request import LOCAL_SSD_GB, networks
from cluster.roster import MachineSpec, elastic_machines, machines

NAT_MACHINES = 0.044 / 0.0014
"""Machines from which on a gateway of Cloud NAT costs no more: 0.0014 USD an hour for each, and 0.044 at most
(cloud.google.com/nat/pricing)."""


def parts(config: ClusterConfig) -> Iterator[Part]:
    """Yield machines with their disks, file systems, addresses and NAT. The builder of an image, the image itself and
    snapshots are left out."""
    static, elastic = machines(config), elastic_machines(config)
    for specs, is_elastic in ((static, False), (elastic, True)):
        kinds = {(spec.roles[0], spec.nodeset): spec for spec in specs}
        counts = Counter((spec.roles[0], spec.nodeset) for spec in specs)
        for key, spec in kinds.items():
            yield from _machines(config, spec, counts[key], elastic=is_elastic)
    kind, size = state_disk(config)
    zones = len(state_zones(config))
    yield Part(what="state disk", item=kind, count=size * zones, group="storage", protected=config.deletion_protection)
    for file_system in file_systems(config):
        yield from file_system.cost_parts()
    numbers = networks(config)
    yield Part(what="public addresses", item="address", count=numbers["public addresses"], group="network")
    if numbers["routers with Cloud NAT"]:
        own = len(static) + len(servers(config))
        always, most = (min(count, NAT_MACHINES) for count in (own, own + len(elastic)))
        yield Part(what="Cloud NAT", item="nat", count=always, group="network")
        yield Part(what="Cloud NAT", item="nat", count=most - always, group="network", elastic=True)


def _machines(config: ClusterConfig, spec: MachineSpec, count: int, *, elastic: bool) -> Iterator[Part]:
    """Yield the parts of machines of one kind."""
    role, kind = spec.roles[0], spec.machine_type
    nodeset = spec.nodeset if role == "node" and spec.nodeset else ""
    what = f"nodeset {nodeset}" if nodeset else role
    ways = _ways(config, role, nodeset, elastic=elastic)
    attached = spec.gpu.count if spec.gpu and spec.gpu != kind.gpu else 0
    disk, size = boot_disk(config, spec)
    part = partial(Part, what=what, elastic=elastic, nodeset=nodeset)
    for item, each in (
        (kind.name, 1),
        (f"gpu-{spec.gpu.type}" if spec.gpu else "", attached),
        ("local-ssd", kind.family.local_ssds * LOCAL_SSD_GB),
    ):
        yield part(item=item, count=count * each, group="machines", ways=ways)
    yield part(item=disk, count=count * size, group="storage")


def _ways(config: ClusterConfig, role: str, nodeset: str, *, elastic: bool) -> tuple[str, ...]:
    """Return the ways in which machines of a kind are bought. Static nodes have the first one."""
    if nodeset:
        ways = tuple(way.way for way in config.nodesets[nodeset].ways)
        return ways if elastic else ways[:1]
    capacity = {"controller": config.controller.capacity, "login": config.login.capacity}.get(role)
    return (capacity.way if capacity else "on_demand",)
