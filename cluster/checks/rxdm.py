"""The prolog of A3 Mega nodes where it would not do what jobs need of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.catalog.families import Fabric
from cluster.checks.warning import Warned
from cluster.findings import listing
from cluster.roster import nodeset_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig

_TIMERS = {"prolog_epilog": "Slurm ends the prolog and drains the node", "batch_start": "Slurm requeues the batch job"}
_SECONDS = 600
"""What the configuration that Google ships with rxdm gives both: etc/long-prolog-slurm.conf.tpl of slurm-gcp."""


def warned(config: ClusterConfig) -> Iterator[Warned]:
    """Warnings of `slurm.rxdm`, and of A3 Mega nodes that would do without it."""
    runs = config.slurm.rxdm.partitions if config.slurm.rxdm else ()
    for name in runs:
        if not config.partitions[name].exclusive:
            yield Warned(
                at=("partitions", name, "exclusive"),
                what="jobs that share a node end each other's rxdm: the prolog of the second stops the container of "
                "the first",
                todo="write `exclusive: true`, as rxdm serves one job on a node",
            )
    if config.platform == "local":
        return  # a rehearsal has a stand-in for the prolog and for its nodes
    yield from _partitions(config, runs)
    given = config.slurm.timers
    for key, then in _TIMERS.items() if runs else ():
        if getattr(given, key) < _SECONDS:
            yield Warned(
                at=("slurm", "timers", key),
                what=f"the first prolog on a node pulls containers of several GB; after {getattr(given, key)} s {then}",
                todo=f"write {_SECONDS}",
            )


def _partitions(config: ClusterConfig, runs: tuple[str, ...]) -> Iterator[Warned]:
    for name, partition in config.partitions.items():
        kinds = {one: nodeset_type(config, config.nodesets[one]) for one in partition.nodesets}
        mega = [one for one, kind in kinds.items() if kind.family.fabric is Fabric.TCPXO]
        if mega and name not in runs:
            yield Warned(
                at=("slurm", "rxdm"),
                what=f"jobs of partition {name} use plain TCP between the A3 Mega nodes of {listing(mega)}, at a "
                "fraction of their bandwidth",
                todo=f"add {name} to slurm.rxdm.partitions",
            )
