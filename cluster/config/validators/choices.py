"""Values that a table of the catalog has, and texts of one form."""

import re
from collections.abc import Callable, Collection
from typing import Any

from cluster.catalog import DISK_TYPES, IMAGES, MACHINE_TYPES, SYSTEMS
from cluster.catalog.recipes import VERSIONS
from cluster.findings import Refused, listing, suggest

Validator = Callable[[str], str]


def one_of(known: Collection[str], what: str, todo: str = "take one of these") -> Validator:
    """A validator of names that a table has."""

    def check(value: str) -> str:
        if value not in known:
            raise Refused(f"{what}: {listing(known)}", suggest(value, known, todo))
        return value

    return check


def matching(pattern: str, allowed: str, todo: str) -> Validator:
    """A validator of texts that match a pattern from their first to their last character."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise Refused(allowed, todo)
        return value

    return check


def no_list(allowed: str, todo: str) -> Callable[[Any], Any]:
    """A validator that refuses a list where one value is allowed."""

    def check(value: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
        if isinstance(value, list):
            raise Refused(allowed, todo)
        return value

    return check


machine_type = one_of(
    MACHINE_TYPES, "a machine type of the catalog", "take one of these; `cluster/catalog/machines.py` has their sizes"
)
disk_type = one_of(DISK_TYPES, "a disk type of the catalog")
image = one_of(IMAGES, "an operating system of the catalog")
recipe = one_of(VERSIONS, "a version of the recipes")
system = one_of(SYSTEMS, "a system of the catalog")
