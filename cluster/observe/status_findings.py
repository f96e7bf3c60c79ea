"""All health checks of an observation, and the findings that they return."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone

from cluster.findings import Actor, ClusterFinding, merge_alike
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
    found = [finding for check in CHECKS for finding in check(cluster)]
    return merge_alike([*found, *firing_alerts(cluster, found)])


def firing_alerts(cluster: ClusterObservation, found: Iterable[ClusterFinding]) -> Iterator[ClusterFinding]:
    """Yield the firing alerts of this program's rules that no other finding shows, without those of users' jobs."""
    shown = {(finding.id, name) for finding in found for name in finding.where}
    for alert in cluster.monitoring.part("alerts") or []:
        where = alert["where"] or cluster.controller.name
        is_shown = any((kind, where) in shown for kind in alert["findings"].split())
        if not is_shown and alert["actor"] not in ("", Actor.USER.value):
            yield ClusterFinding(
                id="alert-firing",
                severity=alert["severity"],
                where=(where,),
                what=f"the alert {alert['name']} fires: {alert['summary']}. Who must act: {alert['actor']}",
                todo=alert["todo"].replace("STACK", cluster.stack),
                since=_seconds(alert["since"]),
            )


def _seconds(text: str) -> float | None:
    """Return the seconds since the epoch of a time in RFC 3339, which Prometheus prints in UTC; None without one."""
    return datetime.fromisoformat(text[:19]).replace(tzinfo=timezone.utc).timestamp() if text else None
