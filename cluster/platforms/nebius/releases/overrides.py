"""Values of charts that the stack file gives: laid over those that follow from the rest of the configuration."""

from collections.abc import Mapping
from typing import Any

OWNED = {
    "slurm-cluster": (("clusterName",), ("slurmNodes", "login", "sshRootPublicKeys")),
    "nodesets": (("nodesets",),),
}
"""Values that only the rest of the configuration can have, by release."""


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Values with others laid over them: mappings are merged key by key, all else is replaced."""
    found = dict(values)
    for key, one in over.items():
        below = found.get(key)
        found[key] = merged(below, one) if isinstance(below, Mapping) and isinstance(one, Mapping) else one
    return found
