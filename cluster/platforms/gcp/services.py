"""Google's own services that a stack uses, and which must be enabled in its project."""

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.registry import file_systems, peered

ALWAYS = ("cloudresourcemanager", "compute", "iam", "iap", "logging", "monitoring", "secretmanager", "storage")
"""Machines and networks, roles, logging in, the operations agent, keys, the set-up's bucket."""


def services(config: ClusterConfig) -> tuple[str, ...]:
    """Names of the services that this stack uses, such as lustre.googleapis.com."""
    used = {*ALWAYS, *(name for one in file_systems(config) for need in one.needs.values() for name in need.services)}
    if peered(config):
        used.add("servicenetworking")
    return tuple(f"{name}.googleapis.com" for name in sorted(used))
