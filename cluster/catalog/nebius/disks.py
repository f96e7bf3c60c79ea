"""Disk types of Nebius, for boot disks and disks of single nodes.

Source: nebius/api, compute/v1/disk.proto; nebius-solutions-library, soperator/modules/available_resources/disk.tf; the
StorageClasses are those of Soperator's chart helm-storageclasses.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NebiusDisk:
    """One disk type."""

    name: str
    """As StorageClasses have it, which this program's stack files have too."""
    api: str
    """Name in Nebius's API."""
    step_gib: int = 1
    """GiB that sizes are multiples of."""


REPLICATED_STEP = 93
"""GiB: IO_M3 and non-replicated disks are made of parts of this size."""

_ROWS = (
    NebiusDisk(name="network-ssd", api="NETWORK_SSD"),
    NebiusDisk(name="network-ssd-non-replicated", api="NETWORK_SSD_NON_REPLICATED", step_gib=REPLICATED_STEP),
    NebiusDisk(name="network-ssd-io-m3", api="NETWORK_SSD_IO_M3", step_gib=REPLICATED_STEP),
)

NEBIUS_DISKS: dict[str, NebiusDisk] = {row.name: row for row in _ROWS}


def storage_class(disk: str, filesystem: str) -> str:
    """Name of the StorageClass for disks of a type with a file system."""
    return f"compute-csi-{disk}-{filesystem}"
