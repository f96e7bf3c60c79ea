"""Calls of the API for one object of any kind: get, list, find, and the starts of operations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.nebius.api import client
from components.nebius.api.compare import at, same
from components.nebius.api.errors import NOT_FOUND, NebiusError, of_status
from components.nebius.api.kinds import Kind
from components.nebius.api.messages import message_class, plain, spec_message

OWNER_LABEL = "hpc-owner"
"""Holds the id of the state that created the object."""
IDEMPOTENCY_KEY = "x-idempotency-key"
"""Header: the API answers a second request with the same key as it answered the first."""
PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the stack wants of one object."""

    kind: Kind
    parent_id: str
    name: str
    spec: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    """With the owner's."""
    endpoint: str = ""

    @property
    def title(self) -> str:
        """For messages: the kind and the name."""
        return title(self.kind, self.name)


def title(kind: Kind, name: str) -> str:
    """For messages: the kind and a name or an id."""
    return f"{kind.name} {name}".rstrip()


def service(kind: Kind, endpoint: str) -> Any:  # noqa: ANN401
    """The client of a kind."""
    return message_class(kind, f"{kind.name}ServiceClient")(client.sdk(endpoint))


def _unless_gone(doing: str, method: Any, request: Any) -> Any | None:  # noqa: ANN401
    """The answer to a call; None if there is no such object."""
    try:
        return client.call(doing, method, request)
    except NebiusError as error:
        if error.code == NOT_FOUND:
            return None
        raise


def get(kind: Kind, id_: str, endpoint: str) -> Any | None:  # noqa: ANN401
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


def find(wanted: Wanted) -> Any | None:  # noqa: ANN401
    """The object of that name; of a kind without unique names, the one whose spec has the same identity."""
    rows = list_all(wanted.kind, wanted.parent_id, wanted.endpoint)
    if wanted.kind.unique:
        return next((one for one in rows if one.metadata.name == wanted.name), None)
    paths = wanted.kind.identity
    return next(
        (
            one for one in rows
            if all(same(at(plain(one.spec), path), at(wanted.spec, path)) for path in paths)
            and state_of(one) not in wanted.kind.deleting
        ),
        None,
    )  # fmt: skip


def start_create(wanted: Wanted, key: str) -> Any:  # noqa: ANN401
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


def start_update(kind: Kind, metadata: Any, spec: Any, endpoint: str) -> Any:  # noqa: ANN401
    """Start an update from metadata and a spec that were fetched and changed."""
    request = message_class(kind, f"Update{kind.name}Request")(metadata=metadata, spec=spec)
    return client.call(f"update {title(kind, metadata.name or metadata.id)}", service(kind, endpoint).update, request)


def start_delete(kind: Kind, id_: str, endpoint: str) -> Any | None:  # noqa: ANN401
    """Start the deletion; None if there is nothing to delete."""
    request = message_class(kind, f"Delete{kind.name}Request")(id=id_)
    return _unless_gone(f"delete {title(kind, id_)}", service(kind, endpoint).delete, request)


def start_undelete(kind: Kind, id_: str, endpoint: str) -> Any:  # noqa: ANN401
    """Start to restore an object that is kept after its deletion."""
    request = message_class(kind, f"Undelete{kind.name}Request")(id=id_)
    return client.call(f"undelete {title(kind, id_)}", service(kind, endpoint).undelete, request)


def last_operation(kind: Kind, id_: str, endpoint: str) -> Any | None:  # noqa: ANN401
    """The newest operation on an object, which an interrupted run may have left under way."""
    from nebius.aio.operation import Operation
    from nebius.aio.route import Route
    from nebius.api.nebius.common.v1 import ListOperationsRequest

    made = service(kind, endpoint)
    method = made.operation_service().list
    answer = client.call(
        f"list operations of {title(kind, id_)}", method, ListOperationsRequest(resource_id=id_, page_size=PAGE)
    )
    newest = max(answer.operations, key=lambda one: one.created_at, default=None)
    if newest is None:
        return None
    # The service that started it has its operations as well.
    route = Route(made.__service_name__, "Create", made.__api_service_name__, made.__registry__)
    return Operation(route, client.sdk(endpoint), newest)


def state_of(message: Any) -> str:  # noqa: ANN401
    """The name of its `status.state`; empty for kinds without one."""
    return getattr(getattr(getattr(message, "status", None), "state", None), "name", "")


def owner_of(message: Any) -> str:  # noqa: ANN401
    """The state that created it, or nothing."""
    return dict(message.metadata.labels).get(OWNER_LABEL, "")


def failure(doing: str, operation: Any) -> NebiusError | None:  # noqa: ANN401
    """The error of an operation that has ended without success."""
    from nebius.aio.operation import OperationError

    if not operation.done() or operation.successful():
        return None
    return of_status(doing, OperationError(operation).status)
