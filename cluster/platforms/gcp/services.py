"""Google's own services that a stack uses, and which must be enabled in its project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.platforms.gcp.address_plan import peered

if TYPE_CHECKING:
    from cluster.config.cluster import ClusterConfig

ALWAYS = ("cloudresourcemanager", "compute", "iam", "iap", "logging", "monitoring", "secretmanager", "storage")
"""Machines and networks, roles, logging in, the operations agent, keys, the set-up's bucket."""


def services(config: ClusterConfig) -> tuple[str, ...]:
    """Names of the services that this stack uses, such as lustre.googleapis.com."""
    storage = config.storage
    used = set[str](ALWAYS)
    if storage.lustre:
        used.add("lustre" if storage.lustre.kind == "managed" else "runtimeconfig")
    if storage.filestore:
        used.add("file")
    if peered(config):
        used.add("servicenetworking")
    return tuple(f"{name}.googleapis.com" for name in sorted(used))
