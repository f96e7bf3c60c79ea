"""What the operator reads of the Nebius API's stand-in: node groups, and whether GPUs have a driver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    """Whether nodes have public addresses."""


class Cloud:
    """The API at an endpoint, and the project whose clusters are this Kubernetes."""

    def __init__(self, endpoint: str, project: str) -> None:
        self._endpoint, self._project = endpoint, project

    def node_groups(self) -> list[NodeGroup]:
        """All node groups that have nodes by now."""
        # The SDK takes a third of a second to import, and an operator without a cloud does not need it.
        from components.nebius.api.objects import objects_of

        driver = any(
            one["spec"].get("application_name") == GPU_OPERATOR and one.get("status", {}).get("state") in _RUNNING
            for one in objects_of("K8sRelease", self._project, self._endpoint)
        )
        clusters = [one["metadata"]["id"] for one in objects_of("Cluster", self._project, self._endpoint)]
        return [group(one, driver=driver) for id_ in clusters for one in objects_of("NodeGroup", id_, self._endpoint)]


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
            {"key": one["key"], "value": one.get("value", ""), "effect": _EFFECTS[one["effect"]]}
            for one in template.get("taints", ())
        ],
        machine_type=f"{resources.get('platform', '')}/{preset}",
        gpus=int(preset.partition("gpu-")[0]) if has and "gpu-" in preset else 0,
        public=any("public_ip_address" in one for one in template.get("network_interfaces", ())),
    )


_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
