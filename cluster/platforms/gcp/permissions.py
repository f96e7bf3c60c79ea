"""What each kind of resource on Google Cloud needs: services that are enabled, and roles of whoever runs `up`.

The table is by type, as the program registers it; a test registers every stack and compares both with its resources.
Roles and what they hold: cloud.google.com/iam/docs/roles-permissions. Compute Admin has all of Compute Engine, its
networks included, and nothing of Service Networking.
"""

from collections.abc import Mapping

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems import registry
from cluster.platforms.gcp.filesystems.base import Need
from cluster.platforms.gcp.filesystems.registry import file_systems, peered

COMPUTE, ACCOUNT_USER = "roles/compute.admin", "roles/iam.serviceAccountUser"
NETWORKS = "roles/compute.networkAdmin"
TUNNEL = "roles/iap.tunnelResourceAccessor"

_COMPUTE = Need(services=("compute",), roles=(COMPUTE,))
_MACHINE = Need(services=("compute", "iam"), roles=(COMPUTE, ACCOUNT_USER))
_SECRETS = Need(services=("secretmanager",), roles=("roles/secretmanager.admin",))
_STORAGE = Need(services=("storage",), roles=("roles/storage.admin",))

NEEDS: Mapping[str, Need] = {
    "gcp:projects/service:": Need(services=(), roles=("roles/serviceusage.serviceUsageAdmin",)),
    "gcp:projects/iAMMember:": Need(
        services=("cloudresourcemanager", "iam"), roles=("roles/resourcemanager.projectIamAdmin",)
    ),
    "gcp:serviceaccount/": Need(services=("iam",), roles=("roles/iam.serviceAccountAdmin",)),
    # A machine acts as an account; who makes it must be allowed to.
    "gcp:compute/instance:": _MACHINE,
    "gcp:compute/instanceTemplate:": _MACHINE,
    "gcp:compute/instanceFromTemplate:": _MACHINE,
    "gcp:compute/": _COMPUTE,
    "pulumi-python:dynamic/gcp:BakedImage": _MACHINE,
    "pulumi-python:dynamic/gcp:BakeLeftovers": _COMPUTE,
    "pulumi-python:dynamic/gcp:Flex": _MACHINE,
    "gcp:servicenetworking/": Need(services=("compute", "servicenetworking"), roles=(NETWORKS,)),
    "gcp:secretmanager/": _SECRETS,
    "gcp:storage/": _STORAGE,
}
"""By the beginning of a resource's type; the longest that fits. Kinds of file systems add their own."""


def need_of(type_: str) -> Need | None:
    """What a resource of this type needs; None for one that is not on Google Cloud, or is not in the table."""
    needs = {**NEEDS, **{prefix: need for kind in registry.KINDS for prefix, need in kind.needs.items()}}
    found = [prefix for prefix in needs if type_.startswith(prefix)]
    return needs[max(found, key=len)] if found else None


def roles(config: ClusterConfig) -> tuple[str, ...]:
    """Roles on the project of whoever runs `up`, `destroy` and the other commands of this stack, in order."""
    found = {
        *(role for type_ in ("service:", "iAMMember:") for role in NEEDS[f"gcp:projects/{type_}"].roles),
        *(role for module in ("serviceaccount", "secretmanager", "storage") for role in NEEDS[f"gcp:{module}/"].roles),
        *_MACHINE.roles,
        *(role for file_system in file_systems(config) for need in file_system.needs.values() for role in need.roles),
    }
    if peered(config) and config.network.existing is None:
        found.add(NETWORKS)
    if not config.login.public:
        found.add(TUNNEL)
    return tuple(sorted(found))


ALWAYS = ("cloudresourcemanager", "compute", "iam", "iap", "logging", "monitoring", "secretmanager", "storage")
"""Machines and networks, roles, logging in, the operations agent, keys, the set-up's bucket."""


def services(config: ClusterConfig) -> tuple[str, ...]:
    """Names of the services that this stack uses, such as lustre.googleapis.com."""
    used = {
        *ALWAYS,
        *(
            name
            for file_system in file_systems(config)
            for need in file_system.needs.values()
            for name in need.services
        ),
    }
    if peered(config):
        used.add("servicenetworking")
    return tuple(f"{name}.googleapis.com" for name in sorted(used))
