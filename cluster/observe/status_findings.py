"""All health checks of an observation, and the findings that they return."""

from collections.abc import Callable, Iterable

from cluster.findings import ClusterFinding, merge_alike
from cluster.observe import status_findings_daemons as daemons
from cluster.observe import status_findings_machines as machines
from cluster.observe import status_findings_nodes as nodes
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
    nodes.drained,
    nodes.held,
    nodes.missing,
    nodes.misplaced,
    daemons.killed,
    machines.missing_mounts,
    machines.full_disks,
    daemons.prometheus,
    daemons.restarting,
    machines.outdated,
    machines.older_slurm,
    machines.vulnerable_software,
    machines.old_packages,
    machines.old_kernels,
)
"""Health checks, in the order in which their findings are printed: causes before their effects."""


def findings(cluster: ClusterObservation) -> list[ClusterFinding]:
    """Return all findings of a cluster, with one finding for the same fault on several machines."""
    return merge_alike([finding for check in CHECKS for finding in check(cluster)])
