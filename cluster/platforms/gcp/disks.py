"""Disks on Google Cloud: defaults of the machines' disks, and checks of types, sizes and rates."""

from collections.abc import Iterator

from cluster.catalog import DISK_TYPES, MACHINE_TYPES, DiskType, MachineType
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Disk
from cluster.config.storage import Targets
from cluster.findings import Finding, Location, listing
from cluster.platforms.gcp.names import place
from cluster.roster import MachineSpec, monitoring_machine

BOOT_TYPES = {"controller": "pd-ssd", "login": "pd-balanced", "monitoring": "pd-balanced", "node": "pd-ssd"}
"""Type of boot disks by a machine's first role."""
NEWER = "hyperdisk-balanced"
"""Disk type of machines that take no persistent disks, such as A3 Ultra and A4."""
REGIONAL, REGIONAL_FAMILIES = ("pd-standard", "pd-balanced", "pd-ssd"), ("e2", "n1", "n2")
"""Disk types of the catalog that can be in two zones, and families whose machines take such disks
(cloud.google.com/compute/docs/disks/about-regional-persistent-disk)."""
BOOT_GB = 200
STATE_GB = 100


def boot_disk(config: ClusterConfig, spec: MachineSpec) -> tuple[str, int]:
    return boot(section(config, spec), spec.roles[0], spec.machine_type)


def boot(disk: Disk, role: str, kind: MachineType) -> tuple[str, int]:
    """Return type and size in GB of the boot disk that a section describes, for machines of that role and type."""
    usual = BOOT_TYPES[role]
    default = usual if usual in kind.family.disks or not kind.family.disks else NEWER
    return disk.type or default, disk.size_gb or BOOT_GB


def section(config: ClusterConfig, spec: MachineSpec) -> Disk:
    """Return the section of the stack file for a machine's boot disk."""
    if spec.roles[0] == "controller":
        return config.controller.disk
    if spec.roles == ("monitoring",) and (monitoring := monitoring_machine(config)):
        return monitoring.disk
    return config.nodesets[spec.nodeset].disk if spec.nodeset else config.login.disk


def state_disk(config: ClusterConfig) -> tuple[str, int]:
    disk = config.controller.state_disk
    return disk.type or BOOT_TYPES["controller"], disk.size_gb or STATE_GB


def find_type_errors(at: Location, row: DiskType, kind: MachineType, *, boot: bool = False) -> Iterator[Finding]:
    """Yield a disk type that a machine type does not take, or does not boot from."""
    takes = [disk.name for disk in DISK_TYPES.values() if kind.takes(disk.name) and (disk.bootable or not boot)]
    if row.name not in takes:
        least = kind.family.disks.get(row.name)
        more = f" ({row.name} needs {least} vCPUs)" if least and least > kind.cpus else ""
        yield Finding(
            id="disk-type",
            at=(*at, "type"),
            given=f"{row.name}, of {kind.name}",
            allowed=f"on {kind.name}{' to boot from' if boot else ''}: {listing(takes)}{more}",
            todo="take one of these, or another machine type",
        )


def state_zones(config: ClusterConfig) -> list[str]:
    """Return the zones that the controller's state disk is in, sorted: an edit that swaps them keeps the disk."""
    return sorted({place(config).zone, config.controller.state_disk.replica_zone or place(config).zone})


def find_replica_errors(config: ClusterConfig) -> Iterator[Finding]:
    """Yield settings that a state disk in two zones can't have."""
    other, zone = config.controller.state_disk.replica_zone, place(config).zone
    if other is None:
        return
    at, region = ("controller", "state_disk"), place(config).region
    if other == zone or other.rpartition("-")[0] != region:
        yield Finding(
            id="replica-zone",
            at=(*at, "replica_zone"),
            given=other,
            allowed=f"another zone of {region} than gcp:zone, {zone}: a disk can be in two zones of one region",
            todo=f"write one: `gcloud compute zones list --filter region={region}`",
        )
    kind, (name, size) = MACHINE_TYPES[config.controller.machine_type], state_disk(config)
    if kind.family.name not in REGIONAL_FAMILIES:
        yield Finding(
            id="replica-machine-type",
            at=("controller", "machine_type"),
            given=f"{kind.name}, with `state_disk.replica_zone`",
            allowed=f"a machine of {listing(REGIONAL_FAMILIES)}: only these take disks that are in two zones",
            todo="write e.g. n2-standard-8",
        )
    least = 200 if name == "pd-standard" else 10
    if name not in REGIONAL or size < least:
        yield Finding(
            id="replica-disk",
            at=(*at, "type" if name not in REGIONAL else "size_gb"),
            given=f"{name} of {size} GB, with `replica_zone`",
            allowed=f"{listing(REGIONAL)}, in two zones; pd-standard of at least 200 GB",
            todo="take one of these, e.g. pd-balanced",
        )


def find_size_errors(at: Location, row: DiskType, size: int) -> Iterator[Finding]:
    if not row.smallest_gb <= size <= row.largest_gb:
        yield Finding(
            id="disk-size",
            at=(*at, "size_gb"),
            given=f"{size}, of {row.name}",
            allowed=f"{row.smallest_gb} to {row.largest_gb} GB of {row.name}",
            todo="correct the size, or take another type",
        )


def find_rate_errors(at: Location, row: DiskType, targets: Targets) -> Iterator[Finding]:
    for key, bounds in (("iops", row.iops), ("mbps", row.mbps)):
        value = getattr(targets, key)
        if value is None or (bounds and bounds[0] <= value <= bounds[1]):
            continue
        takers = [disk.name for disk in DISK_TYPES.values() if getattr(disk, key)]
        yield Finding(
            id="disk-provisioned",
            at=(*at, key),
            given=f"{value}, of {row.name}",
            allowed=f"{bounds[0]} to {bounds[1]} of {row.name}" if bounds else f"{key} of {listing(takers)}",
            todo="correct it, or remove it" if bounds else f"remove it: {row.name} has what its size gives",
        )
