"""Calls of the API for one object of any kind: get, list, find, and the starts of operations."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.nebius.api import client
from components.nebius.api.client import NOT_FOUND, NebiusError, nebius_error, of_status
from components.nebius.api.kinds import Kind, kind_of
from components.nebius.api.specs import Message, message_class, plain, same, spec_message, value_at

OWNER_LABEL = "hpc-owner"
"""Holds the id of the state that created the object."""
IDEMPOTENCY_KEY = "x-idempotency-key"
"""Header: the API answers a second request with the same key as it answered the first."""
PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An object as the stack describes it."""

    kind: Kind
    parent_id: str
    name: str
    spec: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels, with the owner's."""
    endpoint: str = ""

    @property
    def title(self) -> str:
        """The kind and the name, for messages."""
        return title(self.kind, self.name)


def title(kind: Kind, name: str) -> str:
    """The kind and a name or an id, for messages."""
    return f"{kind.name} {name}".rstrip()


def service(kind: Kind, endpoint: str) -> Message:
    """The client of a kind."""
    return message_class(kind, f"{kind.name}ServiceClient")(client.sdk(endpoint))


def _unless_gone(doing: str, method: Message, request: Message) -> Message | None:
    try:
        return client.call(doing, method, request)
    except NebiusError as error:
        if error.code == NOT_FOUND:
            return None
        raise


def get(kind: Kind, id_: str, endpoint: str) -> Message | None:
    """The object's message, or None if there is none."""
    request = message_class(kind, f"Get{kind.name}Request")(id=id_)
    return _unless_gone(f"read {title(kind, id_)}", service(kind, endpoint).get, request)


def list_all(kind: Kind, parent_id: str, endpoint: str) -> Iterator[Any]:
    """Messages of all objects of a parent; none if there is no such parent."""
    method = getattr(service(kind, endpoint), kind.list_method)
    token = ""
    while True:
        request = message_class(kind, kind.listing)(parent_id=parent_id, page_size=PAGE, page_token=token)
        try:
            answer = client.call(f"list each {kind.name} of {parent_id}", method, request)
        except NebiusError as error:
            if error.code == NOT_FOUND:
                return
            raise
        yield from getattr(answer, kind.items)
        token = answer.next_page_token
        if not token:
            return


def find(wanted: Wanted) -> Message | None:
    """The object of that name; of a kind without unique names, the one whose spec has the same identity."""
    rows = list_all(wanted.kind, wanted.parent_id, wanted.endpoint)
    if wanted.kind.unique:
        return next((row for row in rows if row.metadata.name == wanted.name), None)
    paths = wanted.kind.identity
    return next(
        (
            row
            for row in rows
            if all(same(value_at(plain(row.spec), path), value_at(wanted.spec, path)) for path in paths)
            and state_of(row) not in wanted.kind.deleting
        ),
        None,
    )


def start_create(wanted: Wanted, key: str) -> Message:
    """Start the creation; the same key starts it once."""
    from nebius.api.nebius.common.v1 import ResourceMetadata

    # A membership, a permit and a release are identified by their specs, and have no name.
    name = wanted.name if wanted.kind.unique else ""
    request = message_class(wanted.kind, f"Create{wanted.kind.name}Request")(
        metadata=ResourceMetadata(parent_id=wanted.parent_id, name=name, labels=dict(wanted.labels)),
        spec=spec_message(wanted.kind, wanted.spec),
    )
    method = service(wanted.kind, wanted.endpoint).create
    return client.call(f"create {wanted.title}", method, request, metadata=[(IDEMPOTENCY_KEY, key)])


def start_update(kind: Kind, metadata: Message, spec: Message, endpoint: str) -> Message:
    """Start an update from metadata and a spec that were fetched and changed."""
    request = message_class(kind, f"Update{kind.name}Request")(metadata=metadata, spec=spec)
    return client.call(f"update {title(kind, metadata.name or metadata.id)}", service(kind, endpoint).update, request)


def start_delete(kind: Kind, id_: str, endpoint: str) -> Message | None:
    """Start the deletion; None if there is nothing to delete."""
    request = message_class(kind, f"Delete{kind.name}Request")(id=id_)
    return _unless_gone(f"delete {title(kind, id_)}", service(kind, endpoint).delete, request)


def start_undelete(kind: Kind, id_: str, endpoint: str) -> Message:
    """Start to restore an object that is kept after its deletion."""
    request = message_class(kind, f"Undelete{kind.name}Request")(id=id_)
    return client.call(f"undelete {title(kind, id_)}", service(kind, endpoint).undelete, request)


def last_operation(kind: Kind, id_: str, endpoint: str) -> Message | None:
    """The newest operation on an object, which an interrupted run may have left under way."""
    from nebius.aio.operation import Operation
    from nebius.aio.route import Route
    from nebius.api.nebius.common.v1 import ListOperationsRequest

    made = service(kind, endpoint)
    method = made.operation_service().list
    answer = client.call(
        f"list operations of {title(kind, id_)}", method, ListOperationsRequest(resource_id=id_, page_size=PAGE)
    )
    newest = max(answer.operations, key=lambda operation: operation.created_at, default=None)
    if newest is None:
        return None
    # The service that started it has its operations as well.
    route = Route(made.__service_name__, "Create", made.__api_service_name__, made.__registry__)
    return Operation(route, client.sdk(endpoint), newest)


def state_of(message: Message) -> str:
    """The name of its `status.state`; empty for kinds without one."""
    return getattr(getattr(getattr(message, "status", None), "state", None), "name", "")


def owner_of(message: Message) -> str:
    """The state that created it, or nothing."""
    return dict(message.metadata.labels).get(OWNER_LABEL, "")


def failure(doing: str, operation: Message) -> NebiusError | None:
    """The error of an operation that has ended without success."""
    from nebius.aio.operation import OperationError

    if not operation.done() or operation.successful():
        return None
    return of_status(doing, OperationError(operation).status)


@dataclass(frozen=True)
class Quota:
    """A quota of a tenant or a project (quotas.v1, QuotaAllowance)."""

    name: str
    region: str
    unit: str
    limit: int
    free: int


@dataclass(frozen=True)
class Room:
    """The number of nodes of a preset that a fabric has free at present (capacity.v1, ResourceAdvice)."""

    region: str
    fabric: str
    platform: str
    preset: str
    counts: Mapping[str, int]
    """Numbers by availability: reserved, on_demand, preemptible; only those whose figures are fresh."""

    def available(self, ways: Iterable[str]) -> int:
        """Return how many can be had of some of them."""
        return sum(self.counts.get(way, 0) for way in ways)


def first_subnet(project_id: str, endpoint: str = "") -> str:
    """The id of a project's first subnet, as Nebius's own recipe for Soperator takes it."""
    row = next(list_all(kind_of("Subnet"), project_id, endpoint), None)
    if row is None:
        raise nebius_error(
            f"find a subnet of {project_id}",
            ["the project has none"],
            "set `subnet: create`, or the id of one, in the section `nebius`",
        )
    return row.metadata.id


def exists(kind: str, id_: str, endpoint: str = "") -> bool:
    return get(kind_of(kind), id_, endpoint) is not None


def objects_of(kind: str, parent_id: str, endpoint: str = "") -> list[dict[str, Any]]:
    """Return all objects of a parent, as JSON."""
    return [plain(message) for message in list_all(kind_of(kind), parent_id, endpoint)]


def quotas(parent_id: str, endpoint: str = "") -> list[Quota]:
    """The quotas of a tenant or a project."""
    from nebius.api.nebius.quotas.v1 import ListQuotaAllowancesRequest, QuotaAllowanceServiceClient

    service = QuotaAllowanceServiceClient(client.sdk(endpoint))
    rows = _pages(f"list quotas of {parent_id}", service.list, ListQuotaAllowancesRequest, parent_id=parent_id)
    # One without a limit has none at this level, which is not a limit of 0.
    return [_quota(row) for row in rows if row.check_presence("spec") and row.spec.check_presence("limit")]


def _quota(row: Message) -> Quota:
    limit = int(row.spec.limit or 0)
    # The API may leave the usage out and give its share alone.
    used = int(row.status.usage or 0) or round(float(row.status.usage_percentage or 0) * limit)
    return Quota(row.metadata.name, row.spec.region, row.status.unit, limit, max(0, limit - used))


def kubernetes_versions(endpoint: str = "") -> list[dict[str, Any]]:
    """Versions of Kubernetes (mk8s.v1, ClusterControlPlaneVersion), as JSON."""
    from nebius.api.nebius.mk8s.v1 import ClusterServiceClient, ListClusterControlPlaneVersionsRequest

    method = ClusterServiceClient(client.sdk(endpoint)).list_control_plane_versions
    answer = client.call("list versions of Kubernetes", method, ListClusterControlPlaneVersionsRequest())
    return [plain(item) for item in answer.items]


def node_images(version: str, platform: str, endpoint: str = "") -> list[dict[str, str]]:
    """Operating system and preset of drivers of each image that nodes of a platform can have, with a version of
    Kubernetes (mk8s.v1, NodeGroupCompatibilityMatrix). Node groups here have the cluster's version."""
    from nebius.api.nebius.mk8s.v1 import GetNodeGroupCompatibilityMatrixRequest, NodeGroupServiceClient

    method = NodeGroupServiceClient(client.sdk(endpoint)).get_compatibility_matrix
    request = GetNodeGroupCompatibilityMatrixRequest(cluster_kubernetes_version=version, platform=platform)
    answer = client.call(f"read the node images of {platform}", method, request)
    return [
        {"os": item.os, "drivers_preset": item.drivers_preset}
        for row in answer.versions
        if row.kubernetes_version.removeprefix("v").split(".")[:2] == version.split(".")
        for item in row.items
        if not item.compatible_platforms or platform in item.compatible_platforms
    ]


def rooms(tenant_id: str, endpoint: str = "") -> list[Room]:
    """Return how many nodes of each preset a tenant can have at present, by region and fabric (ResourceAdvice)."""
    from nebius.api.nebius.capacity.v1 import ListResourceAdviceRequest, ResourceAdviceServiceClient

    service, doing = ResourceAdviceServiceClient(client.sdk(endpoint)), f"read capacity advice of {tenant_id}"
    try:
        rows = [plain(row) for row in _pages(doing, service.list, ListResourceAdviceRequest, parent_id=tenant_id)]
    except NebiusError as error:
        if error.code in (NOT_FOUND, "UNIMPLEMENTED"):
            return []  # not every region gives advice
        raise
    return [room for row in rows if (room := _room(row.get("spec", {}), row.get("status", {}))).counts]


def _room(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Room:
    machine = spec.get("compute_instance", {})
    fresh = {
        way: int(count.get("available", 0))
        for way, count in status.items()
        if str(count.get("data_state", "")).endswith("FRESH")
    }
    preset = machine.get("preset", {}).get("name", "")
    return Room(spec.get("region", ""), spec.get("fabric", ""), machine.get("platform", ""), preset, fresh)


def _pages(doing: str, method: Message, request: Message, **fields: str) -> Iterator[Message]:
    token = ""
    while True:
        answer = client.call(doing, method, request(page_size=PAGE, page_token=token, **fields))
        yield from answer.items
        token = answer.next_page_token
        if not token:
            return
