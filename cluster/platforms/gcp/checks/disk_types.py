"""What a disk type allows: machines, sizes, provisioned rates."""

from collections.abc import Iterator

from cluster.catalog import DISK_TYPES, DiskType, MachineType
from cluster.config.storage import Targets
from cluster.findings import Finding, Location, listing


def find_type_errors(at: Location, row: DiskType, kind: MachineType, *, boot: bool = False) -> Iterator[Finding]:
    """A disk type that a machine type does not take, or does not boot from."""
    takes = [one.name for one in DISK_TYPES.values() if kind.takes(one.name) and (one.bootable or not boot)]
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
        takers = [one.name for one in DISK_TYPES.values() if getattr(one, key)]
        yield Finding(
            id="disk-provisioned",
            at=(*at, key),
            given=f"{value}, of {row.name}",
            allowed=f"{bounds[0]} to {bounds[1]} of {row.name}" if bounds else f"{key} of {listing(takers)}",
            todo="correct it, or remove it" if bounds else f"remove it: {row.name} has what its size gives",
        )
