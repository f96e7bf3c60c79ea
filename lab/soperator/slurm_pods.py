"""The pods of a Slurm cluster, and where they go."""

from collections.abc import Iterator, Mapping, Sequence

from cluster.platforms.nebius.names import CONTROLLER_POD, GPU, NODESET_LABEL, NODESET_NAME_LABEL
from lab.soperator import pods
from lab.soperator.kube import Kube, Object
from lab.soperator.nodes import MACHINE_TYPE
from lab.soperator.wanted import Wanted

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
    for one in wanted.workers:
        for index in range(one.count):
            yield f"{one.name}-{index}", "worker", one.name


def machine_of(pod: str) -> str:
    """The machine that a pod stands for: slurmdbd runs on the controller."""
    return CONTROLLER_POD if pod == ACCOUNTING else pod


def manifest(wanted: Wanted, name: str, role: str, nodeset: str) -> Object:
    """A pod."""
    gpus = next((one.gpus for one in wanted.workers if one.name == nodeset), 0)
    resources = {"resources": {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}} if gpus else {}
    labels = {
        pods.SLURM: wanted.name,
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
                {"name": one, "image": "stand-in", **(resources if one == "slurmd" else {})} for one in CONTAINERS[role]
            ],
        },
    }


def converge(kube: Kube, wanted: Wanted, nodes: Sequence[Object], *, free: bool, missing: int) -> list[Object]:
    """Create the pods that are lacking, remove those that are too many, and assign them to nodes; returns them.

    `free`: any node will do, for there is no cloud. `missing`: how many of each nodeset get no node.
    """
    there = {one["metadata"]["name"]: one for one in kube.list("v1", "Pod", wanted.name, labels=pods.SLURM)}
    counts = {one.name: one.count for one in wanted.workers}
    taken = {one["spec"].get("nodeName") for one in there.values()}
    found: list[Object] = []
    for name, role, nodeset in rows(wanted):
        pod = there.pop(name, None)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            pod = kube.apply(manifest(wanted, name, role, nodeset)) if pod is None else pod
        if not pod["spec"].get("nodeName"):
            late = nodeset and int(name.rpartition("-")[2]) >= counts[nodeset] - missing
            node = (
                ""
                if late
                else _node(nodes, role, nodeset, pod, set() if free or role != "worker" else taken, free=free)
            )
            if node:
                kube.bind(pod, node)
                pod["spec"]["nodeName"] = node
                taken.add(node)
            else:
                kube.set_status(pod, pods.unscheduled(f"0/{len(nodes)} nodes are available for {nodeset or role}"))
        found.append(pod)
    for gone in there.values():
        kube.delete(gone)
    return found


def _node(nodes: Sequence[Object], role: str, nodeset: str, pod: Object, taken: set[str | None], *, free: bool) -> str:
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
    types = {one["metadata"]["name"]: one["metadata"].get("annotations", {}).get(MACHINE_TYPE, "") for one in nodes}
    return {
        one["metadata"]["name"]: types.get(one["spec"]["nodeName"], "") for one in found if one["spec"].get("nodeName")
    }
