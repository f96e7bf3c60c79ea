"""What a machine of Compute Engine moves at most: to and from its disks, and over its network."""

from dataclasses import dataclass

DISK_WRITES = 0.6
"""Part of the network's bandwidth that writes to disks can have while other traffic wants some as well."""
WRITE_OVERHEAD = 1.16
"""Bytes that go over the network for each byte written to a disk, as it is kept more than once.

Both: cloud.google.com/compute/docs/disks/optimizing-pd-performance, "Network egress caps on write throughput".
"""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One row: machines with at least so many vCPUs, up to the next row."""

    cpus: int
    mbps: int


_DISKS = (Limit(cpus=1, mbps=240), Limit(cpus=8, mbps=800), Limit(cpus=16, mbps=1200))
"""MB/s of all SSD disks of a machine together (cloud.google.com/compute/docs/disks/performance)."""
_EXTREME = (*_DISKS, Limit(cpus=64, mbps=4000))
_EXTREME_TYPES = ("pd-extreme", "hyperdisk-extreme")

_GBIT = 125
"""MB/s of one Gbit/s."""
_EGRESS: dict[str, tuple[Limit, ...]] = {
    # Default tier, not Tier_1: general-purpose-machines, compute-optimized-machines, accelerator-optimized-machines.
    "a3": (Limit(cpus=1, mbps=200 * _GBIT),),
    "c2": (Limit(cpus=1, mbps=10 * _GBIT), Limit(cpus=8, mbps=16 * _GBIT), Limit(cpus=16, mbps=32 * _GBIT)),
    "e2": (Limit(cpus=1, mbps=4 * _GBIT), Limit(cpus=4, mbps=8 * _GBIT), Limit(cpus=8, mbps=16 * _GBIT)),
    "n1": (
        Limit(cpus=1, mbps=2 * _GBIT),
        Limit(cpus=2, mbps=10 * _GBIT),
        Limit(cpus=8, mbps=16 * _GBIT),
        Limit(cpus=16, mbps=32 * _GBIT),
    ),
    "n2": (Limit(cpus=1, mbps=10 * _GBIT), Limit(cpus=8, mbps=16 * _GBIT), Limit(cpus=16, mbps=32 * _GBIT)),
}


def disks_mbps(disk_type: str, cpus: int) -> int:
    """MB/s of all disks of a type together, on a machine with so many vCPUs."""
    return _of(_EXTREME if disk_type in _EXTREME_TYPES else _DISKS, cpus)


def egress_mbps(family: str, cpus: int) -> int:
    """MB/s that a machine of a family sends at most."""
    return _of(_EGRESS[family], cpus)


def _of(limits: tuple[Limit, ...], cpus: int) -> int:
    return [limit.mbps for limit in limits if limit.cpus <= cpus][-1]
