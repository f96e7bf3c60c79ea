"""Reads Kubernetes' objects of a cluster, as `kubectl get --output=json` prints them.

Kinds of Soperator: api/v1/slurmcluster_types.go, api/v1alpha1/nodeset_types.go and activecheck_types.go of
nebius/soperator 4.1.7.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from cluster.platforms.nebius.kubectl import last_lines
from cluster.platforms.nebius.observe.objects import Check, Condition, NodeSet, Pod

Object = Mapping[str, Any]
_COMPONENT = "app.kubernetes.io/component"
HOST_PROBLEMS = (
    "HardwareIssuesSuspected",
    "NebiusMaintenanceScheduled",
    "SoperatorChecksNodeDegraded",
    "SoperatorChecksNodeMaintenance",
)
"""Conditions of Kubernetes nodes that Soperator and Nebius set (internal/consts/conditions.go)."""


def moment(text: object) -> float | None:
    """A time of Kubernetes, e.g. 2026-11-22T05:00:00Z; None where it is none."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def conditions(given: Object) -> tuple[Condition, ...]:
    """The conditions of an object's status."""
    rows = (given.get("status") or {}).get("conditions") or ()
    return tuple(
        Condition(
            type=str(row.get("type", "")),
            status=str(row.get("status", "")),
            reason=str(row.get("reason") or ""),
            message=str(row.get("message") or ""),
            since=moment(row.get("lastTransitionTime")),
        )
        for row in rows
    )


def pods(items: Iterable[Object], events: Sequence[Object]) -> tuple[Pod, ...]:
    """Pods, but for those of jobs that have ended; each with its last events."""
    return tuple(_pod(item, events) for item in items if (item.get("status") or {}).get("phase") != "Succeeded")


def _pod(item: Object, events: Sequence[Object]) -> Pod:
    meta, status = item["metadata"], item.get("status") or {}
    known = {one.type: one for one in conditions(item)}
    ready = known.get("Ready")
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    stopped = next((row for row in containers if _stopped(row)), None)
    labels = meta.get("labels") or {}
    return Pod(
        namespace=meta["namespace"],
        name=meta["name"],
        ready=bool(ready and ready.status == "True"),
        phase=str(status.get("phase", "")),
        why=_why(known, stopped, status),
        container=stopped["name"] if stopped else "",
        restarts=sum(int(row.get("restartCount") or 0) for row in containers),
        component=labels.get(_COMPONENT, ""),
        node=(item.get("spec") or {}).get("nodeName", ""),
        since=(ready.since if ready else None) or moment(meta.get("creationTimestamp")),
        events=last_events(events, meta["namespace"], "Pod", meta["name"]),
    )


def _stopped(row: Object) -> bool:
    state = row.get("state") or {}
    done = (state.get("terminated") or {}).get("exitCode") == 0
    return not done and not row.get("ready")


def _why(known: Mapping[str, Condition], stopped: Object | None, status: Object) -> str:
    if (scheduled := known.get("PodScheduled")) and scheduled.status == "False":
        return f"{scheduled.reason}: {scheduled.message}"
    if stopped:
        state = stopped.get("state") or {}
        if waiting := state.get("waiting"):
            return ": ".join(filter(None, [waiting.get("reason", ""), waiting.get("message", "")]))
        if ended := state.get("terminated"):
            return f"{ended.get('reason', 'ended')}, exit code {ended.get('exitCode')}"
        return f"container {stopped['name']} is not ready"
    return str(status.get("reason") or status.get("message") or "")


def last_events(events: Sequence[Object], namespace: str, kind: str, name: str, *, count: int = 3) -> tuple[str, ...]:
    """The last events of an object: their reasons and messages, the newest last."""
    mine = [
        one
        for one in events
        if (about := one.get("involvedObject") or {}).get("name") == name
        and about.get("kind") == kind
        and about.get("namespace", namespace) == namespace
    ]
    return tuple(last_lines(mine, count))


def nodesets(items: Iterable[Object]) -> tuple[NodeSet, ...]:
    """NodeSets."""
    return tuple(
        NodeSet(
            name=item["metadata"]["name"],
            wanted=int((item.get("spec") or {}).get("replicas") or 0),
            ready=int((item.get("status") or {}).get("replicas") or 0),
            phase=str((item.get("status") or {}).get("phase") or ""),
        )
        for item in items
    )


def checks(items: Iterable[Object]) -> tuple[Check, ...]:
    """ActiveChecks."""
    return tuple(map(_active, items))


def _active(item: Object) -> Check:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    slurm, pods = status.get("slurmJobsStatus") or {}, status.get("k8sJobsStatus") or {}
    bad = [*(slurm.get("lastRunFailJobsAndReasons") or ()), *(slurm.get("lastRunErrorJobsAndReasons") or ())]
    # A check that submits Slurm jobs has both: the first is whether they could be submitted.
    ran = slurm if spec.get("checkType") == "slurmJob" and slurm.get("lastRunStatus") else {}
    return Check(
        name=item["metadata"]["name"],
        result=str(ran.get("lastRunStatus") or pods.get("lastJobStatus") or ""),
        since=moment((ran or pods).get("lastTransitionTime")),
        suspended=bool(spec.get("suspend")),
        drains=bool((spec.get("failureReactions") or {}).get("drainSlurmNode")),
        needs=tuple(spec.get("dependsOn") or ()),
        details=tuple(f"job {row.get('jobID', '?')}: {row.get('reason', '')}" for row in bad),
    )


def hosts(items: Iterable[Object]) -> dict[str, tuple[Condition, ...]]:
    """Kubernetes nodes by name, with the conditions that say that something is wrong."""
    return {
        item["metadata"]["name"]: tuple(
            one
            for one in conditions(item)
            if (one.type in HOST_PROBLEMS and one.status == "True") or (one.type == "Ready" and one.status != "True")
        )
        for item in items
    }


def may_replace(deployments: Iterable[Object]) -> bool:
    """Whether the operator may replace nodes: an argument of soperatorchecks (helm/soperatorchecks/templates)."""
    return any(
        argument == "--enable-node-replacement=true"
        for item in deployments
        for container in item["spec"]["template"]["spec"]["containers"]
        for argument in container.get("args") or ()
    )
