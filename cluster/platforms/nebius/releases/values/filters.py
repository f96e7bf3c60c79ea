"""On which nodes pods run: the labels and taints of the node groups."""

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


def k8s_node_filters() -> list[dict[str, Any]]:
    """The filters that parts of a SlurmCluster name."""
    return [
        {"name": role, "affinity": on_role(role), **({} if role == "system" else {"tolerations": [tolerated(role)]})}
        for role in SERVICES
    ]
