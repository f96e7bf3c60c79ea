"""The dashboards of clusters, by platform, where not every panel has metrics."""

from collections.abc import Callable, Iterable, Mapping

from cluster.config.cluster import ClusterConfig
from cluster.monitoring.dashboards import DASHBOARDS, Dashboard


def _nebius(config: ClusterConfig) -> Iterable[Dashboard]:
    from cluster.platforms.nebius import monitoring

    return monitoring.dashboards(config)


FEWER: Mapping[str, Callable[[ClusterConfig], Iterable[Dashboard]]] = {"nebius": _nebius}
"""Functions that return the dashboards with the panels whose metrics exist."""


def dashboards_of(config: ClusterConfig) -> tuple[Dashboard, ...]:
    """Return the dashboards of a cluster, with the panels that its platform has metrics for."""
    fewer = FEWER.get(config.platform)
    return tuple(fewer(config)) if fewer else DASHBOARDS
