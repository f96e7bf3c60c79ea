"""Typed tables of what exists: machine types and operating-system images. Each row names its source."""

from cluster.catalog.images import IMAGES, Image
from cluster.catalog.machines import MACHINE_TYPES, Gpu, MachineType, machine_type

__all__ = ["IMAGES", "MACHINE_TYPES", "Gpu", "Image", "MachineType", "machine_type"]
