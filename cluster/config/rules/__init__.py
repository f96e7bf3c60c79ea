"""Rules that tie one part of the configuration to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.catalog.bounds import MOST_NODES
from cluster.config.rules import (
    accounting,
    counts,
    foreign,
    google_capacity,
    google_disks,
    google_image,
    google_network,
    google_place,
    google_storage,
    machines,
    network,
    partitions,
    scripts,
    settings,
    shared,
    users,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig
    from cluster.config.findings import Broken


def broken(config: ClusterConfig) -> Iterator[Broken]:
    """Every rule that does not hold, in the order of the file."""
    yield from counts.broken(config)
    if counts.nodes(config) > MOST_NODES:
        return  # the other rules list machines, which takes a while where nobody meant so many
    google = (google_place, google_network, google_storage, google_image, google_disks, google_capacity)
    rules = (*google, foreign, network, shared, machines, partitions, users, accounting, settings, scripts)
    for rule in rules:
        yield from rule.broken(config)
