"""What works as it is written, and what its author should know before it costs: told by every preview and `up`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.checks import rxdm
from cluster.platforms.gcp.checks import driver, location, storage

if TYPE_CHECKING:
    from cluster.checks.warning import Warned
    from cluster.config.cluster import ClusterConfig


def warnings(config: ClusterConfig) -> list[Warned]:
    """Every warning, in the order of the file."""
    return [found for topic in (location, storage, rxdm, driver) for found in topic.warned(config)]
