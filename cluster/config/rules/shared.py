"""Directories that local machines share: what is said of one is said of one that there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.config.rules.partitions import unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig
    from cluster.config.findings import Broken


def broken(config: ClusterConfig) -> Iterator[Broken]:
    """Rules of shared directories that do not hold."""
    if config.platform == "local":
        at, given = ("storage", "read_only"), config.storage
        yield from unknown(at, given.read_only, given.shared, "a directory of storage.shared", "storage.shared")
