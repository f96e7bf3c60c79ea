"""Calls of the API: get, list, find, create, update and delete objects of any kind; quotas, versions and capacity."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.platforms.nebius.cloud_request import UNKNOWN_USAGE, FreeCapacity, Quota
from cluster.platforms.nebius.names import OWNER_LABEL
from components.nebius.api import client
from components.nebius.api.client import NOT_FOUND, NebiusError, nebius_error, status_error
from components.nebius.api.kinds import KINDS, ResourceKind
from components.nebius.api.specs import Message, differing_paths, message_class, spec_message, to_json

PAGE = 1000
"""Objects of one page of a list."""


@dataclass(frozen=True, kw_only=True)
class Desired:
    """An object as the stack describes it."""

    kind: ResourceKind
    parent_id: str
    name: str
    spec: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels, the owner's included."""

    @property
    def title(self) -> str:
        """Kind and name, for messages."""
        return title(self.kind, self.name)


def title(kind: ResourceKind, name: str) -> str:
    """Return the kind and a name or an id, for messages."""
    return f"{kind.name} {name}".rstrip()


def _service(kind: ResourceKind) -> Message:
    """Return the SDK's client of a kind."""
    return message_class(kind, f"{kind.name}ServiceClient")(client.sdk())


def _call_unless_gone(action: str, method: Message, request: Message) -> Message | None:
    """Call a method and return its answer; None if there is no such object."""
    try:
        return client.call(action, method, request)
    except NebiusError as error:
        if error.code == NOT_FOUND:
            return None
        raise


def get(kind: ResourceKind, id_: str) -> Message | None:
    """Return the object's message; None if there is no such object."""
    request = message_class(kind, f"Get{kind.name}Request")(id=id_)
    return _call_unless_gone(f"read {title(kind, id_)}", _service(kind).get, request)


def list_all(kind: ResourceKind, parent_id: str) -> Iterator[Any]:
    """Yield the messages of all objects of a parent; none if there is no such parent."""
    method, request = getattr(_service(kind), kind.list_method), message_class(kind, kind.listing)
    try:
        yield from _pages(f"list each {kind.name} of {parent_id}", method, request, parent_id, kind.items)
    except NebiusError as error:
        if error.code != NOT_FOUND:
            raise


def _pages(
    action: str, method: Message, request: Message, parent_id: str, items: str = "items", *, parent: str = "parent_id"
) -> Iterator[Message]:
    """Yield the rows of a list, from the field `items` of all its pages."""
    token = ""
    while True:
        answer = client.call(action, method, request(**{parent: parent_id}, page_size=PAGE, page_token=token))
        yield from getattr(answer, items)
        token = answer.next_page_token
        if not token:
            return


def find(desired: Desired) -> Message | None:
    """Return the object of that name; of a kind without unique names, the one whose spec has the same identity."""
    kind, rows = desired.kind, list_all(desired.kind, desired.parent_id)
    if kind.unique:
        return next((row for row in rows if row.metadata.name == desired.name), None)
    for row in rows:
        spec = to_json(row.spec)
        if state_of(row) not in kind.deleting and not differing_paths(spec, desired.spec, kind.identity):
            return row
    return None


def start_create(desired: Desired, key: str) -> Message:
    """Start the creation and return its operation. The API answers a second request with the same key as the first."""
    from nebius.api.nebius.common.v1 import ResourceMetadata

    kind = desired.kind
    # A membership, a permit and a release are identified by their specs, and have no name.
    name = desired.name if kind.unique else ""
    request = message_class(kind, f"Create{kind.name}Request")(
        metadata=ResourceMetadata(parent_id=desired.parent_id, name=name, labels=dict(desired.labels)),
        spec=spec_message(kind, desired.spec),
    )
    method = _service(kind).create
    return client.call(f"create {desired.title}", method, request, metadata=[("x-idempotency-key", key)])


def start_update(kind: ResourceKind, metadata: Message, spec: Message) -> Message:
    """Start an update from metadata and a spec that were fetched and changed; return its operation."""
    request = message_class(kind, f"Update{kind.name}Request")(metadata=metadata, spec=spec)
    return client.call(f"update {title(kind, metadata.name or metadata.id)}", _service(kind).update, request)


def start_delete(kind: ResourceKind, id_: str) -> Message | None:
    """Start the deletion and return its operation; None if there is no such object."""
    request = message_class(kind, f"Delete{kind.name}Request")(id=id_)
    return _call_unless_gone(f"delete {title(kind, id_)}", _service(kind).delete, request)


def last_operation(kind: ResourceKind, id_: str) -> Message | None:
    """Return the newest operation on an object, which an interrupted run may have left under way."""
    from nebius.aio.operation import Operation
    from nebius.aio.route import Route
    from nebius.api.nebius.common.v1 import ListOperationsRequest

    service = _service(kind)
    request = ListOperationsRequest(resource_id=id_, page_size=PAGE)
    answer = client.call(f"list operations of {title(kind, id_)}", service.operation_service().list, request)
    newest = max(answer.operations, key=lambda operation: operation.created_at, default=None)
    if newest is None:
        return None
    # The service that started the operation can poll it as well.
    route = Route(service.__service_name__, "Create", service.__api_service_name__, service.__registry__)
    return Operation(route, client.sdk(), newest)


def state_of(message: Message) -> str:
    """Return the name of `status.state`; an empty text for kinds without a state."""
    return getattr(getattr(getattr(message, "status", None), "state", None), "name", "")


def owner_of(message: Message) -> str:
    """Return the id of the state that created the object; an empty text if it has no such label."""
    return dict(message.metadata.labels).get(OWNER_LABEL, "")


def failure(action: str, operation: Message) -> NebiusError | None:
    """Return the error of an operation that has ended without success."""
    from nebius.aio.operation import OperationError

    if not operation.done() or operation.successful():
        return None
    return status_error(action, OperationError(operation).status)


def first_subnet(project_id: str) -> str:
    """Return the id of a project's first subnet, which Nebius's own recipe for Soperator uses as well."""
    row = next(list_all(KINDS["Subnet"], project_id), None)
    if row is None:
        raise nebius_error(
            f"find a subnet of {project_id}",
            ["the project has none"],
            "set `subnet: create`, or the id of one, in the section `nebius`",
        )
    return row.metadata.id


def exists(kind: str, id_: str) -> bool:
    """Return whether there is an object of that id."""
    return get(KINDS[kind], id_) is not None


def quotas(parent_id: str) -> list[Quota]:
    """Return the quotas of a tenant or a project that have a limit and a known usage."""
    from nebius.api.nebius.quotas.v1 import ListQuotaAllowancesRequest, QuotaAllowanceServiceClient

    service = QuotaAllowanceServiceClient(client.sdk())
    rows = _pages(f"list quotas of {parent_id}", service.list, ListQuotaAllowancesRequest, parent_id)
    # A quota without a limit has none at this level, which is not a limit of 0. A region may be out of reach, and its
    # usage with it (quotas.v1, UsageState).
    limited = (row for row in rows if row.check_presence("spec") and row.spec.check_presence("limit"))
    return [_quota(row) for row in limited if row.status.usage_state.name != UNKNOWN_USAGE]


def _quota(row: Message) -> Quota:
    limit = int(row.spec.limit or 0)
    # The API may return the usage as a percentage alone.
    used = int(row.status.usage or 0) or round(float(row.status.usage_percentage or 0) * limit)
    return Quota(row.metadata.name, row.spec.region, row.status.unit, limit, max(0, limit - used))


def kubernetes_versions() -> list[dict[str, Any]]:
    """Return the versions of Kubernetes (mk8s.v1, ClusterControlPlaneVersion), as JSON."""
    from nebius.api.nebius.mk8s.v1 import ClusterServiceClient, ListClusterControlPlaneVersionsRequest

    method = ClusterServiceClient(client.sdk()).list_control_plane_versions
    answer = client.call("list versions of Kubernetes", method, ListClusterControlPlaneVersionsRequest())
    return [to_json(item) for item in answer.items]


def node_images(version: str, platform: str) -> list[dict[str, str]]:
    """Return `os` and `drivers_preset` of each image that nodes of a platform can have with a version of Kubernetes
    (mk8s.v1, NodeGroupCompatibilityMatrix). Node groups have the cluster's version."""
    from nebius.api.nebius.mk8s.v1 import GetNodeGroupCompatibilityMatrixRequest, NodeGroupServiceClient

    method = NodeGroupServiceClient(client.sdk()).get_compatibility_matrix
    request = GetNodeGroupCompatibilityMatrixRequest(cluster_kubernetes_version=version, platform=platform)
    answer = client.call(f"read the node images of {platform}", method, request)
    return [
        {"os": item.os, "drivers_preset": item.drivers_preset}
        for row in answer.versions
        if row.kubernetes_version.removeprefix("v").split(".")[:2] == version.split(".")
        for item in row.items
        if not item.compatible_platforms or platform in item.compatible_platforms
    ]


def capacities(tenant_id: str) -> list[FreeCapacity]:
    """Return how many nodes of each preset a tenant can have at present, by region and fabric (ResourceAdvice)."""
    from nebius.api.nebius.capacity.v1 import ListResourceAdviceRequest, ResourceAdviceServiceClient

    service, action = ResourceAdviceServiceClient(client.sdk()), f"read capacity advice of {tenant_id}"
    try:
        rows = [to_json(row) for row in _pages(action, service.list, ListResourceAdviceRequest, tenant_id)]
    except NebiusError as error:
        if error.code in (NOT_FOUND, "UNIMPLEMENTED"):
            return []  # not every region gives advice
        raise
    return [_capacity(row.get("spec", {}), row.get("status", {})) for row in rows]


def _capacity(spec: Mapping[str, Any], status: Mapping[str, Any]) -> FreeCapacity:
    machine = spec.get("compute_instance", {})
    fresh = {
        way: int(count.get("available", 0))
        for way, count in status.items()
        if str(count.get("data_state", "")).endswith("FRESH")
    }
    preset = machine.get("preset", {}).get("name", "")
    return FreeCapacity(spec.get("region", ""), spec.get("fabric", ""), machine.get("platform", ""), preset, fresh)


def listed(kind: str, parent_id: str) -> list[dict[str, Any]]:
    """Return all objects of a kind, as JSON."""
    return [to_json(row) for row in list_all(KINDS[kind], parent_id)]


def platforms(project_id: str) -> list[dict[str, Any]]:
    """Return the platforms of a project's region with their presets (compute.v1, Platform), as JSON."""
    from nebius.api.nebius.compute.v1 import ListPlatformsRequest, PlatformServiceClient

    method = PlatformServiceClient(client.sdk()).list
    return [to_json(row) for row in _pages(f"list platforms of {project_id}", method, ListPlatformsRequest, project_id)]


def project(id_: str) -> dict[str, Any] | None:
    """Return a project (iam.v1, Container), as JSON; None if there is no such project."""
    from nebius.api.nebius.iam.v1 import GetProjectRequest, ProjectServiceClient

    method = ProjectServiceClient(client.sdk()).get
    answer = _call_unless_gone(f"read project {id_}", method, GetProjectRequest(id=id_))
    return to_json(answer) if answer else None


def capacity_block(id_: str) -> dict[str, Any] | None:
    """Return a capacity block group (capacity.v1), as JSON; None if there is no such group."""
    from nebius.api.nebius.capacity.v1 import CapacityBlockGroupServiceClient, GetCapacityBlockGroupRequest

    method = CapacityBlockGroupServiceClient(client.sdk()).get
    answer = _call_unless_gone(f"read capacity block group {id_}", method, GetCapacityBlockGroupRequest(id=id_))
    return to_json(answer) if answer else None


def roles(tenant_id: str) -> list[tuple[str, str]]:
    """Return the roles of the caller in a tenant, each with the id of the tenant, project or resource that it is for.

    Roles are those of groups. Source: docs.nebius.com/iam/authorization/groups (2026): the tenant's default groups
    `auditors`, `viewers`, `editors` and `admins` have the role of that name in the tenant, others have permits.
    """
    from nebius.api.nebius.iam.v1 import GroupMembershipServiceClient, ListMemberOfRequest

    profile = to_json(client.call("read your profile", client.sdk().whoami))
    accounts = [row for row in profile.get("user_profile", {}).get("tenants", ()) if row.get("tenant_id") == tenant_id]
    account = profile.get("service_account_profile", {}).get("info", {}).get("metadata", {}).get("id")
    subject = accounts[0]["tenant_user_account_id"] if accounts else account
    if not subject:
        raise nebius_error("list your groups", [f"Nebius does not name your account in {tenant_id}"], "")
    method = GroupMembershipServiceClient(client.sdk()).list_member_of
    groups = _pages("list your groups", method, ListMemberOfRequest, subject, parent="subject_id")
    found = list[tuple[str, str]]()
    for group in groups:
        name, parent = group.metadata.name, group.metadata.parent_id
        if parent == tenant_id and name in DEFAULT_GROUPS:
            found.append((DEFAULT_GROUPS[name], tenant_id))
        else:
            permits = list_all(KINDS["AccessPermit"], group.metadata.id)
            found += [(permit.spec.role, permit.spec.resource_id) for permit in permits]
    return found


DEFAULT_GROUPS = {"auditors": "auditor", "viewers": "viewer", "editors": "editor", "admins": "admin"}
