"""Observation of a cluster of pods: Kubernetes' objects, from `kubectl get --output=json`, and Slurm's own view.

Kinds of Soperator: api/v1/slurmcluster_types.go, api/v1alpha1/nodeset_types.go and activecheck_types.go of
nebius/soperator 4.1.7. All times are seconds since the epoch.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cluster.platforms.nebius.kubectl import describe_events
from scripts.node.judge.kinds import WATCHDOG_ALERT
from scripts.node.slurm import jobs, nodes
from scripts.node.slurm.output import partition_rows


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition of an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float | None = None


@dataclass(frozen=True, kw_only=True)
class PodState:
    """A pod that has not succeeded."""

    namespace: str
    name: str
    ready: bool
    phase: str
    why: str = ""
    """Kubernetes' reason why it is not ready."""
    container: str = ""
    """The first container that is not ready."""
    restarts: int = 0
    component: str = ""
    node: str = ""
    """Name of its Kubernetes node."""
    since: float | None = None
    events: tuple[str, ...] = ()
    """The last events, the newest last."""


@dataclass(frozen=True, kw_only=True)
class NodeSet:
    """Workers of one kind."""

    name: str
    wanted: int
    """Pods that it should have; of an elastic nodeset the number of nodes that are powered up."""
    ready: int
    phase: str = ""
    most: int | None = None
    """All nodes of an elastic nodeset, also those that are powered down; None for another nodeset."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check that Soperator runs by itself."""

    name: str
    result: str
    """The result of its last run; empty if it has not run."""
    since: float | None = None
    suspended: bool = False
    drains: bool = False
    """True if its failure drains nodes."""
    needs: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    """Failed Slurm jobs of the last run, with the reason."""

    @property
    def failed(self) -> bool:
        return self.result in ("Failed", "Error")


@dataclass(frozen=True, kw_only=True)
class View:
    """The part of an observation that Kubernetes' API returns."""

    namespace: str = ""
    """The cluster's own namespace, which has its name."""
    phase: str = ""
    """The phase of the SlurmCluster; empty if there is none."""
    conditions: tuple[Condition, ...] = ()
    nodesets: tuple[NodeSet, ...] = ()
    checks: tuple[Check, ...] = ()
    pods: tuple[PodState, ...] = ()
    hosts: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    """The conditions of Kubernetes nodes that show a problem, by the node's name."""
    replacement: bool = False
    """True if the operator may replace nodes."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """The last lines of crashed containers, by the name of their pod."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """The parts that could not be read, and why."""


Object = Mapping[str, Any]
_COMPONENT = "app.kubernetes.io/component"
HOSTS: Mapping[str, tuple[str, str]] = {
    "NebiusMaintenanceScheduled": (
        "Nebius has scheduled maintenance of its host",
        (
            "Soperator drains the Slurm node there, waits for its jobs and has the instance recreated elsewhere. It "
            "leaves the controller's node to Nebius: slurmctld starts again with its state, and jobs run on."
        ),
    ),
    "SoperatorChecksNodeMaintenance": (
        "no job is left there before the maintenance of its host",
        "Soperator deletes the Kubernetes node, and Nebius creates its instance elsewhere.",
    ),
    "SoperatorChecksNodeDegraded": ("its Slurm node is degraded", "Soperator reboots it once no job is left there."),
    "HardwareIssuesSuspected": (
        "Soperator suspects broken hardware",
        "Kubernetes recreates the instance; Soperator has drained its Slurm node before.",
    ),
    "Ready": ("it is not ready", "Soperator deletes a node that stays so, and Kubernetes creates another one."),
}
"""The meaning of each condition of Kubernetes nodes, and who acts (soperatorchecks of nebius/soperator 4.1.7:
internal/controller/soperatorchecks/k8s_nodes_controller.go and slurm_nodes_controller.go)."""


def parse_time(text: object) -> float | None:
    """Parse a time of Kubernetes, such as 2026-11-22T05:00:00Z; None if it is none."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def conditions(item: Object) -> tuple[Condition, ...]:
    """Return the conditions of an object's status."""
    rows = (item.get("status") or {}).get("conditions") or ()
    return tuple(
        Condition(
            type=str(row.get("type", "")),
            status=str(row.get("status", "")),
            reason=str(row.get("reason") or ""),
            message=str(row.get("message") or ""),
            since=parse_time(row.get("lastTransitionTime")),
        )
        for row in rows
    )


def pods(items: Iterable[Object], events: Sequence[Object]) -> tuple[PodState, ...]:
    """Return the pods that have not succeeded, each with its last events."""
    return tuple(_pod(item, events) for item in items if (item.get("status") or {}).get("phase") != "Succeeded")


def _pod(item: Object, events: Sequence[Object]) -> PodState:
    meta, status = item["metadata"], item.get("status") or {}
    by_type = {condition.type: condition for condition in conditions(item)}
    ready = by_type.get("Ready")
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    stopped = next((row for row in containers if _is_stopped(row)), None)
    labels = meta.get("labels") or {}
    return PodState(
        namespace=meta["namespace"],
        name=meta["name"],
        ready=bool(ready and ready.status == "True"),
        phase=str(status.get("phase", "")),
        why=_why_not_ready(by_type, stopped, status),
        container=stopped["name"] if stopped else "",
        restarts=sum(int(row.get("restartCount") or 0) for row in containers),
        component=labels.get(_COMPONENT, ""),
        node=(item.get("spec") or {}).get("nodeName", ""),
        since=(ready.since if ready else None) or parse_time(meta.get("creationTimestamp")),
        events=_last_events(events, meta["namespace"], meta["name"]),
    )


def _is_stopped(container: Object) -> bool:
    """Return whether a container is not ready, and has not succeeded."""
    ended = (container.get("state") or {}).get("terminated") or {}
    return ended.get("exitCode") != 0 and not container.get("ready")


def _why_not_ready(by_type: Mapping[str, Condition], stopped: Object | None, status: Object) -> str:
    if (scheduled := by_type.get("PodScheduled")) and scheduled.status == "False":
        return f"{scheduled.reason}: {scheduled.message}"
    if stopped:
        state = stopped.get("state") or {}
        if waiting := state.get("waiting"):
            return ": ".join(filter(None, [waiting.get("reason", ""), waiting.get("message", "")]))
        if ended := state.get("terminated"):
            return f"{ended.get('reason', 'ended')}, exit code {ended.get('exitCode')}"
        return f"container {stopped['name']} is not ready"
    return str(status.get("reason") or status.get("message") or "")


def _last_events(events: Sequence[Object], namespace: str, pod: str) -> tuple[str, ...]:
    """Return reason and message of the last three events of a pod, the newest last."""
    own = [
        event
        for event in events
        if (about := event.get("involvedObject") or {}).get("name") == pod
        and about.get("kind") == "Pod"
        and about.get("namespace", namespace) == namespace
    ]
    return tuple(describe_events(own, 3))


def nodesets(items: Iterable[Object]) -> tuple[NodeSet, ...]:
    """Return the NodeSets; NodeSetPowerStates have the active nodes of elastic ones."""
    rows = list(items)
    powered = {
        item["metadata"]["name"]: len((item.get("spec") or {}).get("activeNodes") or ())
        for item in rows
        if item["kind"] == "NodeSetPowerState"
    }
    return tuple(_nodeset(item, powered) for item in rows if item["kind"] == "NodeSet")


def _nodeset(item: Object, powered: Mapping[str, int]) -> NodeSet:
    name, spec, status = item["metadata"]["name"], item.get("spec") or {}, item.get("status") or {}
    count, elastic = int(spec.get("replicas") or 0), bool(spec.get("ephemeralNodes"))
    return NodeSet(
        name=name,
        wanted=powered.get(name, 0) if elastic else count,
        ready=int(status.get("replicas") or 0),
        phase=str(status.get("phase") or ""),
        most=count if elastic else None,
    )


def check(item: Object) -> Check:
    """Return an ActiveCheck."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    slurm, pods = status.get("slurmJobsStatus") or {}, status.get("k8sJobsStatus") or {}
    bad = [*(slurm.get("lastRunFailJobsAndReasons") or ()), *(slurm.get("lastRunErrorJobsAndReasons") or ())]
    # A check that submits Slurm jobs has both results; that of its pod says whether it could submit them.
    ran = slurm if spec.get("checkType") == "slurmJob" and slurm.get("lastRunStatus") else {}
    return Check(
        name=item["metadata"]["name"],
        result=str(ran.get("lastRunStatus") or pods.get("lastJobStatus") or ""),
        since=parse_time((ran or pods).get("lastTransitionTime")),
        suspended=bool(spec.get("suspend")),
        drains=bool((spec.get("failureReactions") or {}).get("drainSlurmNode")),
        needs=tuple(spec.get("dependsOn") or ()),
        details=tuple(f"job {row.get('jobID', '?')}: {row.get('reason', '')}" for row in bad),
    )


def hosts(items: Iterable[Object]) -> dict[str, tuple[Condition, ...]]:
    """Return the conditions of Kubernetes nodes that show a problem, by the node's name."""
    return {
        item["metadata"]["name"]: tuple(
            condition
            for condition in conditions(item)
            if condition.type in HOSTS and (condition.status == "True") == (condition.type != "Ready")
        )
        for item in items
    }


def allows_replacement(deployments: Iterable[Object]) -> bool:
    """Return whether the operator may replace nodes, by an argument of soperatorchecks (helm/soperatorchecks)."""
    return any(
        argument == "--enable-node-replacement=true"
        for item in deployments
        for container in item["spec"]["template"]["spec"]["containers"]
        for argument in container.get("args") or ()
    )


SECONDS = 10
"""Timeout of each command, shorter than slurmctld's own: a healthy one answers within it."""
ACCOUNTING: Mapping[str, str] = {
    "users": "sacctmgr --noheader --parsable2 show user format=user,defaultaccount",
    "accounts": "sacctmgr --noheader --parsable2 show account format=account",
    "qos": "sacctmgr --noheader --parsable2 show qos format=name",
}
"""Commands that print the database's rows for `drift`, by the name of their part."""


def script(mark: str, *, more: Mapping[str, str] | None = None) -> str:
    """Return the script for root's shell. `mark` is random, so that no name of a job can contain it. `more` are further
    commands, by the name of their part."""
    commands = {
        "nodes": shlex.join(nodes.COMMAND),
        "partitions": "scontrol --oneliner --all show partition",
        "jobs": shlex.join(jobs.command(mark, "--sort=-t,-p")),
        **(more or {}),
    }
    printed = f'printf \'%s %s %s\\n%s\\n\' {_start(mark)} "$name" "$?" "$out"'
    lines = [
        # Slurm prints local times without their zone.
        "export TZ=UTC SLURM_BITSTR_LEN=0",
        f'part() {{ name=$1; shift; out=$(timeout {SECONDS} "$@" 2>&1); {printed}; }}',
        "part ping scontrol ping",
        # Without a daemon each command would retry for many seconds.
        'case "$out" in *" is UP"*) ;; *) exit 0 ;; esac',
        *(f"part {name} {command}" for name, command in commands.items()),
    ]
    return "\n".join(lines)


def parse_output(text: str, mark: str) -> dict[str, Any]:
    """Parse the output of `script`: the parts by name, as a machine's observation has them, or {"error": why}."""
    parts: dict[str, Any] = {}
    for section in text.split(f"{_start(mark)} ")[1:]:
        heading, _, body = section.partition("\n")
        name, _, code = heading.partition(" ")
        if code != "0" and name != "ping":
            parts[name] = {"error": " ".join(body.split())[:300] or f"exit code {code}"}
        else:
            parts[name] = _parse_part(name, body.rstrip("\n"), mark)
    return parts


def _parse_part(name: str, body: str, mark: str) -> Any:  # noqa: ANN401 - any JSON value
    if name == "ping":
        return {"up": " is UP" in body, "said": " ".join(body.split())}
    if name == "nodes":
        return nodes.observed_rows(body)
    if name == "partitions":
        return partition_rows(body)
    if name == "jobs":
        return jobs.summarize(jobs.parse(body, mark))
    return [line.split("|") for line in body.splitlines() if line]


def _start(mark: str) -> str:
    return f"part-{mark}"


def alerts(text: str) -> list[dict[str, str]]:
    """Return the firing alerts of Alertmanager's API (api/v2/alerts), also of other rules, as machines report them:
    without the watchdog."""
    try:
        rows = json.loads(text)
    except ValueError:
        return []
    return [
        {
            "name": row["labels"].get("alertname", ""),
            "where": next((row["labels"][label] for label in ("node", "instance") if label in row["labels"]), ""),
            **{key: row["labels"].get(key, "") for key in ("severity", "actor")},
            "since": row.get("startsAt", ""),
            **{key: row["annotations"].get(key, "") for key in ("summary", "todo", "findings")},
        }
        for row in rows
        if row["labels"].get("alertname") != WATCHDOG_ALERT
    ]
