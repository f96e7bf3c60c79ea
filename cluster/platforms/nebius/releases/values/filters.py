"""On which nodes pods run: the labels and taints of the node groups."""

from collections.abc import Iterable
from typing import Any

from cluster.platforms.nebius.names import GPU, NODESET_LABEL

SERVICES = ("system", "accounting", "controller", "login")
"""Roles of node groups without Slurm nodes; system is the one without a taint."""
ON_GPUS = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
"""Tolerates the taint of nodes with GPUs."""
ANY_ROLE = {"key": NODESET_LABEL, "operator": "Exists", "effect": "NoSchedule"}
"""Tolerates the taint of every service's nodes."""


def role_is(role: str) -> dict[str, Any]:
    """Selects the nodes of a role."""
    return {"key": NODESET_LABEL, "operator": "In", "values": [role]}


def tolerated(role: str) -> dict[str, Any]:
    """Tolerates the taint of a role's nodes."""
    return {"key": NODESET_LABEL, "operator": "Equal", "value": role, "effect": "NoSchedule"}


def on_role(role: str) -> dict[str, Any]:
    """Affinity to the nodes of a role."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": [role_is(role)]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def k8s_node_filters(*, worker: bool, gpus: bool) -> list[dict[str, Any]]:
    """The filters that parts of a SlurmCluster name; that of workers for generations whose workers are in it."""
    roles: Iterable[str] = (*SERVICES, "worker") if worker else SERVICES
    return [
        {"name": role, "affinity": on_role(role), **({"tolerations": found} if (found := _of(role, gpus=gpus)) else {})}
        for role in roles
    ]


def _of(role: str, *, gpus: bool) -> list[dict[str, Any]]:
    if role == "system":
        return []
    return [tolerated(role), *([ON_GPUS] if role == "worker" and gpus else [])]
