"""Rules that tie one part of the configuration to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.config.rules import (
    accounting,
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
    google = (google_place, google_network, google_storage, google_image, google_disks, google_capacity)
    rules = (*google, foreign, network, shared, machines, partitions, users, accounting, settings, scripts)
    return (found for rule in rules for found in rule.broken(config))
