"""Typed tables of what exists: machine types, operating systems, prologs. Each row names its source."""

from cluster.catalog.images import IMAGES, Image
from cluster.catalog.machines import MACHINE_TYPES, Gpu, MachineType, machine_type
from cluster.catalog.systems import SYSTEMS

__all__ = ["IMAGES", "MACHINE_TYPES", "SYSTEMS", "Gpu", "Image", "MachineType", "machine_type"]
