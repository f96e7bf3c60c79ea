"""Rules that tie one part of the configuration to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.config.rules import accounting, machines, network, partitions, scripts, settings, users

if TYPE_CHECKING:
    from cluster.config.cluster import ClusterConfig
    from cluster.config.findings import Broken


def broken(config: ClusterConfig) -> list[Broken]:
    """Every rule that does not hold, in the order of the file."""
    rules = (network, machines, partitions, users, accounting, settings, scripts)
    return [found for rule in rules for found in rule.broken(config)]
