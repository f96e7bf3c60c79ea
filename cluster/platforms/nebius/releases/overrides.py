"""Values of charts that the stack file gives (`nebius.values`): laid over those that follow from the rest of it."""

from collections.abc import Mapping
from typing import Any

_CLUSTER, _NODESETS = "slurm-cluster", "nodesets"
OWNED: Mapping[tuple[str, ...], str] = {
    (_CLUSTER, "clusterName"): "name",
    (_CLUSTER, "partitionConfiguration"): "partitions",
    (_CLUSTER, "customSlurmConfig"): "slurm.extra",
    (_CLUSTER, "slurmNodes", "login", "size"): "login.count",
    (_CLUSTER, "slurmNodes", "login", "sshRootPublicKeys"): "nebius.login.root_keys",
    (_CLUSTER, "slurmNodes", "login", "sshdServiceType"): "nebius.login.service",
    (_NODESETS, "nodesets", "replicas"): "nodesets.NAME.count",
    (_NODESETS, "nodesets", "nodeSelector"): "nodesets.NAME",
}
"""Values that a field of the stack file sets, which the rest of the program reads too."""


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Values with others laid over them: mappings are merged by key, lists of members with a `name` by these, and all
    else is replaced."""
    found = dict(values)
    for key, one in over.items():
        below = found.get(key)
        if isinstance(below, Mapping) and isinstance(one, Mapping):
            found[key] = merged(below, one)
        elif isinstance(below, list) and isinstance(one, list) and _named(below) and _named(one):
            found[key] = _by_name(below, one)
        else:
            found[key] = one
    return found


def _named(members: list[Any]) -> bool:
    return bool(members) and all(isinstance(one, Mapping) and "name" in one for one in members)


def _by_name(values: list[dict[str, Any]], over: list[dict[str, Any]]) -> list[dict[str, Any]]:
    laid = {one["name"]: one for one in over}
    here = {one["name"] for one in values}
    kept = [merged(one, laid.get(one["name"], {})) for one in values]
    return [*kept, *(one for name, one in laid.items() if name not in here)]
