"""The needs of a stack on Google Cloud: services, roles of whoever runs `up`, and no organisation policy against it.

A test registers every stack and compares both with its resources. What each policy forbids:
cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints. Whether one is in force only Google
can say: a preview names those that could matter to the stack, and asks nobody.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.base import Need
from cluster.platforms.gcp.filesystems.registry import file_systems, peered
from cluster.platforms.gcp.image import secure_boot
from cluster.roster import elastic_machines, machines

TUNNEL = "roles/iap.tunnelResourceAccessor"
NETWORKS = "roles/compute.networkAdmin"
ROLES = (
    "roles/compute.admin",
    "roles/iam.serviceAccountAdmin",
    "roles/iam.serviceAccountUser",
    "roles/resourcemanager.projectIamAdmin",
    "roles/secretmanager.admin",
    "roles/serviceusage.serviceUsageAdmin",
    "roles/storage.admin",
)
"""Roles that every stack takes. A machine acts as an account, and who creates it must be allowed to
(serviceAccountUser). What they hold: cloud.google.com/iam/docs/roles-permissions. Compute Admin has all of Compute
Engine, its networks included, and nothing of Service Networking."""
SERVICES = ("cloudresourcemanager", "compute", "iam", "iap", "logging", "monitoring", "secretmanager", "storage")
"""Machines and networks, roles, logging in, the operations agent, keys, the set-up's bucket."""


def roles(config: ClusterConfig) -> tuple[str, ...]:
    """Roles on the project of whoever runs `up`, `destroy` and the other commands of this stack, in order."""
    found = {*ROLES, *(role for need in _needs(config) for role in need.roles)}
    if peered(config) and config.network.existing is None:
        found.add(NETWORKS)
    if not config.login.public:
        found.add(TUNNEL)
    return tuple(sorted(found))


def services(config: ClusterConfig) -> tuple[str, ...]:
    """Names of the services that this stack uses, such as lustre.googleapis.com."""
    used = {*SERVICES, *(name for need in _needs(config) for name in need.services)}
    if peered(config):
        used.add("servicenetworking")
    return tuple(f"{name}.googleapis.com" for name in sorted(used))


def _needs(config: ClusterConfig) -> list[Need]:
    return [need for file_system in file_systems(config) for need in file_system.needs.values()]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A constraint of an organisation."""

    why: str
    """The stack's action that it can forbid."""
    todo: str = "have the project exempted"
    met: Callable[[ClusterConfig], bool] = lambda _: True
    """Returns whether a stack does what it can forbid."""


def _needs_unsigned_boot(config: ClusterConfig) -> bool:
    servers = any(file_system.unsigned_servers for file_system in file_systems(config))
    every = (*machines(config), *elastic_machines(config))
    return servers or any(not secure_boot(config, machine) for machine in every)


POLICIES: Mapping[str, Policy] = {
    "compute.requireOsLogin": Policy(
        why="machines have OS Login off: users are the stack file's, and root has the stack's own key alone"
    ),
    "compute.disableSerialPortLogging": Policy(why="consoles are kept by Cloud Logging, to outlive their machines"),
    "compute.disableGuestAttributesAccess": Policy(
        why="machines, and the image's builder, report by guest attributes how far they are"
    ),
    "compute.trustedImageProjects": Policy(
        why="machines and the image's builder boot Ubuntu's images, EXAScaler's servers DDN's",
        todo="allow projects/ubuntu-os-cloud, with EXAScaler projects/ddn-public, and whose image `image.name` names",
    ),
    "compute.requireShieldedVm": Policy(
        met=_needs_unsigned_boot,
        why="Secure Boot is off where drivers and Lustre clients are built, which nobody has signed",
    ),
    "compute.vmExternalIpAccess": Policy(
        met=lambda config: config.login.public,
        why="login machines have public addresses",
        todo="allow them by name, or set `login.public: false` and log in by Identity-Aware Proxy",
    ),
    "compute.restrictVpcPeering": Policy(
        met=lambda config: peered(config) and config.network.existing is None,
        why="Managed Lustre and Filestore are reached by a peering with Google's network",
        todo="allow the peering of servicenetworking.googleapis.com, or mount no such file system",
    ),
    "compute.restrictCloudNATUsage": Policy(
        met=lambda config: config.network.nat and config.network.existing is None,
        why="machines get out by a NAT of the stack's",
        todo="allow the subnetwork, or name a network that has its own way out (`network.existing`)",
    ),
    "iam.disableServiceAccountCreation": Policy(why="each role of machine has a service account of its own"),
    "gcp.resourceLocations": Policy(
        why="secrets are replicated by Google, whose location is `global`; the rest is in the stack's region",
        todo="allow global, and the region",
    ),
}
"""Policies by the constraint's name, without `constraints/`. Not among them, as no stack does what they forbid:
iam.disableServiceAccountKeyCreation (no account has keys), compute.disableSerialPortAccess (consoles are read, and
nobody logs in by them), storage.uniformBucketLevelAccess and storage.publicAccessPrevention (buckets are so)."""


def policies(config: ClusterConfig) -> tuple[str, ...]:
    """Names of the constraints that would refuse this stack where they are in force."""
    return tuple(name for name, policy in POLICIES.items() if policy.met(config))
