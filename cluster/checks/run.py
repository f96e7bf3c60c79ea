"""Rules that tie one part of the configuration to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.catalog.bounds import MOST_NODES
from cluster.checks import accounting, counts, machines, partitions, platform_fields, scripts, settings, users
from cluster.platforms.gcp.checks import capacity, customize, disks, image, storage
from cluster.platforms.gcp.checks import network as gcp_network
from cluster.platforms.local.checks import network, shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig
    from cluster.findings import Broken


def broken(config: ClusterConfig) -> Iterator[Broken]:
    """Every rule that does not hold, in the order of the file."""
    yield from counts.broken(config)
    if counts.nodes(config) > MOST_NODES:
        return  # the other rules list machines, which takes a while where nobody meant so many
    google = (gcp_network, storage, image, disks, capacity, customize)
    rules = (*google, platform_fields, network, shared, machines, partitions, users, accounting, settings, scripts)
    for rule in rules:
        yield from rule.broken(config)
