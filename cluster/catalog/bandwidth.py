"""What a machine of Compute Engine moves at most: to and from its disks, and over its network.

Source: cloud.google.com/compute/docs/disks/performance and optimizing-pd-performance ("Network egress caps on write
throughput").
"""

from dataclasses import dataclass

DISK_WRITES = 0.6
"""Part of the network's bandwidth that writes to disks can have beside other traffic."""
WRITE_OVERHEAD = 1.16
"""Bytes that go over the network for each byte written to a disk, as it is kept more than once."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One row: machines with at least so many vCPUs, up to the next row."""

    cpus: int
    mbps: int


_DISKS = (Limit(cpus=1, mbps=240), Limit(cpus=8, mbps=800), Limit(cpus=16, mbps=1200))
"""MB/s of all SSD disks of a machine together."""
_EXTREME = (*_DISKS, Limit(cpus=64, mbps=4000))
_EXTREME_TYPES = ("pd-extreme", "hyperdisk-extreme")

GBIT = 125
"""MB/s of one Gbit/s."""


def disks_mbps(disk_type: str, cpus: int) -> int:
    """MB/s of all disks of a type together, on a machine with so many vCPUs."""
    return limit(_EXTREME if disk_type in _EXTREME_TYPES else _DISKS, cpus)


def limit(limits: tuple[Limit, ...], cpus: int) -> int:
    """MB/s of the row that a machine with so many vCPUs is in."""
    return [row.mbps for row in limits if row.cpus <= cpus][-1]
