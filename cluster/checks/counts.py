"""The number of machines: not more than the platform can have."""

from collections.abc import Iterator

from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding
from cluster.platforms import registry


def nodes(config: ClusterConfig) -> int:
    """Machines that only compute."""
    return sum(_counts(config).values())


def _counts(config: ClusterConfig) -> dict[str, int]:
    return {name: 0 if one.on else one.count for name, one in config.nodesets.items()}


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    """The platform's limit, reported at the largest nodeset. No list of machines is made for this."""
    counts, total = _counts(config), nodes(config)
    others = 1 + (0 if config.login.on else config.login.count)
    limit = registry.get(config.platform).limit
    if total + others <= limit.machines:
        return
    largest = max(counts, key=lambda name: counts[name])
    beside = f", with those of other nodesets {total}" if total > counts[largest] else ""
    yield Finding(
        id="machines-too-many",
        at=("nodesets", largest, "count"),
        given=f"{counts[largest]}{beside}",
        allowed=f"{limit.machines - others} nodes in all: {limit.of} has {limit.machines} machines at most, with "
        "controller and login",
        todo="lower the count",
    )
