"""Defaults that each platform brings to the sections that all share."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Platform:
    """One place where clusters can be made."""

    name: str
    built: bool
    """Whether this version of the program can make clusters there."""
    defaults: Mapping[str, Any]
    """Laid under what the stack file says, section by section."""
    machine_types: Mapping[str, str]
    """Default machine type of each role."""


def built() -> list[str]:
    """Names of the platforms where this version can make clusters."""
    return [name for name, platform in PLATFORMS.items() if platform.built]


PLATFORMS: dict[str, Platform] = {
    platform.name: platform
    for platform in (
        Platform(
            name="local",
            built=True,
            defaults={
                "network": {"cidr": "10.77.0.0/20"},
                "storage": {"shared": ["/home", "/opt/apps", "/var/mail"]},
                "image": {"base": "debian-12"},
                "deletion_protection": False,
            },
            machine_types={"controller": "local-1c", "login": "local-1c", "node": "local-2c"},
        ),
        Platform(
            name="gcp",
            built=True,
            defaults={
                "gcp": {},
                "network": {"cidr": "172.16.0.0/20", "gpu_cidr": "10.0.0.0/17", "services_cidr": "10.128.0.0/20"},
                "storage": {},
                "image": {"base": "ubuntu-2204"},
                "deletion_protection": True,
            },
            machine_types={"controller": "c2-standard-8", "login": "c2-standard-4", "node": "n2-standard-2"},
        ),
        Platform(
            name="nebius",
            built=False,
            defaults={"network": {"cidr": "172.16.0.0/20"}, "storage": {}, "deletion_protection": True},
            machine_types={},
        ),
    )
}


def with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster as written, with the platform's defaults filled in where nothing is said.

    Wrong shapes are left as they are, for the models to complain about.
    """
    filled: dict[str, Any] = dict(given)
    # Without a platform that exists, the rehearsal's defaults: only the platform is to be told of, not what it lacks.
    platform = PLATFORMS.get(str(given.get("platform")), PLATFORMS["local"])
    for key, default in platform.defaults.items():
        said = filled.get(key)
        if said is None:
            filled[key] = copy.deepcopy(default)
        elif isinstance(default, Mapping) and isinstance(said, Mapping):
            filled[key] = {**copy.deepcopy(default), **said}
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
