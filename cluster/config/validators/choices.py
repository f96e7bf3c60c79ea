"""Choices from the catalog."""

from cluster.catalog import IMAGES, MACHINE_TYPES, SYSTEMS
from cluster.catalog.recipes import VERSIONS
from cluster.findings import Refused, listing, suggest


def machine_type(value: str) -> str:
    """A machine type of the catalog."""
    if value not in MACHINE_TYPES:
        raise Refused(
            f"a machine type of the catalog: {listing(MACHINE_TYPES)}",
            suggest(value, MACHINE_TYPES, "take one of these; `cluster/catalog/machines.py` has their sizes"),
        )
    return value


def image(value: str) -> str:
    """A base operating system of the catalog."""
    if value not in IMAGES:
        raise Refused(
            f"an operating system of the catalog: {listing(IMAGES)}", suggest(value, IMAGES, "take one of these")
        )
    return value


def recipe(value: str) -> str:
    """A version of the recipes."""
    if value not in VERSIONS:
        raise Refused(f"a version of the recipes: {listing(VERSIONS)}", suggest(value, VERSIONS, "take one of these"))
    return value


def system(value: str) -> str:
    """A system that machines can present themselves as."""
    if value not in SYSTEMS:
        raise Refused(f"a system of the catalog: {listing(SYSTEMS)}", suggest(value, SYSTEMS, "take one of these"))
    return value
