"""Nodes of node groups, as mk8s and kubelets register them; volumes and claims, as the volume controller binds them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.nebius.api.kinds import kind_of
from components.nebius.api.objects import list_all
from components.nebius.api.specs import to_json
from lab.soperator.kube import Kube, Object
from lab.soperator.names import GPU, KUBELET, NODE_GROUP_LABEL

GPU_OPERATOR = "gpu-operator"
"""Application name of the K8sRelease that installs driver and device plugin."""
_RUNNING = ("RUNNING", "DEPLOYED")


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """A node group of mk8s, and the number of its nodes."""

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
    """The stand-in of Nebius's API, and the project whose clusters are this Kubernetes."""

    def __init__(self, endpoint: str, project: str, state: Path | None = None) -> None:
        """`state` is the file that the API writes at each change, if it has one."""
        self._endpoint, self._project, self._state = endpoint, project, state

    def version(self) -> object:
        """Return a value that differs after each change; without a file, at each call."""
        if self._state is None or not self._state.exists():
            return object()
        status = self._state.stat()
        return status.st_mtime_ns, status.st_ino

    def node_groups(self) -> list[NodeGroup]:
        """Return all node groups of the project's clusters."""
        driver = any(
            row["spec"].get("application_name") == GPU_OPERATOR and row.get("status", {}).get("state") in _RUNNING
            for row in self._objects("K8sRelease", self._project)
        )
        clusters = [cluster["metadata"]["id"] for cluster in self._objects("Cluster", self._project)]
        return [parse_group(row, driver=driver) for id_ in clusters for row in self._objects("NodeGroup", id_)]

    def _objects(self, kind: str, parent: str) -> list[dict[str, Any]]:
        return [to_json(message) for message in list_all(kind_of(kind), parent, self._endpoint)]


def parse_group(row: Mapping[str, Any], *, driver: bool) -> NodeGroup:
    """Return the node group of the API's JSON (mk8s.v1, NodeGroup). `driver`: whether the GPU operator is deployed."""
    spec, status = row["spec"], row.get("status", {})
    template = spec["template"]
    resources = template.get("resources", {})
    preset = resources.get("preset", "")
    has_driver = driver or bool(template.get("gpu_settings", {}).get("drivers_preset"))
    size = spec.get("fixed_node_count") or spec.get("autoscaling", {}).get("min_node_count") or 0
    return NodeGroup(
        id=row["metadata"]["id"],
        name=row["metadata"]["name"],
        count=int(status.get("ready_node_count", size)) if status.get("state") != "PROVISIONING" else 0,
        labels=template.get("metadata", {}).get("labels", {}),
        taints=[
            {"key": taint["key"], "value": taint.get("value", ""), "effect": _EFFECTS[taint["effect"]]}
            for taint in template.get("taints", ())
        ],
        machine_type=f"{resources.get('platform', '')}/{preset}",
        gpus=int(preset.partition("gpu-")[0]) if has_driver and "gpu-" in preset else 0,
        public=any("public_ip_address" in interface for interface in template.get("network_interfaces", ())),
    )


_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}


MACHINE_TYPE = "rehearsal/machine-type"
"""Annotation with platform and preset, because a label can't have the slash."""


def objects(group: NodeGroup) -> Iterator[Object]:
    """Yield the nodes of a group."""
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
    """Return the status of a node that is Ready. `kubelet`: the kubelet's port; `external`: its public address."""
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
            "kubeletVersion": KUBELET, "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
        },
    }  # fmt: skip


def register(kube: Kube, groups: Iterable[NodeGroup], *, kubelet: int, external: str = "") -> list[Object]:
    """Create, update and delete Node objects, so that they are those of the groups; return them."""
    existing = {node["metadata"]["name"]: node for node in kube.list("v1", "Node")}
    registered: list[Object] = []
    for group in groups:
        for desired in objects(group):
            node = existing.pop(desired["metadata"]["name"], None)
            if node is None or not _is_same(node, desired):
                node = kube.apply(desired)
            new = status(group, kubelet=kubelet, external=external if group.public else "")
            if not group.gpus and GPU in (node.get("status", {}).get("allocatable") or {}):
                new["allocatable"][GPU] = new["capacity"][GPU] = None
            # With the conditions that others added (HardwareIssuesSuspected), because a merge patch replaces the list.
            conditions = node.get("status", {}).get("conditions") or ()
            new["conditions"] += [condition for condition in conditions if condition["type"] != "Ready"]
            kube.set_status(node, new)
            registered.append(node)
    for node in existing.values():
        kube.delete(node)
    return registered


def _is_same(node: Object, desired: Object) -> bool:
    """Return whether labels and taints are as desired; the taint of a new node without a heartbeat is ignored."""
    taints = [taint for taint in node["spec"].get("taints", ()) if not taint["key"].startswith("node.kubernetes.io/")]
    return taints == desired["spec"]["taints"] and (
        desired["metadata"]["labels"].items() <= node["metadata"].get("labels", {}).items()
    )


def bind(kube: Kube) -> None:
    """Bind each claim that names a volume, and release each volume without a claim, because volumes in use are not
    deleted."""
    claims = kube.list("v1", "PersistentVolumeClaim")
    volumes = {volume["metadata"]["name"]: volume for volume in kube.list("v1", "PersistentVolume")}
    names = {(claim["metadata"]["namespace"], claim["metadata"]["name"]) for claim in claims}
    for volume in volumes.values():
        claim = volume["spec"].get("claimRef") or {}
        if volume["status"].get("phase") == "Bound" and (claim.get("namespace"), claim.get("name")) not in names:
            kube.set_status(volume, {"phase": "Released"})
    for claim in claims:
        volume = volumes.get(claim["spec"].get("volumeName"))
        if volume and claim.get("status", {}).get("phase") != "Bound":
            kube.set_status(volume, {"phase": "Bound"})
            spec = {key: volume["spec"][key] for key in ("accessModes", "capacity")}
            kube.set_status(claim, {"phase": "Bound", **spec})
