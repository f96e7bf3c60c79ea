"""Machines, counted: not more than Slurm, a bridge of this machine or a network of Google Cloud can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.catalog import bounds
from cluster.findings import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig


def nodes(config: ClusterConfig) -> int:
    """Machines that only compute."""
    return sum(_counts(config).values())


def _counts(config: ClusterConfig) -> dict[str, int]:
    return {name: 0 if one.on else one.count for name, one in config.nodesets.items()}


def broken(config: ClusterConfig) -> Iterator[Broken]:
    """Bounds that are passed, told at the nodeset that adds most. No list of machines is made for this."""
    counts, total = _counts(config), nodes(config)
    others = 1 + (0 if config.login.on else config.login.count)
    most, why = {
        "local": (bounds.BRIDGE_PORTS, "a bridge of Linux"),
        "gcp": (bounds.GOOGLE_INSTANCES, "a network of Google Cloud"),
    }[config.platform]
    if total + others <= most:
        return
    largest = max(counts, key=lambda name: counts[name])
    beside = f", with those of other nodesets {total}" if total > counts[largest] else ""
    yield Broken(
        at=("nodesets", largest, "count"),
        given=f"{counts[largest]}{beside}",
        allowed=f"{most - others} nodes in all: {why} has {most} machines at most, with controller and login",
        todo="lower the count",
    )
