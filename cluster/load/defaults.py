"""A platform's defaults, filled in where the stack file has no value."""

import copy
from collections.abc import Mapping
from typing import Any

from cluster.platforms import registry
from cluster.platforms.base import Platform


def platform_of(given: Mapping[str, Any]) -> Platform:
    """The platform of a cluster as written; the first one where it names none that exists, so that only this is
    reported and not all that it lacks."""
    names = registry.names()
    name = given.get("platform")
    return registry.get(name if isinstance(name, str) and name in names else names[0])


def with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster as written, with the platform's defaults. Wrong shapes are left for the models to report."""
    filled: dict[str, Any] = dict(given)
    platform = platform_of(given)
    for key, default in platform.defaults.items():
        written = filled.get(key)
        if written is None:
            filled[key] = copy.deepcopy(default)
        elif isinstance(default, Mapping) and isinstance(written, Mapping):
            filled[key] = {**copy.deepcopy(default), **written}
    for key in ("controller", "login"):
        filled[key] = _typed(filled.get(key) or {}, platform.machine_types.get(key))
    nodesets = filled.get("nodesets")
    if isinstance(nodesets, Mapping):
        filled["nodesets"] = {
            name: _typed(one or {}, platform.machine_types.get("node")) for name, one in nodesets.items()
        }
    return filled


def _typed(section: Any, machine_type: str | None) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
    if machine_type is None or not isinstance(section, Mapping) or "on" in section or "machine_type" in section:
        return section
    return {**section, "machine_type": machine_type}
