"""Scheduling and statuses of pods: those of charts, in which nothing runs, and those that stand for machines."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.soperator.kube import Kube, Object
from lab.soperator.names import CONTROLLER_POD, GPU, NODESET_LABEL, NODESET_NAME_LABEL
from lab.soperator.nodes import MACHINE_TYPE
from lab.soperator.spec import ClusterSpec

SLURM = "rehearsal/slurm"
"""Label of the pods that stand for machines."""


def now() -> str:
    """Return the time in Kubernetes' format."""
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_others(kube: Kube, nodes: Sequence[Object]) -> None:
    """Move each pod that is not Slurm's one step further."""
    for pod in kube.list("v1", "Pod", labels=f"!{SLURM}"):
        _advance(kube, pod, nodes)
    for pod in kube.list("v1", "Pod", labels=SLURM):
        if "deletionTimestamp" in pod["metadata"]:
            kube.delete(pod)


def _advance(kube: Kube, pod: Object, nodes: Sequence[Object]) -> None:
    if "deletionTimestamp" in pod["metadata"]:
        kube.delete(pod)
    elif not pod["spec"].get("nodeName"):
        node = _node(pod, nodes)
        if node:
            kube.bind(pod, node)
    elif pod["status"].get("phase") == "Pending":
        kube.set_status(pod, running(pod))
    elif pod["status"].get("phase") == "Running" and pod["spec"].get("restartPolicy") != "Always":
        kube.set_status(pod, _ended(pod))


def _node(pod: Object, nodes: Sequence[Object]) -> str:
    """Return the node of a pod: that of its affinity, which a DaemonSet's pod has, or the first."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    for term in terms:
        for field in term.get("matchFields", ()):
            return str(field["values"][0])
    return str(nodes[0]["metadata"]["name"]) if nodes else ""


def running(pod: Object, address: str = "127.0.0.1") -> Mapping[str, Any]:
    """Return the status of a pod whose containers are ready."""
    started = pod["status"].get("startTime") or now()
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": started,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": started} for kind in kinds],
        "containerStatuses": [
            _container(container, {"running": {"startedAt": started}}, ready=True)
            for container in pod["spec"]["containers"]
        ],
    }


def waiting(pod: Object, reason: str, message: str) -> Mapping[str, Any]:
    """Return the status of a pod whose containers do not run yet."""
    return {
        "phase": "Pending",
        "podIP": None,
        "podIPs": None,
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
        ],
        "containerStatuses": [
            _container(container, {"waiting": {"reason": reason, "message": message}}, ready=False)
            for container in pod["spec"]["containers"]
        ],
    }


def unscheduled(message: str) -> Mapping[str, Any]:
    """Return the status of a pod without a node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def _ended(pod: Object) -> Mapping[str, Any]:
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now()}}
    return {
        "phase": "Succeeded",
        "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}],
        "containerStatuses": [_container(container, state, ready=False) for container in pod["spec"]["containers"]],
    }


def _container(container: Mapping[str, Any], state: Mapping[str, Any], *, ready: bool) -> Mapping[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def is_ready(pod: Object) -> bool:
    """Return whether the pod's condition Ready is true."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions") or ()
    )


# Names of containers and pods: soperator, internal/consts.
LOGIN, ACCOUNTING = "login", "accounting-0"
CONTAINERS = {
    "controller": ("slurmctld", "munge"),
    "login": ("sshd", "munge"),
    "accounting": ("slurmdbd", "munge"),
    "worker": ("slurmd", "munge"),
}


def rows(spec: ClusterSpec) -> Iterator[tuple[str, str, str]]:
    """Yield name, role and nodeset of each pod."""
    if not spec.stopped:
        yield CONTROLLER_POD, "controller", ""
        if spec.accounting:
            yield ACCOUNTING, "accounting", ""
        for index in range(spec.login):
            yield f"{LOGIN}-{index}", "login", ""
    for worker in spec.workers:
        for index in range(worker.count) if worker.active is None else worker.active:
            yield f"{worker.name}-{index}", "worker", worker.name


def machine_of(pod: str) -> str:
    """Return the machine of a pod; slurmdbd runs on the controller."""
    return CONTROLLER_POD if pod == ACCOUNTING else pod


def manifest(spec: ClusterSpec, name: str, role: str, nodeset: str) -> Object:
    """Return the object of a pod."""
    gpus = next((worker.gpus for worker in spec.workers if worker.name == nodeset), 0)
    resources = {"resources": {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}} if gpus else {}
    labels = {
        SLURM: spec.name,
        "app.kubernetes.io/instance": spec.name,
        "app.kubernetes.io/component": role,
        **({NODESET_LABEL: nodeset} if nodeset else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": spec.name, "labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": container, "image": "stand-in", **(resources if container == "slurmd" else {})}
                for container in CONTAINERS[role]
            ],
        },
    }


def converge(kube: Kube, spec: ClusterSpec, nodes: Sequence[Object], *, free: bool) -> list[Object]:
    """Create missing pods, delete surplus ones, and assign pods to nodes; return the pods.

    `free`: any node fits, because there is no cloud.
    """
    existing = {pod["metadata"]["name"]: pod for pod in kube.list("v1", "Pod", spec.name, labels=SLURM)}
    taken = {pod["spec"].get("nodeName") for pod in existing.values()}
    result: list[Object] = []
    for name, role, nodeset in rows(spec):
        pod = existing.pop(name, None)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            pod = kube.apply(manifest(spec, name, role, nodeset)) if pod is None else pod
        if not pod["spec"].get("nodeName"):
            node = _node_of(nodes, role, nodeset, pod, set() if free or role != "worker" else taken, free=free)
            if node:
                kube.bind(pod, node)
                pod["spec"]["nodeName"] = node
                taken.add(node)
            else:
                kube.set_status(pod, unscheduled(f"0/{len(nodes)} nodes are available for {nodeset or role}"))
        result.append(pod)
    for pod in existing.values():
        kube.delete(pod)
    return result


def _node_of(
    nodes: Sequence[Object], role: str, nodeset: str, pod: Object, taken: set[str | None], *, free: bool
) -> str:
    """Return a node for a pod, or an empty text: a worker needs a node of its own with the GPUs that it requests."""
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    for node in nodes:
        labels, name = node["metadata"].get("labels", {}), node["metadata"]["name"]
        if free:
            return str(name)
        if role == "worker":
            own = labels.get(NODESET_NAME_LABEL)
            fits = own == nodeset if own else labels.get(NODESET_LABEL, "").startswith("worker")
        else:
            fits = labels.get(NODESET_LABEL) == role
        allocatable = node.get("status", {}).get("allocatable", {})
        if fits and name not in taken and int(allocatable.get(GPU, 0)) >= int(limits.get(GPU, 0)):
            return str(name)
    return ""


def machine_types(pods: Sequence[Object], nodes: Sequence[Object]) -> Mapping[str, str]:
    """Return the machine type of the node of each pod that has one, by the name of the pod."""
    types = {node["metadata"]["name"]: node["metadata"].get("annotations", {}).get(MACHINE_TYPE, "") for node in nodes}
    return {
        pod["metadata"]["name"]: types.get(pod["spec"]["nodeName"], "") for pod in pods if pod["spec"].get("nodeName")
    }
