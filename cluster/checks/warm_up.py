"""The warm-up of nodes: partitions that exist, and something to download."""

from collections.abc import Collection, Iterator

from cluster.checks.names import repeated, unknown
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, listing
from cluster.people import admits_root

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
    if warm is None:
        return
    wanted = warm.partitions or tuple(config.partitions)
    if closed := _closed(config, wanted):
        yield Finding(
            id="warm-up-closed",
            level=Level.WARNING,
            at=_AT,
            what=f"root's jobs download what nodes need, and may not run in {listing(closed)} (allow_accounts, "
            "allow_qos): nodes that are in no other partition stay as they are",
            todo="limit these partitions with allow_groups, which does not keep root out, or leave them out of "
            "slurm.warm_up.partitions",
        )
    if warm.containers:
        return
    if not set(wanted) & set(rxdm.partitions if rxdm else ()):
        yield Finding(
            id="warm-up-nothing",
            level=Level.WARNING,
            at=_AT,
            what="there is nothing to download: no `containers`, and rxdm runs in none of the partitions",
            todo="name images under `containers`, or remove the section",
        )


def _closed(config: ClusterConfig, wanted: Collection[str]) -> list[str]:
    """Partitions without root whose nodes are in no other of those that are warmed."""
    there = {name: config.partitions[name] for name in wanted if name in config.partitions}
    open_ones = {nodeset for one in there.values() if admits_root(one) for nodeset in one.nodesets}
    return [name for name, one in there.items() if not admits_root(one) and not open_ones >= set(one.nodesets)]
