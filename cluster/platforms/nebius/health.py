"""Health of a cluster of pods: findings, known problems, and who has to act on drained nodes.

Numbers of known problems are those of docs/reference/nebius-known-problems.md. Problems that the program prevents or
waits for are not here. Reasons: nebius/soperator 4.1.7, internal/consts/slurm.go (prefixes),
internal/controller/soperatorchecks/slurm_nodes_controller.go (the operator's actions), helm/slurm-cluster/slurm_scripts
(checks of jobs and nodes), helm/soperator-activechecks/values.yaml, docs/active-checks.md.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.catalog.floors import vulnerable
from cluster.findings import Actor, ClusterFinding, merge_alike
from cluster.observe.observation import ClusterObservation
from cluster.observe.status_findings import cluster_finding, firing_alerts
from cluster.platforms.nebius.names import AVAILABLE
from cluster.platforms.nebius.observation import HOSTS, Check, View
from scripts.node.slurm.findings import held
from scripts.node.slurm.nodes import Node


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A known problem that a text shows."""

    number: int
    symptom: re.Pattern[str]
    """A pattern of a line of a log, a reason or a message of a check."""
    what: str
    """A sentence without its full stop, which follows the name of a pod or node."""
    todo: str
    """A command, with STACK and NAME as placeholders; or what to do, in words."""
    source: str


PROBLEMS: Sequence[Problem] = (
    Problem(
        number=7,
        symptom=re.compile(
            r"couldn't find libnvidia-ml\.so library|libnvidia-ml\.so(\.1)?: cannot open shared object|"
            r"load library failed: libnvidia-ml\.so"
        ),
        what="containers with GPUs find no NVIDIA libraries: the jail's ld.so.cache has none of them",
        # On a node with GPUs: elsewhere the jail has placeholders in place of the libraries, which ldconfig skips
        # (images/common/scripts/complement_jail.sh of 4.1.7).
        todo="./hpc run STACK -- srun --nodes=1 --gpus=1 ldconfig",
        source="soperator issue 2468",
    ),
    Problem(
        number=9,
        symptom=re.compile(
            r"Switch configuration \S+ has invalid child \(\S*?[0-9]{19,}\)|"
            r"Switch configuration \S*?[0-9]{19,} has invalid child"
        ),
        what="slurmctld does not start: names of InfiniBand switches end in more digits than Slurm can read",
        todo="set slurm.topology: none in the stack file, then: ./hpc up STACK",
        source="soperator pull request 2623",
    ),
    Problem(
        number=14,
        symptom=re.compile(r"\[user_problem\] boot_disk_full|of node boot disk is used"),
        what="its boot disk is full of containers and caches, so it takes no jobs",
        todo="./hpc ssh STACK NAME -- 'enroot list; docker ps --all; /opt/soperator_utils/fs_usage.sh -l'",
        source="soperator issue 1468; helm/slurm-cluster/slurm_scripts/boot_disk_full.sh",
    ),
)
BRING_UP, VANISHED = 16, 17
"""Numbers of the problems that objects show and no texts: see `blocking_checks`; and nodes that slurmctld lists without
a pod after a nodeset became smaller, because it keeps dynamic nodes until they are deleted (docs/limitations.md of
soperator)."""


def recognize_problems(texts: Iterable[str]) -> Iterator[Problem]:
    """Yield the known problems that the texts show, each once."""
    text = "\n".join(texts)
    yield from (problem for problem in PROBLEMS if problem.symptom.search(text))


def blocking_checks(checks: Sequence[Check]) -> dict[str, tuple[str, ...]]:
    """Return failed checks that drain no node, with the checks that wait for them and have never run (problem 16).

    Soperator runs checks in the order of `dependsOn`, and repeats none: a check that fails for a temporary reason
    blocks all that depend on it (pull request 2132, issue 1203).
    """
    names = [check.name for check in checks if check.failed and not check.drains]
    waiting = {
        name: tuple(check.name for check in checks if name in check.needs and check.result != "Complete")
        for name in names
    }
    return {name: dependents for name, dependents in waiting.items() if dependents}


OPERATOR_SECONDS = 2 * 3600
"""Time for the operator program and Kubernetes' auto repair, which replace a node within an hour."""


@dataclass(frozen=True)
class DrainAdvice:
    """The advice on a drained node: who has to act, and how."""

    actor: Actor
    what: str
    """The reason why it is drained, as a clause."""
    todo: str
    """The actor's next step."""
    known: bool = True
    """True if the reason is one of Soperator's."""
    replaces: bool = False
    """True if the operator acts only where it may replace nodes (checks.manager.enableNodeReplacement of
    helm-soperatorchecks, off unless it is set)."""


# The first match holds, so a longer prefix stands before its own prefix.
REASONS: Mapping[str, DrainAdvice] = {
    "Kill task failed": DrainAdvice(
        Actor.OPERATOR,
        "processes of a job did not end when it was killed",
        "it reboots the node and resumes it",
    ),
    "[compute_maintenance] node replacement process": DrainAdvice(
        Actor.OPERATOR,
        "Nebius has scheduled maintenance of its host, and the node is being replaced",
        "it waits for the jobs, has the instance recreated and resumes the node",
    ),
    "[compute_maintenance] node reboot process": DrainAdvice(
        Actor.OPERATOR,
        "the node is being rebooted",
        "it waits for the jobs, reboots the node and resumes it",
    ),
    "[compute_maintenance]": DrainAdvice(
        Actor.OPERATOR,
        "Nebius has scheduled maintenance of its host",
        "it resumes the node after the maintenance",
    ),
    "[hardware_problem]": DrainAdvice(
        Actor.OPERATOR,
        "the extensive check found broken hardware",
        "it has the instance recreated once the node is idle, and resumes the node",
        replaces=True,
    ),
    "[node_problem]": DrainAdvice(
        Actor.OPERATOR,
        "a health check of the node failed",
        "it checks the node again, or has its instance recreated, and resumes the node",
        replaces=True,
    ),
    "[user_problem]": DrainAdvice(
        Actor.USER,
        "users' processes, files or containers hold what jobs need",
        "remove what the reason names; the next health check, within minutes, resumes the node",
    ),
}
"""Actions by the prefix of a reason, without quotes."""


def action(reason: str, seconds: float | None, *, replacement: bool) -> DrainAdvice:
    """Return the action for a node that is drained with this reason for so many seconds (None: unknown). `replacement`:
    whether the operator may replace nodes."""
    text = reason.strip().strip("\"'")
    known = next((action for prefix, action in REASONS.items() if text.startswith(prefix)), None)
    if known is None:
        what = "somebody has drained it" if text else "it is drained, and no reason is given"
        return DrainAdvice(Actor.ADMIN, what, "resume it once the reason is gone", known=False)
    if known.actor is Actor.OPERATOR and known.replaces and not replacement:
        todo = "the operator program may not replace nodes here: ask for another host, or resume it once it is well"
        return replace(known, actor=Actor.SUPPORT, todo=todo)
    if known.actor is Actor.OPERATOR and seconds is not None and seconds > OPERATOR_SECONDS:
        todo = f"the operator program should have acted by now ({known.todo}); ask why it has not"
        return replace(known, actor=Actor.SUPPORT, todo=todo)
    return known


def findings(seen: ClusterObservation, view: View, *, now: float) -> list[ClusterFinding]:
    """Return all findings of a cluster; none if all is well."""
    rows = [
        *_unread(seen, view),
        *(_known(seen, problem, name) for name, text in view.logs.items() for problem in recognize_problems([text])),
        *_cluster(seen, view),
        *_pods(seen, view),
        *_nodesets(seen, view),
        *_slurm(seen),
        *_software(seen),
        *_hosts(seen, view),
        *_nodes(seen, view, now),
        *_checks(seen, view),
        *(cluster_finding(row, seen.stack) for row in held(seen.controller.name, seen.slurm("jobs"))),
    ]
    return merge_alike([*rows, *firing_alerts(seen, rows)])


def health_findings(seen: ClusterObservation, view: View, *, now: float) -> list[ClusterFinding]:
    """Return the findings of health checks of Soperator and Nebius: hosts, drained nodes, failed checks."""
    return merge_alike([*_unread(seen, view), *_hosts(seen, view), *_nodes(seen, view, now), *_checks(seen, view)])


def _unread(seen: ClusterObservation, view: View) -> Iterator[ClusterFinding]:
    for what, why in view.unread.items():
        yield ClusterFinding(
            id="not-read",
            where=(seen.controller.name,),
            what=f"{what} can't be read over Kubernetes' API: {why}",
            todo=f"./hpc status {seen.stack}",
            note="Findings about what could not be read are missing here.",
        )


def _known(seen: ClusterObservation, problem: Problem, name: str, since: float | None = None) -> ClusterFinding:
    return ClusterFinding(
        id=f"known-problem-{problem.number}",
        where=(name,),
        what=problem.what,
        todo=problem.todo.replace("STACK", seen.stack).replace("NAME", name),
        since=since,
    )


def _cluster(seen: ClusterObservation, view: View) -> Iterator[ClusterFinding]:
    if view.phase == AVAILABLE or "SlurmCluster" in view.unread:
        return
    bad = [condition for condition in view.conditions if condition.status == "False"]
    failed = "; ".join(
        f"{condition.type} is {condition.status} ({condition.reason}: {condition.message})" for condition in bad
    )
    yield ClusterFinding(
        id="cluster-unavailable",
        where=(seen.controller.name,),
        what=f"the SlurmCluster is {view.phase or 'not there'}" + (f": {failed}" if failed else ""),
        todo=f"./hpc logs {seen.stack} operator",
        since=min((condition.since for condition in bad if condition.since), default=None),
    )


def _powering(seen: ClusterObservation) -> set[str]:
    """Return elastic nodes that start or stop: their pods come and go until ResumeTimeout or SuspendTimeout."""
    return {node.name for node in (seen.slurm_nodes or {}).values() if not node.down and (node.booting or node.asleep)}


def _pods(seen: ClusterObservation, view: View) -> Iterator[ClusterFinding]:
    powering = _powering(seen)
    for pod in view.pods:
        if pod.ready or pod.name in powering:
            continue
        events = f". Its last events: {'; '.join(pod.events)}" if pod.events else ""
        log = pod.name if pod.namespace == view.namespace else f"{pod.namespace}/{pod.name}"
        yield ClusterFinding(
            id="pod-not-ready",
            where=(log,),
            what=f"is not ready ({pod.phase}){f': {pod.why}' if pod.why else ''}{events}",
            todo=f"./hpc logs {seen.stack} {log}",
            since=pod.since,
        )


def _nodesets(seen: ClusterObservation, view: View) -> Iterator[ClusterFinding]:
    powering = _powering(seen)
    for nodeset in view.nodesets:
        starting = sum(name.rpartition("-")[0] == nodeset.name for name in powering)
        if nodeset.ready < nodeset.wanted - starting:
            phase = f", phase {nodeset.phase}" if nodeset.phase else ""
            yield ClusterFinding(
                id="nodeset-incomplete",
                where=(nodeset.name,),
                what=f"has {nodeset.ready} of {nodeset.wanted} nodes ready{phase}",
                todo=f"./hpc logs {seen.stack} operator --since 1h",
                note="Pods that are not ready are listed here with their events; without any, the node group of "
                "Kubernetes has no instance for them yet.",
            )


def _slurm(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    if not seen.controller.reached or seen.slurmctld_answers:
        return
    why = seen.controller.error("slurm", "ping") or (seen.slurm("ping") or {}).get("said", "no answer")
    yield ClusterFinding(
        id="slurmctld-down",
        where=(seen.controller.name,),
        what=f"slurmctld does not answer ({why}): no job starts and nobody can ask for one; jobs that run go on",
        todo=f"./hpc logs {seen.stack} slurmctld",
    )


def _software(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield the nodes whose slurmd, by the version with which it registered, is below the security floor."""
    for name, node in (seen.slurm_nodes or {}).items():
        if node.off:
            continue  # the version of its last pod
        if found := [*vulnerable({"slurm": node.version.partition("-")[0]})]:
            yield ClusterFinding(
                id="vulnerable",
                where=(name,),
                what=f"runs software with published vulnerabilities: {'; '.join(found)}",
                todo=f"./hpc preview {seen.stack}",
                note="Another release of Soperator (nebius.soperator.version) brings another Slurm.",
            )


def _hosts(seen: ClusterObservation, view: View) -> Iterator[ClusterFinding]:
    pods: dict[str, list[str]] = {}
    for pod in view.pods:
        if any(machine.name == pod.name for machine in seen.machines):
            pods.setdefault(pod.node, []).append(pod.name)
    for name, conditions in view.hosts.items():
        for condition in conditions:
            its_pods = f", where {', '.join(pods[name])} runs" if name in pods else ""
            words, note = HOSTS[condition.type]
            yield ClusterFinding(
                id="host-condition",
                where=(name,),
                what=f"Kubernetes node{its_pods}: {condition.type} is {condition.status} "
                f"({condition.reason}: {condition.message}). In words: {words}",
                todo=f"./hpc logs {seen.stack} operator --since 1h",
                note=note,
                since=condition.since,
            )


def _nodes(seen: ClusterObservation, view: View, now: float) -> Iterator[ClusterFinding]:
    elastic = {f"{nodeset.name}-{index}" for nodeset in view.nodesets for index in range(nodeset.most or 0)}
    current = {pod.name for pod in view.pods} | elastic
    for node in (seen.slurm_nodes or {}).values():
        name = node.name
        if name not in current and "pods" not in view.unread and (node.down or node.drained or node.silent):
            yield ClusterFinding(
                id=f"known-problem-{VANISHED}",
                where=(name,),
                what=f"has no pod any more, and slurmctld still lists it ({node.word})",
                todo=f"./hpc ssh {seen.stack} controller -- scontrol delete NodeName={name}",
                note="slurmctld keeps dynamic nodes until somebody deletes them.",
            )
        elif node.drained:
            yield from _drained(seen, view, node, now)
        elif node.down and node.asleep:
            yield ClusterFinding(
                id="node-unstarted",
                where=(name,),
                what=f"is {node.word}: it did not come when a job needed it, and Slurm asks for it no more"
                + (f" ({node.reason})" if node.reason else ""),
                todo=f"./hpc nodes {seen.stack} resume {name}",
                note="Nebius may have had no room: the events of its node group in Nebius's console show it. The job "
                "was requeued.",
                since=node.since_utc,
            )
        elif node.down:
            reason = f": {node.reason}" if node.reason else ""
            yield ClusterFinding(
                id="node-down",
                where=(name,),
                what=f"slurmctld says {node.word}{reason}",
                todo=f"./hpc logs {seen.stack} {name}",
                note=f"Once its pod is ready: ./hpc nodes {seen.stack} resume {name}",
                since=node.since_utc,
            )


def _drained(seen: ClusterObservation, view: View, node: Node, now: float) -> Iterator[ClusterFinding]:
    since = node.since_utc
    for problem in recognize_problems([node.reason]):
        yield _known(seen, problem, node.name, since)
    advice = action_on(node, view.replacement, now=now)
    by = "" if advice.known else f" by {node.by or 'somebody'}"
    yield ClusterFinding(
        id="node-drained",
        where=(node.name,),
        what=f"is drained{by}, and takes no new jobs: {node.reason or 'no reason given'}. In words: {advice.what}. "
        f"Who must act: {advice.actor.value}",
        # If the operator acts, a resumed node would take jobs that end with the instance.
        todo=f"./hpc logs {seen.stack} operator --since 1h"
        if advice.actor is Actor.OPERATOR
        else f"./hpc nodes {seen.stack} resume {node.name}",
        note=f"{advice.todo[0].upper()}{advice.todo[1:]}.",
        since=since,
    )


def _checks(seen: ClusterObservation, view: View) -> Iterator[ClusterFinding]:
    waiting = blocking_checks(view.checks)
    for check in view.checks:
        if not check.failed:
            continue
        details = f": {'; '.join(check.details)}" if check.details else ""
        failed = ClusterFinding(
            id="check-failed",
            where=(check.name,),
            what=f"the last run of this check ended as {check.result}{details}",
            todo=f"./hpc logs {seen.stack} {check.name}",
            note="Nodes that it drained are listed here as well." if check.drains else "It drains no node.",
            since=check.since,
        )
        yield from (_known(seen, problem, check.name, check.since) for problem in recognize_problems(check.details))
        yield failed
        if check.name in waiting:
            yield replace(
                failed,
                id=f"known-problem-{BRING_UP}",
                what=f"has failed and drains no node, but {', '.join(waiting[check.name])} waits for it and never ran",
                note="Soperator runs a failed check again only at its next time, or when somebody starts it.",
                todo=f"kubectl create job --namespace {view.namespace} --from=cronjob/{check.name} {check.name}-again",
            )


def action_on(node: Node, replacement: bool, *, now: float) -> DrainAdvice:  # noqa: FBT001
    """Return the action for a drained node. `replacement`: whether the operator may replace nodes."""
    # While jobs run there, everybody waits for them.
    since = None if node.word.startswith("draining") else node.since_utc
    return action(node.reason, None if since is None else now - since, replacement=replacement)


def drained_nodes(seen: ClusterObservation, view: View, *, now: float) -> list[tuple[Node, DrainAdvice]]:
    """Return the drained nodes with the action for each."""
    drained = (node for node in (seen.slurm_nodes or {}).values() if node.drained)
    return [(node, action_on(node, view.replacement, now=now)) for node in drained]
