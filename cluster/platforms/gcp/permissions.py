"""Requirements of a stack on Google Cloud: services, roles of the person who runs `up`, organisation policies that
must not be in force, and permissions of machines that create other machines.

A test registers every stack and compares services and roles with its resources. What each policy forbids:
cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints. A preview makes no request to Google,
so it lists the policies that could refuse the stack, whether they are in force or not. Permissions of methods:
iann0036/iam-dataset 2073fa5, gcp/map.json; GoogleCloudPlatform/cluster-toolkit 0ee1b62,
community/modules/iam/service-account-profiles/main.tf.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.base import ServiceNeed
from cluster.platforms.gcp.filesystems.registry import file_systems, peered
from cluster.platforms.gcp.image import secure_boot
from cluster.roster import elastic_machines, host_name, machines
from cluster.slurm.power_saving import elastic_nodesets, repaired_nodesets

TUNNEL = "roles/iap.tunnelResourceAccessor"
NETWORKS = "roles/compute.networkAdmin"
CUSTOM_ROLES = "roles/iam.roleAdmin"
BUDGETS = "roles/billing.costsManager"
"""Role on a billing account: its budgets. Who has billing.resourcebudgets.write on a project, such as Owner, creates
those of this one project without it (cloud.google.com/billing/docs/how-to/budget-api-access-control)."""
ROLES = (
    "roles/compute.admin",
    "roles/iam.serviceAccountAdmin",
    "roles/iam.serviceAccountUser",
    "roles/resourcemanager.projectIamAdmin",
    "roles/secretmanager.admin",
    "roles/serviceusage.serviceUsageAdmin",
    "roles/storage.admin",
)
"""Roles that every stack requires. A machine acts as a service account, and the person who creates the machine must be
allowed to use that account (serviceAccountUser). Permissions of roles: cloud.google.com/iam/docs/roles-permissions.
Compute Admin contains all of Compute Engine with its networks, and nothing of Service Networking."""
SERVICES = ("cloudresourcemanager", "compute", "iam", "iap", "logging", "monitoring", "secretmanager", "storage")
"""Services for machines and networks, roles, logins, the operations agent, keys, the set-up's bucket."""
FIRST_SERVICE = "cloudresourcemanager.googleapis.com"
"""The service through which the provider reads every service that it has enabled, with the user's quota project, once
and without a retry (hashicorp/terraform-provider-google e03b7622, resource_google_project_service.go; issues 6101 and
11435). It is read so too, perhaps before it is in force: then this one step fails, and the next run continues."""


def roles(config: ClusterConfig) -> tuple[str, ...]:
    """Return the roles on the project that a person needs for `up`, `destroy` and the other commands, sorted."""
    needed = {*ROLES, *(role for need in _needs(config) for role in need.roles)}
    if peered(config) and config.network.existing is None:
        needed.add(NETWORKS)
    if not config.login.public:
        needed.add(TUNNEL)
    if elastic_nodesets(config) or repaired_nodesets(config):
        needed.add(CUSTOM_ROLES)
    return tuple(sorted(needed))


def services(config: ClusterConfig) -> tuple[str, ...]:
    """Return the names of the services that this stack uses, such as lustre.googleapis.com, sorted."""
    used = {*SERVICES, *(name for need in _needs(config) for name in need.services)}
    if peered(config):
        used.add("servicenetworking")
    if config.budget and config.budget.billing_account:
        used.add("billingbudgets")
    return tuple(f"{name}.googleapis.com" for name in sorted(used))


def _needs(config: ClusterConfig) -> list[ServiceNeed]:
    return [need for file_system in file_systems(config) for need in file_system.needs.values()]


_CREATE = (
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.images.useReadOnly",
    "compute.instances.create",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.instances.setTags",
    "compute.instanceTemplates.useReadOnly",
    "compute.subnetworks.use",
)
RECONCILE: Mapping[str, tuple[str, ...]] = {
    "instances.aggregatedList": ("compute.instances.list",),
    "instances.bulkInsert": _CREATE,
    "instances.delete": ("compute.instances.delete",),
    "instances.get": ("compute.instances.get",),
    "instances.getGuestAttributes": ("compute.instances.getGuestAttributes",),
    "instances.getSerialPortOutput": ("compute.instances.getSerialPortOutput",),
    "instances.insert": _CREATE,
    "instances.performMaintenance": ("compute.instances.performMaintenance",),
    "instances.reportHostAsFaulty": ("compute.instances.update",),
    "instances.reset": ("compute.instances.reset",),
    "zoneOperations.get": ("compute.zoneOperations.get",),
    "zoneOperations.list": ("compute.zoneOperations.list",),
}
"""Methods of Compute Engine that the reconcile loop on the controller calls (scripts/node/reconcile/compute_engine.py),
and the permissions that each requires. To act as the nodes' service account is a role on that account."""
_OF_TEMPLATE = (
    "compute.disks.create",
    "compute.images.useReadOnly",
    "compute.instances.create",
    "compute.instances.setMetadata",
    "compute.instanceTemplates.useReadOnly",
    "compute.subnetworks.use",
)
"""Permissions that Google requires for a group that refers to a template."""
FLEX: Mapping[str, tuple[str, ...]] = {
    "instanceGroupManagerResizeRequests.insert": ("compute.instanceGroupManagers.update",),
    "instanceGroupManagerResizeRequests.list": ("compute.instanceGroupManagers.get",),
    "instanceGroupManagers.delete": ("compute.instanceGroupManagers.delete", "compute.instanceGroups.delete"),
    "instanceGroupManagers.deleteInstances": ("compute.instanceGroupManagers.update",),
    "instanceGroupManagers.insert": (
        "compute.instanceGroupManagers.create",
        "compute.instanceGroupManagers.use",
        *_OF_TEMPLATE,
    ),
    "instanceGroupManagers.list": ("compute.instanceGroupManagers.list",),
    "instanceGroupManagers.patch": (
        "compute.instanceGroupManagers.get",
        "compute.instanceGroupManagers.update",
        *_OF_TEMPLATE,
    ),
}
"""The same for elastic nodes of flex start. A condition can't name instance groups
(cloud.google.com/iam/help/conditions/resource-policies): the role is for all groups of the project, and the loop checks
the owner of a group before it changes it. Deleting a group also deletes its instance group, which requires a permission
of its own."""
_OF_ELASTIC = ("instances.bulkInsert", "instances.insert", "instances.delete")
"""Methods that the loop calls for elastic nodes only."""
_MAINTAIN = "instances.performMaintenance"
"""Its permission is in no predefined role. Google refuses a custom role with a permission that does not exist."""
BINDINGS = 20
"""Largest number of conditions under which a policy binds one role to one account (cloud.google.com/iam/quotas). A
condition has at most 12 logical operators."""
PLACED = "compute.resourcePolicies.use"
"""Permission to create machines in a placement."""


def reconcile_permissions(config: ClusterConfig) -> list[str]:
    """Return the permissions of the custom role of a controller that creates machines, sorted."""
    ways = [way for name in elastic_nodesets(config) for way in config.nodesets[name].ways]
    flex = any(way.flex for way in ways)
    uses_placement = (
        any(way.placement for way in ways)
        or any(way.reservation.placement_policy for way in ways if way.reservation)
        or (flex and any(machine.machine_type.family.flex_placement for machine in elastic_machines(config)))
    )
    calls = {**RECONCILE, **(FLEX if flex else {})}
    return sorted(_permissions(config, calls) | ({PLACED} if uses_placement else set()))


def repair_permissions(config: ClusterConfig) -> list[str]:
    """Return the permissions of the custom role of a controller that repairs static nodes, sorted."""
    calls = {method: permissions for method, permissions in RECONCILE.items() if method not in _OF_ELASTIC}
    return sorted(_permissions(config, calls))


def _permissions(config: ClusterConfig, calls: Mapping[str, tuple[str, ...]]) -> set[str]:
    maintain = config.slurm.reconcile.maintain
    return {name for method, names in calls.items() if method != _MAINTAIN or maintain for name in names}


def reconcile_condition(config: ClusterConfig, nodeset: str) -> str:
    """Return the condition, in CEL, of such a role: instances and disks must have names of the nodeset. Other types are
    not limited: lists need a permission on the project, and templates, images and subnetworks have other names
    (cloud.google.com/iam/docs/configuring-resource-based-access)."""
    prefix = host_name(config, nodeset, 0).removesuffix("0")
    return _only(Instance=f".startsWith('{prefix}')", Disk=f".startsWith('{prefix}')")


def _only(*, Instance: str, Disk: str) -> str:  # noqa: N803 - Compute Engine's names of types
    """Return a condition on the names of instances and disks that holds for resources of all other types."""
    types = {"Instance": ("instances", Instance), "Disk": ("disks", Disk)}
    named = [
        f"(resource.type == 'compute.googleapis.com/{kind}' && resource.name.extract('/{folder}/{{name}}'){holds})"
        for kind, (folder, holds) in types.items()
    ]
    others = " && ".join(f"resource.type != 'compute.googleapis.com/{kind}'" for kind in types)
    return " || ".join([*named, f"({others})"])


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A constraint of an organisation's policies."""

    why: str
    """The property of the stack that the constraint can forbid."""
    todo: str = "have the project exempted"
    met: Callable[[ClusterConfig], bool] = lambda _: True
    """Returns whether a stack has that property."""


def _needs_unsigned_boot(config: ClusterConfig) -> bool:
    servers = any(file_system.unsigned_servers for file_system in file_systems(config))
    specs = (*machines(config), *elastic_machines(config))
    return servers or any(not secure_boot(config, spec) for spec in specs)


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
"""Policies by the constraint's name, without `constraints/`. No stack does what these others forbid:
iam.disableServiceAccountKeyCreation (no account has keys), compute.disableSerialPortAccess (consoles are read, and
nobody logs in by them), storage.uniformBucketLevelAccess and storage.publicAccessPrevention (buckets are so)."""


def policies(config: ClusterConfig) -> tuple[str, ...]:
    """Return the names of the constraints that would refuse this stack if they were in force."""
    return tuple(name for name, policy in POLICIES.items() if policy.met(config))
