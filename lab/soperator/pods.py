"""What a scheduler and kubelets do for pods that controllers create: assign them to nodes, run them, end them.

Nothing runs in them: they are operators and Jobs of charts. Pods of Slurm are `slurm_pods`'s.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.soperator.kube import Kube, Object

SLURM = "rehearsal/slurm"
"""Label of the pods that stand for machines."""


def now() -> str:
    """The time, as Kubernetes writes it."""
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_others(kube: Kube, nodes: Sequence[Object], *, fail: Iterable[str] = ()) -> None:
    """Bring every pod that is not Slurm's one step further. Pods of the Jobs in `fail` (by name) fail."""
    failing = set(fail)
    for pod in kube.list("v1", "Pod", labels=f"!{SLURM}"):
        _advance(kube, pod, nodes, failing)
    for pod in kube.list("v1", "Pod", labels=SLURM):
        if "deletionTimestamp" in pod["metadata"]:
            kube.delete(pod)


def _advance(kube: Kube, pod: Object, nodes: Sequence[Object], failing: set[str]) -> None:
    if "deletionTimestamp" in pod["metadata"]:
        kube.delete(pod)
    elif not pod["spec"].get("nodeName"):
        node = _node(pod, nodes)
        if node:
            kube.bind(pod, node)
    elif pod["status"].get("phase") == "Pending":
        kube.set_status(pod, running(pod))
    elif pod["status"].get("phase") == "Running" and pod["spec"].get("restartPolicy") != "Always":
        job = pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name")
        kube.set_status(pod, _ended(pod, code=1 if job in failing else 0))


def _node(pod: Object, nodes: Sequence[Object]) -> str:
    """Where a pod goes: a DaemonSet's has its node as an affinity, the others go to the first."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    for term in terms:
        for field in term.get("matchFields", ()):
            return str(field["values"][0])
    return str(nodes[0]["metadata"]["name"]) if nodes else ""


def running(pod: Object, address: str = "127.0.0.1") -> Mapping[str, Any]:
    """The status of a pod whose containers are ready."""
    started = pod["status"].get("startTime") or now()
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": started,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": started} for kind in kinds],
        "containerStatuses": [
            _container(one, {"running": {"startedAt": started}}, ready=True) for one in pod["spec"]["containers"]
        ],
    }


def waiting(pod: Object, reason: str, message: str) -> Mapping[str, Any]:
    """The status of a pod whose containers do not run yet."""
    return {
        "phase": "Pending",
        "podIP": None,
        "podIPs": None,
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
        ],
        "containerStatuses": [
            _container(one, {"waiting": {"reason": reason, "message": message}}, ready=False)
            for one in pod["spec"]["containers"]
        ],
    }


def unscheduled(message: str) -> Mapping[str, Any]:
    """The status of a pod that has no node."""
    lacking = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [lacking]}


def _ended(pod: Object, *, code: int) -> Mapping[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now()}}
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [{"type": "Ready", "status": "False", "reason": "PodFailed" if code else "PodCompleted"}],
        "containerStatuses": [_container(one, state, ready=False) for one in pod["spec"]["containers"]],
    }


def _container(one: Mapping[str, Any], state: Mapping[str, Any], *, ready: bool) -> Mapping[str, Any]:
    return {
        "name": one["name"],
        "image": one["image"],
        "imageID": one["image"],
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def is_ready(pod: Object) -> bool:
    """Whether the pod's condition Ready is true."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())
