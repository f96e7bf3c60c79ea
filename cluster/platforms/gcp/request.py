"""What a stack asks Google Cloud for, in the quantities that cost money or count against a quota."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.catalog import MACHINE_TYPES, Gpu, MachineType
from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Nodeset
from cluster.platforms.gcp.address_plan import NAT_ADDRESSES, fabric_of, plan, reserved, table
from cluster.platforms.gcp.disks import boot_disk, state_disk
from cluster.platforms.gcp.filesystems.registry import file_systems, servers
from cluster.platforms.gcp.image import bakes
from cluster.platforms.gcp.permissions import policies, roles
from cluster.roster import machines

LOCAL_SSD_GB = 375
"""GB of one local SSD (cloud.google.com/compute/docs/disks/local-ssd)."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Machines of one kind."""

    count: int
    machine_type: MachineType
    gpu: Gpu | None
    what: str
    """What they are to the cluster."""
    way: str
    """How their capacity is asked for."""

    @property
    def line(self) -> str:
        """In words, without the line's end."""
        gpus = f", {self.count * self.gpu.count} GPUs ({self.gpu.type})" if self.gpu else ""
        cpus = self.count * self.machine_type.cpus
        return f"{self.count} x {self.machine_type.name}: {self.what}, {self.way}; {cpus} CPUs{gpus}"


def asks(config: ClusterConfig) -> list[Ask]:
    """The machines, kind by kind: controller, login machines, nodesets, Lustre servers."""
    found = []
    for spec in machines(config):
        if "controller" in spec.roles:
            way = config.controller.capacity.way if config.controller.capacity else "on_demand"
            found.append(Ask(count=1, machine_type=spec.machine_type, gpu=None, what="controller", way=_words(way)))
        elif spec.roles == ("login",) and spec.index == 0:
            way = config.login.capacity.way if config.login.capacity else "on_demand"
            found.append(
                Ask(count=config.login.count, machine_type=spec.machine_type, gpu=None, what="login", way=_words(way))
            )
        elif spec.roles == ("node",) and spec.index == 0 and spec.nodeset:
            section = config.nodesets[spec.nodeset]
            what = f"nodeset {spec.nodeset}"
            found.append(
                Ask(count=section.count, machine_type=spec.machine_type, gpu=spec.gpu, what=what, way=_way(section))
            )
    kinds = Counter((server.kind, server.machine_type) for server in servers(config))
    return found + [
        Ask(count=count, machine_type=machine_type, gpu=None, what=f"Lustre {kind}", way=_words("on_demand"))
        for (kind, machine_type), count in kinds.items()
    ]


def disks(config: ClusterConfig) -> Mapping[str, int]:
    """GB of disks by their type; local SSDs, which come with machines, among them."""
    found: Counter[str] = Counter()
    for spec in machines(config):
        kind, size = boot_disk(config, spec)
        found[kind] += size
        if spec.machine_type.family.local_ssds:
            found["local SSD"] += spec.machine_type.family.local_ssds * LOCAL_SSD_GB
    kind, size = state_disk(config)
    found[kind] += size
    for server in servers(config):
        for disk in server.disks:
            found[disk.targets.type] += disk.targets.size_gb
    return dict(sorted(found.items()))


def builder(config: ClusterConfig) -> Ask | None:
    """The machine that makes the image and is deleted then, if there is one; its disk is said here."""
    asked = config.image.builder
    what = f"builder of the image, with {asked.size_gb:,} GB of pd-ssd"
    machine_type = MACHINE_TYPES[asked.machine_type]
    if not bakes(config):
        return None
    return Ask(count=1, machine_type=machine_type, gpu=None, what=what, way="on demand until the image is made")


def networks(config: ClusterConfig) -> Mapping[str, int]:
    """What a stack's networks count against quotas."""
    own = config.network.existing is None
    nat = own and config.network.nat
    logins = sum("login" in machine.roles for machine in machines(config)) if config.login.public else 0
    ranges, one_network = plan(config), bool(fabric_of(config).profile)
    others = own + (ranges.second is not None)
    return {
        "networks": others + (1 if one_network else len(ranges.gpu)),
        "subnetworks": others + len(ranges.gpu),
        "internal addresses": len(reserved(config)),
        "public addresses": NAT_ADDRESSES * nat + logins,
        "routers with Cloud NAT": int(nat),
    }


def describe_request(config: ClusterConfig) -> list[str]:
    """All of it as lines for people: machines, networks, disks, file systems, rights, addresses."""
    lines = [ask.line for ask in (*asks(config), builder(config)) if ask]
    lines.append(", ".join(f"{what}: {count}" for what, count in networks(config).items()))
    lines.append("disks: " + ", ".join(f"{size:,} GB of {kind}" for kind, size in disks(config).items()))
    lines += [line for file_system in file_systems(config) for line in file_system.summary()]
    lines += [
        f"whoever runs it needs: {', '.join(roles(config))}",
        "organisation policies that would refuse it (docs/reference/google-cloud.md), where in force: "
        + ", ".join(policies(config)),
    ]
    return [*lines, *table(plan(config)).splitlines()]


def _way(section: Nodeset) -> str:
    capacity = section.capacity
    if capacity is None:
        return _words("on_demand")
    if reservation := capacity.reservation:
        policy = f" (placement policy {reservation.placement_policy})" if reservation.placement_policy else ""
        return f"{_words(capacity.way)} {reservation.name}{policy}"
    return f"{_words(capacity.way)} {capacity.calendar.name}" if capacity.calendar else _words(capacity.way)


def _words(way: str) -> str:
    return {
        "on_demand": "on demand",
        "spot": "spot",
        "reservation": "from reservation",
        "flex": "flex start",
        "calendar": "from future reservation",
    }[way]
