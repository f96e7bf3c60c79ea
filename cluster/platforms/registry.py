"""The platforms: one line for each. A platform's modules are imported when it is first asked for."""

from importlib import import_module

from cluster.platforms.base import Platform

MODULES: dict[str, str] = {
    "local": "cluster.platforms.local.platform",
    "gcp": "cluster.platforms.gcp.platform",
    "nebius": "cluster.platforms.nebius.platform",
}
"""The module whose PLATFORM is the platform, by name."""


def names() -> tuple[str, ...]:
    return tuple(MODULES)


def get(name: str) -> Platform:
    """Return the platform of a name. Raises KeyError: there is none."""
    return import_module(MODULES[name]).PLATFORM


def all_platforms() -> tuple[Platform, ...]:
    return tuple(map(get, MODULES))
