"""The findings of `status`: those that machines report (scripts/node/judge), and what only this host can see."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone

from cluster.findings import Actor, ClusterFinding, merge_alike
from cluster.observe import status_findings_machines as machines
from cluster.observe import status_findings_nodes as nodes
from cluster.observe.observation import ClusterObservation, MachineObservation
from scripts.node.judge.kinds import FINDING_ALERT, KINDS
from scripts.node.slurm.findings import MachineFinding

CHECKS: tuple[Callable[[ClusterObservation], Iterable[ClusterFinding]], ...] = (
    machines.unreachable,
    machines.late,
    machines.munge_keys,
    machines.clocks,
    machines.cut_off,
    machines.not_set_up,
    nodes.missing,
    machines.outdated,
    machines.older_slurm,
    machines.vulnerable_software,
)
_ORDER = list(KINDS)


def findings(cluster: ClusterObservation) -> list[ClusterFinding]:
    """Return all findings of a cluster, causes before effects, with one for the same fault on several machines."""
    found = [finding for check in CHECKS for finding in check(cluster)]
    causes = nodes.causes(cluster)
    found += [cause for cause in causes.values() if cause]
    reported = [finding for machine in cluster.machines for finding in reported_findings(machine, cluster.stack)]
    found += [finding for finding in reported if finding.id != "node-down" or finding.where[0] not in causes]
    found += firing_alerts(cluster, found)
    return merge_alike(sorted(found, key=lambda finding: _ORDER.index(finding.id)))


def reported_findings(machine: MachineObservation, stack: str) -> Iterator[ClusterFinding]:
    """Yield the findings that a machine reports, with the stack's name in commands."""
    for row in machine.part("findings") or ():
        yield cluster_finding(MachineFinding(**row), stack)


def cluster_finding(finding: MachineFinding, stack: str) -> ClusterFinding:
    """Return a finding with the stack's name in its commands."""
    texts = {name: getattr(finding, name).replace("STACK", stack) for name in ("todo", "note")}
    return ClusterFinding(id=finding.id, where=(finding.where,), what=finding.what, since=finding.since, **texts)


def firing_alerts(cluster: ClusterObservation, found: Iterable[ClusterFinding]) -> Iterator[ClusterFinding]:
    """Yield the firing alerts of this program's rules that no other finding shows, without those of users' jobs."""
    shown = {(finding.id, name) for finding in found for name in finding.where}
    for alert in cluster.monitoring.part("alerts") or []:
        where = alert["where"] or cluster.controller.name
        is_shown = alert["name"] == FINDING_ALERT or any((kind, where) in shown for kind in alert["findings"].split())
        if not is_shown and alert["actor"] not in ("", Actor.USER.value):
            yield ClusterFinding(
                id="alert-firing",
                severity=alert["severity"],
                where=(where,),
                what=f"the alert {alert['name']} fires: {alert['summary']}. Who must act: {alert['actor']}",
                todo=alert["todo"],
                since=_seconds(alert["since"]),
            )


def _seconds(text: str) -> float | None:
    """Return the seconds since the epoch of a time in RFC 3339, which Prometheus prints in UTC; None without one."""
    return datetime.fromisoformat(text[:19]).replace(tzinfo=timezone.utc).timestamp() if text else None
