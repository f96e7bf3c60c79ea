"""Findings of a running cluster: the worst first, the same ones of many machines as one. Add new ones to CHECKS."""

from collections.abc import Callable, Iterable

from cluster.findings import ClusterFinding, merge_alike
from cluster.observe.health import daemons, machines, nodes
from cluster.observe.observation import ClusterObservation

CHECKS: tuple[Callable[[ClusterObservation], Iterable[ClusterFinding]], ...] = (
    machines.unreachable,
    machines.late,
    daemons.controller,
    daemons.munged,
    machines.munge_keys,
    machines.clocks,
    machines.cut_off,
    nodes.lost,
    nodes.unstarted,
    machines.cluster_state,
    machines.not_set_up,
    daemons.reconcile,
    daemons.failover,
    nodes.drained,
    nodes.held,
    nodes.missing,
    nodes.misplaced,
    daemons.lost_jobs,
    daemons.records,
    machines.missing_mounts,
    machines.full_disks,
    daemons.prometheus,
    daemons.restarting,
    machines.outdated,
    machines.older_slurm,
    machines.old_packages,
    machines.old_kernels,
)
"""Health checks in the order in which their findings are shown: causes before their effects."""


def findings(seen: ClusterObservation) -> list[ClusterFinding]:
    """List every finding; empty when all is well. A pure function."""
    return merge_alike([found for check in CHECKS for found in check(seen)])
