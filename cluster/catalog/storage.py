"""Disks and file systems of Google Cloud: their sizes and rates, and the limits of machines.

Source, but for what names its own: cloud.google.com/compute/docs/disks/performance and optimizing-pd-performance
("Network egress caps on write throughput").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DiskType:
    name: str
    smallest_gb: int
    largest_gb: int
    mbps_per_gb: float = 0
    """Sustained MB/s for each GB; 0 if bandwidth is provisioned separately."""
    read_mbps: int
    """Most MB/s of reading from one disk of any size."""
    write_mbps: int
    """Most MB/s of writing to one disk of any size."""
    iops: tuple[int, int] | None = None
    """Least and most I/O operations per second that can be provisioned; None if they depend on the size."""
    mbps: tuple[int, int] | None = None
    """Least and most MB/s that can be provisioned; None if they depend on the size."""
    bootable: bool = True
    source: str


_DOCS = "cloud.google.com/compute/docs/disks"

# Machines that take them: machine_families.py. Sizes and rates: the page named with each.
# fmt: off
_ROWS = (
    DiskType(
        name="pd-standard", smallest_gb=10, largest_gb=65536, mbps_per_gb=0.12, read_mbps=1200, write_mbps=400,
        source=f"{_DOCS}/performance"),
    DiskType(
        name="pd-balanced", smallest_gb=10, largest_gb=65536, mbps_per_gb=0.28, read_mbps=1200, write_mbps=1200,
        source=f"{_DOCS}/performance"),
    DiskType(
        name="pd-ssd", smallest_gb=10, largest_gb=65536, mbps_per_gb=0.48, read_mbps=1200, write_mbps=1200,
        source=f"{_DOCS}/performance"),
    DiskType(
        name="pd-extreme", smallest_gb=500, largest_gb=65536, read_mbps=4000, write_mbps=3000, iops=(10_000, 120_000),
        bootable=False, source=f"{_DOCS}/extreme-persistent-disk"),
    DiskType(
        name="hyperdisk-balanced", smallest_gb=4, largest_gb=65536, read_mbps=2400, write_mbps=2400,
        iops=(3000, 160_000), mbps=(140, 2400), source=f"{_DOCS}/hd-types/hyperdisk-balanced"),
    DiskType(
        name="hyperdisk-extreme", smallest_gb=64, largest_gb=65536, read_mbps=5000, write_mbps=5000, iops=(2, 350_000),
        bootable=False, source=f"{_DOCS}/hd-types/hyperdisk-extreme"),
    DiskType(
        name="hyperdisk-throughput", smallest_gb=2048, largest_gb=32768, read_mbps=600, write_mbps=600, mbps=(10, 600),
        bootable=False, source=f"{_DOCS}/hd-types/hyperdisk-throughput"),
)
# fmt: on

DISK_TYPES: dict[str, DiskType] = {row.name: row for row in _ROWS}


DISK_WRITES = 0.6
"""Part of the network's bandwidth that writes to disks can use beside other traffic."""
WRITE_OVERHEAD = 1.16
"""Bytes on the network for each byte that is written to a disk, which stores it more than once."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A row of limits: for machines with at least that many vCPUs, up to the next row."""

    cpus: int
    mbps: int


_SSDS = (Limit(cpus=1, mbps=240), Limit(cpus=8, mbps=800), Limit(cpus=16, mbps=1200))
"""MB/s of all SSD disks of a machine together."""
_EXTREME = (*_SSDS, Limit(cpus=64, mbps=4000))
_EXTREME_TYPES = ("pd-extreme", "hyperdisk-extreme")

GBIT = 125
"""MB/s of one Gbit/s."""


def disks_mbps(disk_type: str, cpus: int) -> int:
    """Return the MB/s of all disks of a type together, on a machine with that many vCPUs."""
    return limit(_EXTREME if disk_type in _EXTREME_TYPES else _SSDS, cpus)


def limit(limits: tuple[Limit, ...], cpus: int) -> int:
    """Return the MB/s of the row for a machine with that many vCPUs."""
    return [row.mbps for row in limits if row.cpus <= cpus][-1]


@dataclass(frozen=True, kw_only=True)
class TierSizes:
    """The capacities that are sold of one tier."""

    least: int
    most: int
    step: int
    """Every capacity is a multiple of it."""

    def fit(self, size: int) -> bool:
        """Return whether that capacity is sold."""
        return self.least <= size <= self.most and size % self.step == 0

    def nearest(self, size: int) -> int:
        """Return the next larger capacity that is sold."""
        return max(self.least, min(self.most, -(-size // self.step) * self.step))


def sold(ranges: Sequence[TierSizes]) -> str:
    """Return the capacities of a tier, in words."""
    return " or ".join(f"{sizes.least} to {sizes.most} in steps of {sizes.step}" for sizes in ranges)


def nearest(ranges: Sequence[TierSizes], size: int) -> int:
    """Return the next larger capacity of a tier; the largest where there is none."""
    return next((sizes for sizes in ranges if size <= sizes.most), ranges[-1]).nearest(size)


def grows_to(ranges: Sequence[TierSizes], size: int) -> int:
    """Return the capacity to which one of a tier can grow; 0 if it is larger than all that are sold."""
    return next((sizes.most for sizes in ranges if size <= sizes.most), 0)


MANAGED: Mapping[int, tuple[TierSizes, ...]] = {
    # docs.cloud.google.com/managed-lustre/docs/performance-tiers and increase-capacity, read on 2026-11-28: GiB by MB/s
    # for each TiB. The pages give the end and the step of the second ranges; their first size is not written there, and
    # taken as the next multiple of the larger step.
    125: (TierSizes(least=72_000, most=12_240_000, step=72_000),),
    250: (
        TierSizes(least=36_000, most=6_120_000, step=36_000),
        TierSizes(least=6_336_000, most=40_032_000, step=288_000),
    ),
    500: (
        TierSizes(least=18_000, most=3_060_000, step=18_000),
        TierSizes(least=3_168_000, most=20_016_000, step=144_000),
    ),
    1000: (
        TierSizes(least=9_000, most=1_530_000, step=9_000),
        TierSizes(least=1_584_000, most=10_008_000, step=72_000),
    ),
}
"""Managed Lustre, by throughput, in ranges of capacity: a file system grows within the range of its creation."""

_LOWER, _HIGHER = TierSizes(least=1024, most=9984, step=256), TierSizes(least=10_240, most=102_400, step=2560)
FILESTORE: Mapping[str, tuple[TierSizes, ...]] = {
    # docs.cloud.google.com/filestore/docs/service-tiers-zonal and service-tiers-regional, read on 2026-11-28: GiB. The
    # latter sells lower sizes from 100 GiB on too, whose steps that copy of it does not show.
    "BASIC_SSD": (TierSizes(least=2560, most=65_408, step=1),),
    "ZONAL": (_LOWER, _HIGHER),
    "REGIONAL": (_LOWER, _HIGHER),
}
"""Filestore, by tier, in ranges of capacity: a share never leaves the range that it was created in."""
