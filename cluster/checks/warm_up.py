"""The warm-up of nodes: partitions that exist, and something to download."""

from collections.abc import Iterator

from cluster.checks.names import repeated, unknown
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level

_AT = ("slurm", "warm_up")


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    warm = config.slurm.warm_up
    if warm is None:
        return
    at = (*_AT, "partitions")
    yield from unknown(at, warm.partitions, config.partitions, "a partition", "partitions")
    yield from repeated(at, warm.partitions, "partition", rule="warm-up-partition-twice")
    yield from repeated((*_AT, "containers"), warm.containers, "image", rule="warm-up-image-twice")


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    warm, rxdm = config.slurm.warm_up, config.slurm.rxdm
    if warm is None or warm.containers:
        return
    wanted = warm.partitions or tuple(config.partitions)
    if not set(wanted) & set(rxdm.partitions if rxdm else ()):
        yield Finding(
            id="warm-up-nothing",
            level=Level.WARNING,
            at=_AT,
            what="there is nothing to download: no `containers`, and rxdm runs in none of the partitions",
            todo="name images under `containers`, or remove the section",
        )
