"""Node objects of node groups, as mk8s and their kubelets register them."""

from collections.abc import Iterable, Iterator
from typing import Any

from cluster.platforms.nebius.names import GPU, NODE_GROUP_LABEL
from cluster.platforms.nebius.versions import KUBERNETES
from lab.soperator.cloud import NodeGroup
from lab.soperator.kube import Kube, Object

MACHINE_TYPE = "rehearsal/machine-type"
"""Annotation: platform and preset, of which a label may not have the slash."""
_VERSION = f"v{KUBERNETES}.0"


def objects(group: NodeGroup) -> Iterator[Object]:
    """The nodes of a group."""
    for index in range(group.count):
        name = f"{group.name}-{group.id.rpartition('-')[2][-6:]}-{index}"
        labels = {
            **group.labels,
            NODE_GROUP_LABEL: group.id,
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
        }
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {MACHINE_TYPE: group.machine_type}},
            "spec": {"taints": [dict(one) for one in group.taints]},
        }


def status(group: NodeGroup, *, kubelet: int, external: str = "") -> dict[str, Any]:
    """A node's status: Ready, at the address where its kubelet serves. `external`: its public address, if any."""
    sizes = {"cpu": "128", "memory": "1600Gi", "pods": "110"}
    if group.gpus:
        sizes[GPU] = str(group.gpus)
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    if external:
        addresses.append({"type": "ExternalIP", "address": external})
    return {
        "capacity": sizes,
        "allocatable": sizes,
        "addresses": addresses,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "stand-in"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
        "nodeInfo": {
            **dict.fromkeys(
                ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"), "stand-in"
            ),
            "kubeletVersion": _VERSION, "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
        },
    }  # fmt: skip


def register(kube: Kube, groups: Iterable[NodeGroup], *, kubelet: int, external: str = "") -> list[Object]:
    """Make Node objects those of the groups, and return them."""
    there = {one["metadata"]["name"]: one for one in kube.list("v1", "Node")}
    found: list[Object] = []
    for group in groups:
        for wanted in objects(group):
            now = there.pop(wanted["metadata"]["name"], None)
            if now is None or not _same(now, wanted):
                now = kube.apply(wanted)
            wanted_status = status(group, kubelet=kubelet, external=external if group.public else "")
            if not group.gpus and GPU in (now.get("status", {}).get("allocatable") or {}):
                wanted_status["allocatable"][GPU] = wanted_status["capacity"][GPU] = None
            # Conditions that others added (HardwareIssuesSuspected) stay: a merge patch would replace the list.
            others = [one for one in now.get("status", {}).get("conditions") or () if one["type"] != "Ready"]
            wanted_status["conditions"] += others
            kube.set_status(now, wanted_status)
            found.append(now)
    for gone in there.values():
        kube.delete(gone)
    return found


def _same(now: Object, wanted: Object) -> bool:
    """Whether labels and taints are as wanted; a new node gets a taint until its first heartbeat."""
    taints = [one for one in now["spec"].get("taints", ()) if not one["key"].startswith("node.kubernetes.io/")]
    labels = now["metadata"].get("labels", {})
    return taints == wanted["spec"]["taints"] and all(
        labels.get(key) == value for key, value in wanted["metadata"]["labels"].items()
    )
