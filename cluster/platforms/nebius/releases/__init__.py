"""Helm releases of a cluster of pods, in the order in which they are installed."""

from dataclasses import replace

from cluster.config.cluster import ClusterConfig
from cluster.platforms.nebius.releases.configured import configured_releases
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.keys import check_values
from cluster.platforms.nebius.releases.overrides import merged
from cluster.platforms.nebius.releases.release import Facts, Release
from cluster.platforms.nebius.section import Nebius

__all__ = ["Facts", "Release", "releases"]


def releases(config: ClusterConfig, facts: Facts) -> tuple[Release, ...]:
    """The releases of a cluster, each after those that it needs.

    Values of `nebius.values` are laid over those that follow from the rest of the configuration. Raises UnknownValue
    for values that a chart does not have, which checks of the configuration refuse before.
    """
    settings = config.section(Nebius)
    if settings is None:
        raise ValueError("the configuration has no section `nebius`")
    inputs = Inputs(config=config, settings=settings, facts=facts)
    every = tuple(
        replace(one, values=merged(one.values, settings.values.get(one.name, {})))
        for one in configured_releases(inputs)
    )
    for one in every:
        check_values(one)
    return every
