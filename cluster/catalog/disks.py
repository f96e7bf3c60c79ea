"""Disk types of Compute Engine: what each can be, and what it gives."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DiskType:
    name: str
    smallest_gb: int
    largest_gb: int
    mbps_per_gb: float = 0
    """MB/s for each GB, sustained; 0 where bandwidth is provisioned apart from the size."""
    read_mbps: int
    """MB/s of reading from one disk at most, however large."""
    write_mbps: int
    """MB/s of writing to one disk at most."""
    iops: tuple[int, int] | None = None
    """Least and most I/O operations per second that can be provisioned; None where they follow from the size."""
    mbps: tuple[int, int] | None = None
    """Least and most MB/s that can be provisioned; None where they follow from the size."""
    bootable: bool = True
    source: str


_DOCS = "cloud.google.com/compute/docs/disks"

# Machines that take them: families.py; limits of one machine: bandwidth.py. Sizes and rates: the page named with each.
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
