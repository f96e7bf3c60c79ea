"""What is wrong with a cluster of pods: the worst first, causes before their effects."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cluster.observe.health import ClusterObservation, Finding
from cluster.observe.health.findings import together
from cluster.observe.health.nodes import held
from cluster.observe.nodes import Node
from cluster.platforms.nebius import known_problems
from cluster.platforms.nebius.observe.objects import View
from cluster.platforms.nebius.reasons import Action, action


def findings(seen: ClusterObservation, view: View, *, now: float) -> list[Finding]:
    """What is wrong; empty when all is well."""
    found = [
        *_unread(seen, view),
        *_crashes(seen, view),
        *_cluster(seen, view),
        *_pods(seen, view),
        *_nodesets(seen, view),
        *_slurm(seen),
        *_hosts(seen, view),
        *_nodes(seen, view, now),
        *_checks(seen, view),
        *held(seen),
    ]
    return together(found)


def health_findings(seen: ClusterObservation, view: View, *, now: float) -> list[Finding]:
    """What Soperator's health checks found: nodes that are drained, checks whose last run failed."""
    return together([*_unread(seen, view), *_nodes(seen, view, now), *_checks(seen, view)])


def _unread(seen: ClusterObservation, view: View) -> Iterator[Finding]:
    for what, why in view.unread.items():
        yield Finding(
            id="not-read",
            where=(seen.controller.name,),
            what=f"{what} can't be read over Kubernetes' API: {why}",
            todo=f"./hpc status {seen.stack}",
            note="Findings about what could not be read are missing here.",
        )


def _crashes(seen: ClusterObservation, view: View) -> Iterator[Finding]:
    for name, text in view.logs.items():
        yield from (_known(seen, problem, name) for problem in known_problems.recognized([text]))


def _known(seen: ClusterObservation, problem: known_problems.Problem, name: str, since: float | None = None) -> Finding:
    fixed = f"Soperator {problem.fixed} does not have this problem." if problem.fixed else ""
    return Finding(
        id=f"known-problem-{problem.number}",
        where=(name,),
        what=problem.what,
        todo=problem.todo.replace("STACK", seen.stack).replace("NAME", name),
        note=fixed,
        since=since,
    )


def _cluster(seen: ClusterObservation, view: View) -> Iterator[Finding]:
    if view.available or "SlurmCluster" in view.unread:
        return
    bad = [one for one in view.conditions if one.status == "False"]
    failed = "; ".join(f"{one.type} is {one.status} ({one.reason}: {one.message})" for one in bad)
    yield Finding(
        id="cluster-unavailable",
        where=(seen.controller.name,),
        what=f"the SlurmCluster is {view.phase or 'not there'}" + (f": {failed}" if failed else ""),
        todo=f"./hpc logs {seen.stack} operator",
        since=min((one.since for one in bad if one.since), default=None),
    )


def _pods(seen: ClusterObservation, view: View) -> Iterator[Finding]:
    for pod in view.pods:
        if pod.ready:
            continue
        events = f". Its last events: {'; '.join(pod.events)}" if pod.events else ""
        log = pod.name if pod.namespace == view.namespace else f"{pod.namespace}/{pod.name}"
        yield Finding(
            id="pod-not-ready",
            where=(log,),
            what=f"is not ready ({pod.phase}){f': {pod.why}' if pod.why else ''}{events}",
            todo=f"./hpc logs {seen.stack} {log}",
            since=pod.since,
        )


def _nodesets(seen: ClusterObservation, view: View) -> Iterator[Finding]:
    for one in view.nodesets:
        if one.ready < one.wanted:
            phase = f", phase {one.phase}" if one.phase else ""
            yield Finding(
                id="nodeset-incomplete",
                where=(one.name,),
                what=f"has {one.ready} of {one.wanted} nodes ready{phase}",
                todo=f"./hpc logs {seen.stack} operator --since 1h",
                note="Pods that are not ready are listed here with their events; without any, the node group of "
                "Kubernetes has no instance for them yet.",
            )


def _slurm(seen: ClusterObservation) -> Iterator[Finding]:
    if not seen.controller.reached or seen.slurmctld_answers:
        return
    why = seen.controller.error("slurm", "ping") or (seen.slurm("ping") or {}).get("said", "no answer")
    yield Finding(
        id="slurmctld-down",
        where=(seen.controller.name,),
        what=f"slurmctld does not answer ({why}): no job starts and nobody can ask for one; jobs that run go on",
        todo=f"./hpc logs {seen.stack} slurmctld",
    )


def _hosts(seen: ClusterObservation, view: View) -> Iterator[Finding]:
    pods: dict[str, list[str]] = {}
    for pod in view.pods:
        if any(one.name == pod.name for one in seen.machines):
            pods.setdefault(pod.node, []).append(pod.name)
    for name, conditions in view.hosts.items():
        for one in conditions:
            there = f", where {', '.join(pods[name])} runs" if name in pods else ""
            yield Finding(
                id="host-condition",
                where=(name,),
                what=f"Kubernetes node{there}: {one.type} is {one.status} ({one.reason}: {one.message})",
                todo=f"./hpc logs {seen.stack} operator --since 1h",
                note="Kubernetes replaces the node by itself, unless it is only not Ready.",
                since=one.since,
            )


def _nodes(seen: ClusterObservation, view: View, now: float) -> Iterator[Finding]:
    rows = seen.slurm("nodes") or {}
    readable = "pods" not in view.unread
    gone = set(known_problems.vanished(rows, (pod.name for pod in view.pods))) if readable else set()
    for name, row in rows.items():
        node = Node.of(name, row)
        if name in gone and (node.down or node.drained or node.silent):
            yield Finding(
                id=f"known-problem-{known_problems.VANISHED}",
                where=(name,),
                what=f"has no pod any more, and slurmctld still lists it ({node.word})",
                todo=f"./hpc ssh {seen.stack} controller -- scontrol delete NodeName={name}",
                note="slurmctld keeps dynamic nodes until somebody deletes them.",
            )
        elif node.drained:
            yield from _drained(seen, view, node, now)
        elif node.down:
            reason = f": {node.reason}" if node.reason else ""
            yield Finding(
                id="node-down",
                where=(name,),
                what=f"slurmctld says {node.word}{reason}",
                todo=f"./hpc logs {seen.stack} {name}",
                note=f"Once its pod is ready: ./hpc nodes {seen.stack} resume {name}",
                since=node.since_utc,
            )


def _drained(seen: ClusterObservation, view: View, node: Node, now: float) -> Iterator[Finding]:
    since = node.since_utc
    for problem in known_problems.recognized([node.reason]):
        yield _known(seen, problem, node.name, since)
    ((_, acts),) = actions([node], view.replacement, now=now)
    by = "" if acts.known else f" by {node.by or 'somebody'}"
    yield Finding(
        id="node-drained",
        where=(node.name,),
        what=f"is drained{by}, and takes no new jobs: {node.reason or 'no reason given'}. In words: {acts.what}. "
        f"Who must act: {acts.actor.value}",
        todo=f"./hpc nodes {seen.stack} resume {node.name}",
        note=f"{acts.todo[0].upper()}{acts.todo[1:]}.",
        since=since,
    )


def _checks(seen: ClusterObservation, view: View) -> Iterator[Finding]:
    gates = [
        known_problems.Gate(name=one.name, failed=one.failed, drains=one.drains, done=one.done, needs=one.needs)
        for one in view.checks
    ]
    waiting = known_problems.blocking(gates)
    for one in view.checks:
        if not one.failed:
            continue
        details = f": {'; '.join(one.details)}" if one.details else ""
        found = Finding(
            id="check-failed",
            where=(one.name,),
            what=f"the last run of this check ended as {one.result}{details}",
            todo=f"./hpc logs {seen.stack} {one.name}",
            note="Nodes that it drained are listed here as well." if one.drains else "It drains no node.",
            since=one.since,
        )
        yield from (_known(seen, problem, one.name, one.since) for problem in known_problems.recognized(one.details))
        yield found
        if one.name in waiting:
            yield replace(
                found,
                id=f"known-problem-{known_problems.BRING_UP}",
                what=f"has failed and drains no node, but {', '.join(waiting[one.name])} waits for it and never ran",
                note="Soperator runs a failed check again only at its next time, or when somebody starts it.",
                todo=rerun(view.namespace, one.name),
            )


def rerun(namespace: str, check: str) -> str:
    """The command that runs a check now."""
    return f"kubectl create job --namespace {namespace} --from=cronjob/{check} {check}-again"


def actions(nodes: Iterable[Node], replacement: bool, *, now: float) -> Iterator[tuple[Node, Action]]:  # noqa: FBT001
    """Who must act on each drained node, and what to do. `replacement`: whether the operator may replace nodes."""
    for node in nodes:
        if node.drained:
            since = node.since_utc
            yield node, action(node.reason, None if since is None else now - since, replacement=replacement)


def acting(seen: ClusterObservation, view: View, *, now: float) -> Sequence[tuple[Node, str, str]]:
    """Drained nodes with who must act and what to do, for a table."""
    nodes = [Node.of(name, row) for name, row in (seen.slurm("nodes") or {}).items()]
    return [(node, acts.actor.value, acts.todo) for node, acts in actions(nodes, view.replacement, now=now)]
