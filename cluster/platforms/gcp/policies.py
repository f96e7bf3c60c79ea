"""Organisation policies that would refuse a stack, and what to do where one is in force.

What each forbids: cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints. Whether one is in
force is known to Google alone: a preview names those that could matter to the stack, and asks nobody.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.registry import file_systems, peered
from cluster.platforms.gcp.image.source import secure_boot
from cluster.roster import machines


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A constraint of an organisation."""

    met: Callable[[ClusterConfig], bool]
    """Whether a stack does what it can forbid."""
    why: str
    """What the stack does."""
    todo: str


def _always(_config: ClusterConfig) -> bool:
    return True


def _unsigned(config: ClusterConfig) -> bool:
    servers = any(file_system.unsigned_servers for file_system in file_systems(config))
    return servers or any(not secure_boot(config, machine) for machine in machines(config))


_EXEMPT = "have the project exempted"

# fmt: off
POLICIES: Mapping[str, Policy] = {
    "compute.requireOsLogin": Policy(
        met=_always,
        why="machines have OS Login off: users are the stack file's, and root has the stack's own key alone",
        todo=_EXEMPT),
    "compute.disableSerialPortLogging": Policy(
        met=_always, why="consoles are kept by Cloud Logging, to outlive their machines", todo=_EXEMPT
    ),
    "compute.disableGuestAttributesAccess": Policy(
        met=_always, why="machines, and the image's builder, report by guest attributes how far they are", todo=_EXEMPT
    ),
    "compute.trustedImageProjects": Policy(
        met=_always, why="machines and the image's builder boot Ubuntu's images, EXAScaler's servers DDN's",
        todo="allow projects/ubuntu-os-cloud, with EXAScaler projects/ddn-public, and whose image `image.name` names"),
    "compute.requireShieldedVm": Policy(
        met=_unsigned, why="Secure Boot is off where drivers and Lustre clients are built, which nobody has signed",
        todo=_EXEMPT),
    "compute.vmExternalIpAccess": Policy(
        met=lambda config: config.login.public, why="login machines have public addresses",
        todo="allow them by name, or set `login.public: false` and log in by Identity-Aware Proxy"),
    "compute.restrictVpcPeering": Policy(
        met=lambda config: peered(config) and config.network.existing is None,
        why="Managed Lustre and Filestore are reached by a peering with Google's network",
        todo="allow the peering of servicenetworking.googleapis.com, or mount no such file system"),
    "compute.restrictCloudNATUsage": Policy(
        met=lambda config: config.network.nat and config.network.existing is None,
        why="machines get out by a NAT of the stack's",
        todo="allow the subnetwork, or name a network that has its own way out (`network.existing`)"),
    "iam.disableServiceAccountCreation": Policy(
        met=_always, why="each role of machine has a service account of its own", todo=_EXEMPT
    ),
    "gcp.resourceLocations": Policy(
        met=_always,
        why="secrets are replicated by Google, whose location is `global`; the rest is in the stack's region",
        todo="allow global, and the region"),
}
# fmt: on
"""By the constraint's name, without `constraints/`. Not among them, as no stack does what they forbid:
iam.disableServiceAccountKeyCreation (no account has keys), compute.disableSerialPortAccess (consoles are read, and
nobody logs in by them), storage.uniformBucketLevelAccess and storage.publicAccessPrevention (buckets are so)."""


def policies(config: ClusterConfig) -> tuple[str, ...]:
    """Names of the constraints that would refuse this stack where they are in force."""
    return tuple(name for name, one in POLICIES.items() if one.met(config))
