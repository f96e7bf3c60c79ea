"""The questions to Nebius before `up`, a row of CHECKS for each kind. Nothing here sends a request
(components/nebius/cloud_checks.py does).
"""

from collections.abc import Callable, Iterator

from cluster.cloud_checks import CloudCheck
from cluster.platforms.nebius import cloud_offers
from cluster.platforms.nebius.cloud_request import AskedPlace, NebiusStack

PLACE_CHECKS: tuple[Callable[[AskedPlace], Iterator[CloudCheck]], ...] = (
    cloud_offers.versions,
    cloud_offers.images,
    cloud_offers.machine_types,
    cloud_offers.quotas,
    cloud_offers.fabrics,
    cloud_offers.capacity,
)
"""The kinds of checks of what Nebius offers, in the order of their rows."""


def checks(stack: NebiusStack) -> list[CloudCheck]:
    """Return the checks of a stack."""
    return [check for kind in PLACE_CHECKS for check in kind(stack.place)]
