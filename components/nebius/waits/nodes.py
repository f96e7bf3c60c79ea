"""Nodes of the node groups are Ready, and advertise their GPUs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster.platforms.nebius.names import GPU, NODE_GROUP_LABEL
from components.nebius.kubernetes.kubectl import Kubectl
from components.nebius.waits.poll import Look, wait_for

_SHOWN = 5


def wait(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for `groups`: rows of name, id, count (nodes at least) and gpus (of each node). Raises WaitError."""
    groups = spec["groups"]
    wanted = int(sum(row["count"] for row in groups))
    return wait_for(
        f"{wanted} Kubernetes nodes",
        lambda: look(groups, kubectl.items("nodes")),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit="nebius.timeouts.available",
        explain=lambda: _events(kubectl, groups),
        todo="nodes that are missing: see the node group's events and quotas in Nebius's console; nodes without GPUs: "
        "see the pods of the GPU operator (namespace gpu-operator), or choose another nebius.gpu.driver; then `up`",
    )


def look(groups: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> Look:
    """What of the groups is missing. A pure function."""
    missing = [text for row in groups for text in _missing(row, nodes)]
    return Look(done=not missing, text="; ".join(missing[:_SHOWN]) + (" ..." if len(missing) > _SHOWN else ""))


def _missing(group: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    own = [node for node in nodes if node["metadata"].get("labels", {}).get(NODE_GROUP_LABEL) == group["id"]]
    ready = [node for node in own if _ready(node) is None]
    texts: list[str] = []
    if len(ready) < group["count"]:
        why = "; ".join(f"{node['metadata']['name']}: {_ready(node)}" for node in own if _ready(node))[:300]
        texts.append(
            f"{group['name']}: {len(ready)} of {group['count']:.0f} nodes are Ready" + (f" ({why})" if why else "")
        )
    if group["gpus"]:
        few = [node for node in ready if int(node["status"].get("allocatable", {}).get(GPU, 0)) != group["gpus"]]
        if few:
            names = ", ".join(
                f"{node['metadata']['name']} has {node['status'].get('allocatable', {}).get(GPU, 0)}"
                for node in few[:_SHOWN]
            )
            texts.append(f"{group['name']}: {len(few)} nodes do not advertise {group['gpus']:.0f} {GPU}: {names}")
    return texts


def _ready(node: Mapping[str, Any]) -> str | None:
    """Why a node is not Ready; None if it is."""
    for condition in node["status"].get("conditions", ()):
        if condition["type"] == "Ready":
            if condition["status"] == "True":
                return None
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return "has no condition Ready"


def _events(kubectl: Kubectl, groups: Sequence[Mapping[str, Any]]) -> str:
    """Events of pods that keep GPUs from being advertised."""
    if not any(row["gpus"] for row in groups):
        return ""
    lines = [
        f"  pod {pod['metadata']['namespace']}/{pod['metadata']['name']}: {pod['status'].get('phase')}"
        for pod in kubectl.items("pods", "--namespace=gpu-operator")
        if pod["status"].get("phase") not in ("Running", "Succeeded")
    ]
    return "\n".join(lines[:_SHOWN])
