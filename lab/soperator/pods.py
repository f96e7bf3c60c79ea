"""What a scheduler and kubelets do for pods that controllers create: assign them to nodes, run them, end them.

Nothing runs in them: they are operators and Jobs of charts. Pods of Slurm are `slurm_pods`'s.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.platforms.nebius.names import CONTROLLER_POD, GPU, NODESET_LABEL, NODESET_NAME_LABEL
from lab.soperator.kube import Kube, Object
from lab.soperator.nodes import MACHINE_TYPE
from lab.soperator.wanted import Wanted

SLURM = "rehearsal/slurm"
"""Label of the pods that stand for machines."""


def now() -> str:
    """The time, as Kubernetes writes it."""
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_others(kube: Kube, nodes: Sequence[Object]) -> None:
    """Bring every pod that is not Slurm's one step further."""
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
    """Return where a pod goes: a DaemonSet's has its node as an affinity, the others go to the first."""
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
            _container(container, {"running": {"startedAt": started}}, ready=True)
            for container in pod["spec"]["containers"]
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
            _container(container, {"waiting": {"reason": reason, "message": message}}, ready=False)
            for container in pod["spec"]["containers"]
        ],
    }


def unscheduled(message: str) -> Mapping[str, Any]:
    """The status of a pod that has no node."""
    lacking = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [lacking]}


def _ended(pod: Object) -> Mapping[str, Any]:
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now()}}
    return {
        "phase": "Succeeded",
        "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}],
        "containerStatuses": [_container(container, state, ready=False) for container in pod["spec"]["containers"]],
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


def rows(wanted: Wanted) -> Iterator[tuple[str, str, str]]:
    """Name, role and nodeset of each pod."""
    if not wanted.stopped:
        yield CONTROLLER_POD, "controller", ""
        if wanted.accounting:
            yield ACCOUNTING, "accounting", ""
        for index in range(wanted.login):
            yield f"{LOGIN}-{index}", "login", ""
    for worker in wanted.workers:
        for index in range(worker.count) if worker.active is None else worker.active:
            yield f"{worker.name}-{index}", "worker", worker.name


def machine_of(pod: str) -> str:
    """The machine that a pod stands for: slurmdbd runs on the controller."""
    return CONTROLLER_POD if pod == ACCOUNTING else pod


def manifest(wanted: Wanted, name: str, role: str, nodeset: str) -> Object:
    """A pod."""
    gpus = next((worker.gpus for worker in wanted.workers if worker.name == nodeset), 0)
    resources = {"resources": {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}} if gpus else {}
    labels = {
        SLURM: wanted.name,
        "app.kubernetes.io/instance": wanted.name,
        "app.kubernetes.io/component": role,
        **({NODESET_LABEL: nodeset} if nodeset else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": wanted.name, "labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": container, "image": "stand-in", **(resources if container == "slurmd" else {})}
                for container in CONTAINERS[role]
            ],
        },
    }


def converge(kube: Kube, wanted: Wanted, nodes: Sequence[Object], *, free: bool) -> list[Object]:
    """Create the pods that are lacking, remove those that are too many, and assign them to nodes; returns them.

    `free`: any node will do, for there is no cloud.
    """
    there = {pod["metadata"]["name"]: pod for pod in kube.list("v1", "Pod", wanted.name, labels=SLURM)}
    taken = {pod["spec"].get("nodeName") for pod in there.values()}
    found: list[Object] = []
    for name, role, nodeset in rows(wanted):
        pod = there.pop(name, None)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            pod = kube.apply(manifest(wanted, name, role, nodeset)) if pod is None else pod
        if not pod["spec"].get("nodeName"):
            node = _node_of(nodes, role, nodeset, pod, set() if free or role != "worker" else taken, free=free)
            if node:
                kube.bind(pod, node)
                pod["spec"]["nodeName"] = node
                taken.add(node)
            else:
                kube.set_status(pod, unscheduled(f"0/{len(nodes)} nodes are available for {nodeset or role}"))
        found.append(pod)
    for gone in there.values():
        kube.delete(gone)
    return found


def _node_of(
    nodes: Sequence[Object], role: str, nodeset: str, pod: Object, taken: set[str | None], *, free: bool
) -> str:
    """A node for a pod, or nothing: a worker has a node of its own, with the GPUs that it asks for."""
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


def machine_types(found: Sequence[Object], nodes: Sequence[Object]) -> Mapping[str, str]:
    """The machine type of each pod's node, by the name of the pod; of those that have a node."""
    types = {node["metadata"]["name"]: node["metadata"].get("annotations", {}).get(MACHINE_TYPE, "") for node in nodes}
    return {
        pod["metadata"]["name"]: types.get(pod["spec"]["nodeName"], "") for pod in found if pod["spec"].get("nodeName")
    }
