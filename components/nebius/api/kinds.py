"""Kinds of resources of Nebius's API that a stack creates: immutable fields, states and timeouts of each.

Source: the API's own definitions (github.com/nebius/api, as the SDK 0.6.29 has them): `immutable` are the fields that
they mark so, `ready` and `failed` are values of the kind's `status.state`. Timeouts are our own, several times the
duration of Nebius's own recipe for Soperator (about 40 minutes for 2 GPU nodes).
"""

from collections.abc import Mapping
from dataclasses import dataclass

MINUTE = 60


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """A kind of resource."""

    name: str
    """The message in the API, such as "NodeGroup": the client is `<name>ServiceClient`, its inputs `<name>Spec`."""
    module: str
    """The package of the API below `nebius.api.nebius`, such as "mk8s.v1"."""
    listing: str
    """The request that lists the objects of a parent."""
    list_method: str = "list"
    items: str = "items"
    """The field of its answer that has the objects."""
    parent: str = "Project"
    """The kind of the object in `parent_id`."""
    immutable: tuple[str, ...] = ()
    """Dotted paths in the spec, whose change replaces the resource."""
    renamable: bool = True
    """True if an update may change `metadata.name`."""
    updatable: bool = True
    """True if the API has an update at all."""
    identity: tuple[str, ...] = ()
    """Fields of the spec that identify it beside its parent, if the API gives it no unique name."""
    ready: frozenset[str] = frozenset()
    """States in which it can be used; empty if the kind has no state and can be used when its operation has ended."""
    failed: frozenset[str] = frozenset()
    """States that it does not leave by itself."""
    deleting: frozenset[str] = frozenset({"DELETING"})
    """States of a deleted object that the API still returns."""
    create_seconds: int = 10 * MINUTE
    update_seconds: int = 10 * MINUTE
    delete_seconds: int = 15 * MINUTE
    """Timeout of a deletion; of what node groups use, as long as their deletion may take."""
    fresh_seconds: int = 0
    """Time for which NOT_FOUND and PERMISSION_DENIED of a creation are retried, because IAM may not have a new account
    or group everywhere yet. The recipe waits up to 150 seconds before it makes a new account a member."""
    holds_data: bool = False
    """True if it may hold data that can't be created again, so it is kept even in a failed state."""
    order: int = 0
    """The order in which a killed run's leftovers are deleted: lower numbers first."""

    @property
    def unique(self) -> bool:
        """True if names are unique among those of one parent, so that a replacement is deleted before it is created."""
        return not self.identity


_READY, _ERROR = frozenset({"READY"}), frozenset({"ERROR"})

_ROWS = (
    ResourceKind(name="Network", module="vpc.v1", listing="ListNetworksRequest", ready=_READY, order=60),
    ResourceKind(
        name="Subnet", module="vpc.v1", listing="ListSubnetsRequest", ready=_READY, order=50,
        # The definitions do not mark it as immutable, but the API can't move a subnet.
        immutable=("network_id",),
    ),
    ResourceKind(
        name="Allocation", module="vpc.v1", listing="ListAllocationsRequest", order=40,
        ready=frozenset({"ALLOCATED", "ASSIGNED"}), immutable=("ipv4_private", "ipv4_public"),
    ),
    ResourceKind(
        name="Filesystem", module="compute.v1", listing="ListFilesystemsRequest", order=40, holds_data=True,
        ready=_READY, failed=_ERROR,
        immutable=("block_size_bytes", "type"), create_seconds=20 * MINUTE, update_seconds=20 * MINUTE,
        delete_seconds=60 * MINUTE,
    ),
    ResourceKind(
        name="GpuCluster", module="compute.v1", listing="ListGpuClustersRequest", order=40,
        immutable=("infiniband_fabric",), delete_seconds=60 * MINUTE,
    ),
    ResourceKind(
        name="Disk", module="compute.v1", listing="ListDisksRequest", order=40, holds_data=True, ready=_READY,
        failed=frozenset({"ERROR", "BROKEN"}),
        immutable=(
            "block_size_bytes", "type", "source_image_id", "source_image_family", "source_snapshot_id",
            "disk_encryption",
        ),
    ),
    ResourceKind(
        name="Cluster", module="mk8s.v1", listing="ListClustersRequest", order=30, ready=frozenset({"RUNNING"}),
        immutable=("control_plane.subnet_id", "kube_network.service_cidrs"),
        create_seconds=45 * MINUTE, update_seconds=60 * MINUTE, delete_seconds=45 * MINUTE,
    ),
    ResourceKind(
        name="NodeGroup", module="mk8s.v1", listing="ListNodeGroupsRequest", parent="Cluster", order=20,
        ready=frozenset({"RUNNING"}), immutable=("template.nvlink.nvl_instance_group_id",),
        # A change of the template recreates node after node, each of which may drain for ten minutes.
        create_seconds=60 * MINUTE, update_seconds=180 * MINUTE, delete_seconds=60 * MINUTE,
    ),
    ResourceKind(name="ServiceAccount", module="iam.v1", listing="ListServiceAccountRequest", order=30),
    ResourceKind(
        name="Group", module="iam.v1", listing="ListGroupsRequest", order=30,
        ready=frozenset({"ACTIVE"}), deleting=frozenset(),
    ),
    ResourceKind(
        name="GroupMembership", module="iam.v1", listing="ListGroupMembershipsRequest", list_method="list_members",
        items="memberships", parent="Group", order=20, updatable=False, identity=("member_id",),
        immutable=("member_id",), fresh_seconds=2 * MINUTE,
    ),
    ResourceKind(
        name="AccessPermit", module="iam.v1", listing="ListAccessPermitRequest", parent="Group", order=20,
        updatable=False, identity=("resource_id", "role"), immutable=("resource_id", "role"), fresh_seconds=2 * MINUTE,
    ),
    ResourceKind(
        name="AccessKey", module="iam.v2", listing="ListAccessKeysRequest", order=10, ready=frozenset({"ACTIVE"}),
        fresh_seconds=2 * MINUTE,
        failed=frozenset({"EXPIRED"}), deleting=frozenset({"DELETING", "DELETED"}),
        immutable=("account", "expires_at", "secret_delivery_mode"),
    ),
    ResourceKind(
        name="Bucket", module="storage.v1", listing="ListBucketsRequest", order=40, holds_data=True, renamable=False,
        # A deleted bucket is kept for 7 days and can be undeleted; its name is taken until it is purged.
        ready=frozenset({"ACTIVE"}), deleting=frozenset({"SCHEDULED_FOR_DELETION"}),
        immutable=("filesystem_bucket",),
    ),
)  # fmt: skip

KINDS: Mapping[str, ResourceKind] = {kind.name: kind for kind in _ROWS}
