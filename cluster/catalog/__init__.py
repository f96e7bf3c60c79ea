"""Typed tables of facts: machine types, operating systems, prologs and others. Each row has its source."""

from cluster.catalog.images import IMAGES, SYSTEMS, OperatingSystem
from cluster.catalog.machine_types import MACHINE_TYPES, Gpu, MachineType
from cluster.catalog.storage import DISK_TYPES, DiskType

__all__ = ["DISK_TYPES", "IMAGES", "MACHINE_TYPES", "SYSTEMS", "DiskType", "Gpu", "MachineType", "OperatingSystem"]
