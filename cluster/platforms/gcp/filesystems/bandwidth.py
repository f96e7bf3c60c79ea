"""What a Lustre file system holds, and how fast it is at best: from the catalog, before anything is made.

The figures are limits of disks and machines, so clients together see at most that, and less where there are few of
them: DDN's own example, sixteen servers with 3.5 TB each and eight clients, measured 7.4 GiB/s of reading and 6.3
GiB/s of writing, where the limits are 18.8 GB/s each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.catalog import DISK_TYPES, MACHINE_TYPES
from cluster.catalog.bandwidth import DISK_WRITES, WRITE_OVERHEAD, disks_mbps

if TYPE_CHECKING:
    from cluster.config.lustre import Lustre, Targets


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Capacity and bandwidth of a file system."""

    capacity_gib: int
    """GiB of the targets; the file system itself needs a few in a hundred of them."""
    read_mbps: int
    """MB/s (10^6 bytes) of reading by all clients together, at most."""
    write_mbps: int
    """MB/s of writing by all clients together, at most."""


def expected(lustre: Lustre) -> Expected:
    """Of the file system that a section describes."""
    if lustre.kind == "managed":
        mbps = lustre.size_gib * lustre.throughput // 1024
        return Expected(capacity_gib=lustre.size_gib, read_mbps=mbps, write_mbps=mbps)
    oss = lustre.oss
    read, write = server_mbps(oss.machine_type, oss.ost)
    # Disks are sold in GB that are GiB: cloud.google.com/compute/docs/disks, "Size".
    return Expected(
        capacity_gib=oss.ost.size_gb * oss.ost.count * oss.count,
        read_mbps=read * oss.count,
        write_mbps=write * oss.count,
    )


def server_mbps(machine_type: str, targets: Targets) -> tuple[int, int]:
    """MB/s of reading and of writing that one server gives: the least of its disks, its machine and its network."""
    kind, disk = MACHINE_TYPES[machine_type], DISK_TYPES[targets.type]
    provisioned = targets.mbps or (disk.mbps[0] if disk.mbps else None)
    each = provisioned or (targets.size_gb * disk.mbps_per_gb if disk.mbps_per_gb else disk.read_mbps)
    machine = disks_mbps(disk.name, kind.cpus)
    network = kind.egress_mbps
    read = min(min(each, disk.read_mbps) * targets.count, machine, network)
    write = min(min(each, disk.write_mbps) * targets.count, machine, network * DISK_WRITES / WRITE_OVERHEAD)
    return int(read), int(write)
