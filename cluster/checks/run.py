"""All checks of a configuration: those of every platform, and those of the stack's own."""

from collections.abc import Iterator

from cluster.catalog.bounds import MOST_NODES
from cluster.checks import accounting, counts, machines, partitions, platform_fields, scripts, settings, users, warm_up
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding
from cluster.platforms import registry


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from counts.find_errors(config)
    if counts.nodes(config) > MOST_NODES:
        return  # the other rules list machines, which takes a while where nobody meant so many
    yield from registry.get(config.platform).checks(config)
    for rules in (platform_fields, machines, partitions, users, accounting, settings, scripts, warm_up):
        yield from rules.find_errors(config)


def find_warnings(config: ClusterConfig) -> list[Finding]:
    """What a configuration without errors should be known for, before it costs: shown by every preview and `up`."""
    return [
        *scripts.find_warnings(config),
        *users.find_warnings(config),
        *warm_up.find_warnings(config),
        *registry.get(config.platform).warnings(config),
    ]
