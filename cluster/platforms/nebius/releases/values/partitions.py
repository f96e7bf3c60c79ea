"""Partitions, which name NodeSets."""

from typing import Any

from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.slurm.nodes import partition_settings
from cluster.slurm.text import assignments

HIDDEN = "hidden"
"""The partition that Soperator's active checks run in: without it none of them does."""


def partition_configuration(inputs: Inputs) -> dict[str, Any]:
    """Partitions by the names of their NodeSets, which Soperator resolves."""
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "nodeSetRefs": list(partition.nodesets),
            "config": " ".join(assignments(_rest(inputs, name))),
        }
        for name, partition in inputs.config.partitions.items()
    ]
    if not _has_hidden(inputs):
        found.append({"name": HIDDEN, "isAll": True, "config": _hidden(inputs)})
    return {"configType": "structured", "partitions": found}


def _rest(inputs: Inputs, name: str) -> dict[str, Any]:
    settings = partition_settings(inputs.config, name)
    return {key: value for key, value in settings.items() if key not in {"PartitionName", "Nodes"}}


def _has_hidden(inputs: Inputs) -> bool:
    return HIDDEN in {name.lower() for name in inputs.config.partitions}


def tiers(inputs: Inputs) -> set[int]:
    """The priority tiers of all partitions; 1 is Slurm's default."""
    settings = [partition_settings(inputs.config, name) for name in inputs.config.partitions]
    return {int(one.get("PriorityTier") or 1) for one in settings}


def _hidden(inputs: Inputs) -> str:
    """As Soperator's own, but in the lowest tier: in a higher one, checks would requeue users' jobs."""
    tier = min(tiers(inputs))
    return f"Default=NO PriorityTier={tier} PreemptMode=OFF Hidden=YES MaxTime=INFINITE State=UP OverSubscribe=YES"
