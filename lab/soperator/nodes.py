"""Node objects of node groups, as mk8s and their kubelets register them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.platforms.nebius.names import GPU, NODE_GROUP_LABEL
from cluster.platforms.nebius.versions import KUBERNETES
from lab.soperator.kube import Kube, Object

GPU_OPERATOR = "gpu-operator"
"""Application name of the K8sRelease that brings driver and device plugin."""
_RUNNING = ("RUNNING", "DEPLOYED")


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """A node group of mk8s, and the nodes that it has."""

    id: str
    name: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    machine_type: str = ""
    """PLATFORM/PRESET."""
    gpus: int = 0
    """GPUs that each node advertises."""
    public: bool = False
    """True if nodes have public addresses."""


class Cloud:
    """The API at an endpoint, and the project whose clusters are this Kubernetes."""

    def __init__(self, endpoint: str, project: str, state: Path | None = None) -> None:
        """`state` is the file that the API writes with each change, if it has one."""
        self._endpoint, self._project, self._state = endpoint, project, state

    def version(self) -> object:
        """Return what changes with each change; without a file, at each call."""
        if self._state is None or not self._state.exists():
            return object()
        status = self._state.stat()
        return status.st_mtime_ns, status.st_ino

    def node_groups(self) -> list[NodeGroup]:
        """Return all node groups that have nodes by now."""
        # The SDK takes a third of a second to import, and an operator without a cloud does not need it.
        from components.nebius.api.objects import objects_of

        driver = any(
            one["spec"].get("application_name") == GPU_OPERATOR and one.get("status", {}).get("state") in _RUNNING
            for one in objects_of("K8sRelease", self._project, self._endpoint)
        )
        clusters = [cluster["metadata"]["id"] for cluster in objects_of("Cluster", self._project, self._endpoint)]
        return [group(row, driver=driver) for id_ in clusters for row in objects_of("NodeGroup", id_, self._endpoint)]


def group(found: Mapping[str, Any], *, driver: bool) -> NodeGroup:
    """A node group of the API's JSON (mk8s.v1, NodeGroup). `driver`: whether the GPU operator has been deployed."""
    spec, status = found["spec"], found.get("status", {})
    template = spec["template"]
    resources = template.get("resources", {})
    preset = resources.get("preset", "")
    has = driver or bool(template.get("gpu_settings", {}).get("drivers_preset"))
    wanted = spec.get("fixed_node_count") or spec.get("autoscaling", {}).get("min_node_count") or 0
    return NodeGroup(
        id=found["metadata"]["id"],
        name=found["metadata"]["name"],
        count=int(status.get("ready_node_count", wanted)) if status.get("state") != "PROVISIONING" else 0,
        labels=template.get("metadata", {}).get("labels", {}),
        taints=[
            {"key": taint["key"], "value": taint.get("value", ""), "effect": _EFFECTS[taint["effect"]]}
            for taint in template.get("taints", ())
        ],
        machine_type=f"{resources.get('platform', '')}/{preset}",
        gpus=int(preset.partition("gpu-")[0]) if has and "gpu-" in preset else 0,
        public=any("public_ip_address" in interface for interface in template.get("network_interfaces", ())),
    )


_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}


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
            "spec": {"taints": [dict(taint) for taint in group.taints]},
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
    there = {node["metadata"]["name"]: node for node in kube.list("v1", "Node")}
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
            others = [
                condition for condition in now.get("status", {}).get("conditions") or () if condition["type"] != "Ready"
            ]
            wanted_status["conditions"] += others
            kube.set_status(now, wanted_status)
            found.append(now)
    for gone in there.values():
        kube.delete(gone)
    return found


def _same(now: Object, wanted: Object) -> bool:
    """Return whether labels and taints are as wanted; a new node gets a taint until its first heartbeat."""
    taints = [taint for taint in now["spec"].get("taints", ()) if not taint["key"].startswith("node.kubernetes.io/")]
    labels = now["metadata"].get("labels", {})
    return taints == wanted["spec"]["taints"] and all(
        labels.get(key) == value for key, value in wanted["metadata"]["labels"].items()
    )


def bind(kube: Kube) -> None:
    """Every claim that names a volume is bound, and every volume whose claim is gone is released: volumes in use are
    not deleted."""
    claims = kube.list("v1", "PersistentVolumeClaim")
    volumes = {volume["metadata"]["name"]: volume for volume in kube.list("v1", "PersistentVolume")}
    names = {(claim["metadata"]["namespace"], claim["metadata"]["name"]) for claim in claims}
    for volume in volumes.values():
        of = volume["spec"].get("claimRef") or {}
        if volume["status"].get("phase") == "Bound" and (of.get("namespace"), of.get("name")) not in names:
            kube.set_status(volume, {"phase": "Released"})
    for claim in claims:
        found = volumes.get(claim["spec"].get("volumeName"))
        if found and claim.get("status", {}).get("phase") != "Bound":
            kube.set_status(found, {"phase": "Bound"})
            kube.set_status(
                claim,
                {
                    "phase": "Bound",
                    "accessModes": found["spec"]["accessModes"],
                    "capacity": found["spec"]["capacity"],
                },
            )
