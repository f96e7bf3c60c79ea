"""Disk types of Compute Engine: what each can be, and what it gives."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DiskType:
    """One row of the catalog."""

    name: str
    smallest_gb: int
    largest_gb: int
    mbps_per_gb: float
    """MB/s of reading for each GB, sustained; 0 where bandwidth is provisioned apart from the size."""
    most_mbps: int
    """MB/s of one disk at most, however large."""
    provisioned: bool = False
    """Whether iops and mbps can be given."""
    source: str


_DOCS = "cloud.google.com/compute/docs/disks"

_ROWS = (
    DiskType(
        name="pd-standard",
        smallest_gb=10,
        largest_gb=65536,
        mbps_per_gb=0.12,
        most_mbps=1200,
        source=f"{_DOCS}/performance",
    ),
    DiskType(
        name="pd-balanced",
        smallest_gb=10,
        largest_gb=65536,
        mbps_per_gb=0.28,
        most_mbps=1200,
        source=f"{_DOCS}/performance",
    ),
    DiskType(
        name="pd-ssd",
        smallest_gb=10,
        largest_gb=65536,
        mbps_per_gb=0.48,
        most_mbps=1200,
        source=f"{_DOCS}/performance",
    ),
    DiskType(
        name="hyperdisk-balanced",
        smallest_gb=4,
        largest_gb=65536,
        mbps_per_gb=0,
        most_mbps=2400,
        provisioned=True,
        source=f"{_DOCS}/hyperdisks",
    ),
)

DISK_TYPES: dict[str, DiskType] = {row.name: row for row in _ROWS}
