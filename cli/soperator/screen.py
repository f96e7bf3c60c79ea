"""A status of a cluster of pods as people read it, and as JSON."""

import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from cli import console
from cli.display import status_screen
from cli.display.status_screen import Table
from cli.soperator.ask import Seen
from cluster.observe.health.finding import ClusterFinding
from cluster.platforms.nebius.health import acting
from cluster.platforms.nebius.observation import View


def show(seen: Seen, found: list[ClusterFinding]) -> None:
    """Print the status on standard output."""
    now = time.time()
    status_screen.show_findings(seen.cluster, found, now)
    every = [
        cluster(seen.view, now),
        nodesets(seen.view),
        status_screen.nodes(seen.cluster),
        drained(seen, now),
        status_screen.partitions(seen.cluster),
        status_screen.queue(seen.cluster),
        checks(seen.view, now),
        pods(seen.view, now),
    ]
    for table in filter(None, every):
        console.line()
        console.table(table)


def show_health(seen: Seen, found: list[ClusterFinding]) -> None:
    """Print drained nodes, and the last results of checks."""
    now = time.time()
    status_screen.show_findings(seen.cluster, found, now)
    for table in filter(None, (status_screen.nodes(seen.cluster), drained(seen, now), checks(seen.view, now))):
        console.line()
        console.table(table)


def health_document(seen: Seen, found: list[ClusterFinding]) -> dict[str, Any]:
    """Drained nodes and results of checks as JSON."""
    status = document(seen, found)
    kubernetes = status["kubernetes"]
    return {
        "stack": status["stack"],
        "ok": status["ok"],
        "findings": status["findings"],
        "drained": kubernetes["drained"],
        "checks": kubernetes["checks"],
    }


def document(seen: Seen, found: list[ClusterFinding]) -> dict[str, Any]:
    """The status as JSON."""
    machines = {
        one.name: {"roles": one.roles, "reached": one.reached, "why": one.why, "facts": dict(one.facts)}
        for one in seen.cluster.machines
    }
    view = asdict(seen.view)
    # Of pods that are well there are many, and nothing to say.
    view["pods"] = [row for row in view["pods"] if not row["ready"]]
    view["logs"] = {name: text.splitlines() for name, text in seen.view.logs.items()}
    drained = [
        {"node": node.name, "reason": node.reason, "since": node.since_utc, "actor": actor, "todo": todo}
        for node, actor, todo in acting(seen.cluster, seen.view, now=time.time())
    ]
    return {
        "stack": seen.cluster.stack,
        "ok": not found,
        "findings": [asdict(one) for one in found],
        "machines": machines,
        "kubernetes": {**view, "drained": drained},
    }


def cluster(view: View, now: float) -> Table:
    """The SlurmCluster: its phase, and its conditions."""
    rows = [("SlurmCluster", view.phase or "not there", "-", "")]
    rows += [
        (
            one.type,
            one.status,
            _ago(one.since, now),
            status_screen.cut(": ".join(filter(None, (one.reason, one.message)))),
        )
        for one in view.conditions
    ]
    return [("CLUSTER", "STATE", "FOR", "WHY"), *rows]


def nodesets(view: View) -> Table:
    """Nodesets with the nodes that they should have and that are ready."""
    rows = [(one.name, str(one.wanted), str(one.ready), one.phase or "-") for one in view.nodesets]
    return _headed(("NODESET", "WANTED", "READY", "PHASE"), rows)


def drained(seen: Seen, now: float) -> Table:
    """Drained nodes with who must act."""
    rows = [
        (node.name, _ago(node.since_utc, now), actor, status_screen.cut(node.reason or "-", 60))
        for node, actor, _ in acting(seen.cluster, seen.view, now=now)
    ]
    return _headed(("DRAINED", "FOR", "WHO MUST ACT", "REASON"), rows)


def checks(view: View, now: float) -> Table:
    """Checks with their last results."""
    rows = [
        (one.name, one.result or "never ran", _ago(one.since, now), "suspended" if one.suspended else "-")
        for one in view.checks
    ]
    return _headed(("CHECK", "LAST RESULT", "AGO", "SCHEDULE"), rows)


def pods(view: View, now: float) -> Table:
    """Pods that are not ready."""
    rows = [
        (
            f"{pod.namespace}/{pod.name}",
            pod.phase,
            str(pod.restarts),
            _ago(pod.since, now),
            status_screen.cut(pod.why or "-"),
        )
        for pod in view.pods
        if not pod.ready
    ]
    return _headed(("POD NOT READY", "PHASE", "RESTARTS", "FOR", "WHY"), rows)


def _ago(since: float | None, now: float) -> str:
    return status_screen.ago(now - since) if since else "-"


def _headed(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    found = list(rows)
    return [heading, *found] if found else []
