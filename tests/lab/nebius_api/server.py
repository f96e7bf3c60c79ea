"""The stand-in as a gRPC server: paths, credentials, errors and operations, and what exists before any stack."""

import importlib
import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from nebius.api.google.rpc import Status
from nebius.api.nebius.common.v1 import Operation, ServiceError
from nebius.api.nebius.mk8s.v1 import ProgressData

from components.nebius.api.specs import to_full_json
from tests.lab.nebius_api import status
from tests.lab.nebius_api.facts import CLUSTERABLE, DRIVERS, OBJECT_KINDS, PRESETS, VERSIONS, ObjectKind
from tests.lab.nebius_api.faults import Fault, RefusedError, bad_request, refusal
from tests.lab.nebius_api.methods import HEADER, Methods, parse
from tests.lab.nebius_api.object_storage import ObjectStorage
from tests.lab.nebius_api.status import Store, moment

GROUPS = ("admins", "auditors", "editors", "viewers")
"""The groups of every tenant."""


@dataclass
class Place:
    """Tenant, region, quotas and versions of the stand-in."""

    tenant: str = "tenant-e00rehearsal"
    region: str = "eu-north1"
    quotas: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: {"compute.instance.gpu.h100": (64, 0), "mk8s.cluster.count": (4, 0)}
    )
    """Limit and usage, by the quota's name."""
    advice: tuple[Mapping[str, Any], ...] = ()
    """Rows of ResourceAdvice as JSON."""
    deprecated: tuple[str, ...] = tuple(name for name, version in VERSIONS.items() if version.deprecated)
    """Versions of Kubernetes of which no new cluster is created."""
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Presets of drivers of node images by platform, in place of those of the catalog."""
    platforms: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(PRESETS))
    """Presets by platform of the region."""
    project: str = "project-e00abc"
    groups: tuple[str, ...] = ("editors", "admins")
    """Groups of the tenant that the caller is a member of."""
    blocks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By id: what the status of a capacity block group has in place of 56 free GPUs of 64."""
    not_preemptible: tuple[str, ...] = ()
    """Platforms without preemptible machines."""

    def answer(self, method: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer of a method such as `ProfileService/Get` as JSON; None for other methods."""
        return None if method not in _METHODS else _METHODS[method](self, request)


def _profile(_place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    info = {"metadata": {"id": "serviceaccount-e00rehearsal", "name": "rehearsal"}, "spec": {}}
    return {"service_account_profile": {"info": info}}


def _quotas(place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    parent = request.get("parent_id", place.tenant)
    rows = [
        {
            "metadata": {"id": f"quotaallowance-{name}", "parent_id": parent, "name": name},
            "spec": {"limit": str(limit), "region": place.region},
            "status": {
                "usage": str(usage),
                "unit": "byte" if ".size." in name else "count",
                "service": name.partition(".")[0],
                "description": name,
            },
        }
        for name, (limit, usage) in place.quotas.items()
    ]
    return {"items": rows}


def _advice(place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    return {"items": [dict(row) for row in place.advice]}


def _versions(place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    rows = [
        {
            "version": name,
            **({"deprecated": True} if name in place.deprecated else {}),
            **({"end_of_life": f"{version.end_of_life}T00:00:00Z"} if version.end_of_life else {}),
        }
        for name, version in VERSIONS.items()
    ]
    return {"items": rows}


def _images(place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return images of both systems with and without drivers, of this version; the API has earlier versions as well."""
    version, platform = request.get("cluster_kubernetes_version", ""), request.get("platform", "")
    if version not in VERSIONS:
        raise bad_request("cluster_kubernetes_version", f"there is no version {version!r}")
    presets = place.images.get(platform, VERSIONS[version].drivers.get(platform, ()))
    if platform.startswith("gpu-") and not presets:
        presets = DRIVERS
    items = [
        {"os": system, "drivers_preset": preset, "compatible_platforms": [platform]}
        for system in ("ubuntu22.04", "ubuntu24.04")
        for preset in ("", *presets)
    ]
    return {"versions": [{"kubernetes_version": version, "items": items}]}


def _platforms(place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the platforms of a region, as public programs of 2026 read them (quota types, sizes)."""
    rows = [
        {
            "metadata": {"id": f"computeplatform-{name}", "parent_id": request.get("parent_id", ""), "name": name},
            "spec": {
                "presets": [_preset(name, preset) for preset in presets],
                **({"gpu_count_quota_type": f"compute.instance.gpu.{name.split('-')[1]}"} if "gpu" in name else {}),
            },
            "status": {"allowed_for_preemptibles": name not in place.not_preemptible},
        }
        for name, presets in place.platforms.items()
    ]
    return {"items": rows}


def _project(place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    if request.get("id") != place.project:
        raise refusal("resource_not_found", "Project", str(request.get("id")))
    metadata = {"id": place.project, "parent_id": place.tenant, "name": "default"}
    return {"metadata": metadata, "spec": {"region": place.region}, "status": {"region": place.region}}


def _groups_of(place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    rows = [{"id": f"group-{name}", "parent_id": place.tenant, "name": name} for name in place.groups]
    return {"items": [{"metadata": row, "spec": {}} for row in rows]}


def _block(place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    if request.get("id") not in place.blocks:
        raise refusal("resource_not_found", "CapacityBlockGroup", str(request.get("id")))
    status = {
        "region": place.region,
        "resource_affinity": {"compute_v1": {"fabric": "fabric-3", "platform": "gpu-h100-sxm"}},
        "service": "compute",
        "state": "STATE_ACTIVE",
        "current_limit": "64",
        "usage": "8",
        **place.blocks[request["id"]],
    }
    return {"metadata": {"id": request["id"], "parent_id": place.tenant}, "spec": {}, "status": status}


def _preset(platform: str, name: str) -> dict[str, Any]:
    numbers = {unit: int(number) for number, unit in re.findall(r"(\d+)(gpu|vcpu|gb)", name)}
    size = {"vcpu_count": numbers["vcpu"], "memory_gibibytes": numbers["gb"], "gpu_count": numbers.get("gpu", 0)}
    return {"name": name, "resources": size, "allow_gpu_clustering": (platform, name) in CLUSTERABLE}


_METHODS: Mapping[str, Callable[[Place, Mapping[str, Any]], dict[str, Any]]] = {
    "ProfileService/Get": _profile,
    "ClusterService/ListControlPlaneVersions": _versions, "NodeGroupService/GetCompatibilityMatrix": _images,
    "QuotaAllowanceService/List": _quotas, "ResourceAdviceService/List": _advice,
    "PlatformService/List": _platforms, "ProjectService/Get": _project,
    "GroupMembershipService/ListMemberOf": _groups_of, "CapacityBlockGroupService/Get": _block,
}  # fmt: skip
SERVICES = (
    "iam.v1:ProfileServiceClient",
    "quotas.v1:QuotaAllowanceServiceClient", "capacity.v1:ResourceAdviceServiceClient",
    "compute.v1:PlatformServiceClient", "iam.v1:ProjectServiceClient", "capacity.v1:CapacityBlockGroupServiceClient",
    "common.v1:OperationServiceClient",
)  # fmt: skip
"""Clients of services without a kind: the package below `nebius.api.nebius`, and the class."""


VARIABLE = "HPC_NEBIUS_STAND_IN"
"""Environment variable that leads this program to the stand-in."""
TICK_SECONDS = 0.1
CALLS = 20_000
"""Number of calls that are kept."""


class Call(NamedTuple):
    """A call that the server received."""

    method: str
    """The path of the method, such as "nebius.vpc.v1.NetworkService/Create"."""
    request: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class _Route:
    service: str
    method: str
    kind: ObjectKind | None
    request: Any
    answer: Any


class NebiusServer(grpc.GenericRpcHandler):
    """A stand-in for Nebius's API on loopback; `with NebiusServer() as api:` leads this process to it."""

    def __init__(
        self, *, port: int = 0, state: Path | None = None, seconds: float = 0.05,
        seconds_of: Mapping[str, float] | None = None, place: Place | None = None,
    ) -> None:  # fmt: skip
        """`seconds`: duration of an operation; `seconds_of`: by kind."""
        self.lock = threading.RLock()
        self.store = Store(state)
        self.storage = ObjectStorage(self.store, self.lock)
        self.store.domain_name = self.storage.domain_name
        self.faults: list[Fault] = []
        self.place = place or Place()
        self.calls: deque[Call] = deque(maxlen=CALLS)
        self.after: Callable[[int, Call], None] = lambda _number, _call: None
        """Is called after a call was executed and before it is answered, with its number since the start."""
        self.taken = 0
        times = dict(seconds_of or {})
        self.methods = Methods(self.store, lambda kind, _verb: times.get(kind, seconds), self.faults)
        self._routes = _routes()
        self._stop = threading.Event()
        self._before: str | None = None
        # Clients that wait for long send pings; by default gRPC ends their connection.
        options = [("grpc.so_reuseport", 0), ("grpc.http2.max_ping_strikes", 0)]
        self._server = grpc.server(futures.ThreadPoolExecutor(16), options=options)
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        if not self.port:
            raise OSError(f"port {port} of 127.0.0.1 is in use")

    @property
    def endpoint(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Accept calls, and lead this process and those that it starts here."""
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = self.endpoint
        self._server.start()
        self.storage.start()
        threading.Thread(target=self._tick, daemon=True).start()

    def stop(self) -> None:
        """Stop the server, and write the file."""
        if self._before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._before
        self._stop.set()
        self._server.stop(0.2).wait(5)
        self.storage.stop()
        with self.lock:
            self.store.save()

    def __enter__(self) -> "NebiusServer":  # noqa: PYI034 - Self is not in the standard library of Python 3.10
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of one call (grpc.GenericRpcHandler)."""
        route = self._routes.get(handler_call_details.method.lstrip("/"))
        headers = {str(name): str(value) for name, value in handler_call_details.invocation_metadata}
        if route is None:
            return None

        def answer(payload: bytes, context: grpc.ServicerContext) -> bytes:
            return self._answer(route, payload, headers, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    def _answer(
        self, route: _Route, payload: bytes, headers: Mapping[str, str], context: grpc.ServicerContext
    ) -> bytes:
        request = to_full_json(route.request.FromString(payload))
        call = Call(f"{route.service}/{route.method}", request, headers)
        try:
            with self.lock:
                self.taken += 1
                number, request_id = self.taken, f"request-{self.taken}"
                self.calls.append(call)
                context.send_initial_metadata((("x-request-id", request_id), ("x-trace-id", f"trace-{self.taken}")))
                self.methods.settle()
                reply, refused = self._execute(route, request, headers)
                if route.method in _CHANGING:
                    self.store.save()
            self.after(number, call)
            if refused is not None:
                raise refused
            return route.answer.from_json(json.dumps(reply)).SerializeToString()
        except RefusedError as error:
            packed = _status(error)
            context.set_trailing_metadata((("grpc-status-details-bin", packed.SerializeToString()),))
            context.abort(getattr(grpc.StatusCode, error.code), error.message)
            raise AssertionError from error

    def _execute(
        self, route: _Route, request: Mapping[str, Any], headers: Mapping[str, str]
    ) -> tuple[dict[str, Any], RefusedError | None]:
        """Execute a call; return the JSON of the answer, and the error in its place if a fault loses the answer."""
        name = _name(request)
        kind = route.kind.name if route.kind else route.service.rpartition(".")[2]
        verb = "poll" if kind == "OperationService" else _VERBS.get(route.method, route.method.lower())
        given = headers.get("authorization", "").removeprefix("Bearer").strip()
        if not given:
            raise refusal("unauthenticated", kind, message="no token")
        if (fault := self.methods.fault(("refuse",), kind, verb, *name)) is not None:
            raise fault.error(kind, next(iter(name), ""))
        lost = self.methods.fault(("lose",), kind, verb, *name)
        reply = self._reply(route, request, headers)
        return reply, None if lost is None else refusal("unavailable", kind)

    def _reply(self, route: _Route, request: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        short = f"{route.service.rpartition('.')[2]}/{route.method}"
        if (reply := self.place.answer(short, request)) is not None:
            return reply
        if short == "OperationService/Get":
            if request.get("id") not in self.store.operations:
                raise refusal("resource_not_found", "Operation", str(request.get("id")))
            return self._operation(self.store.operations[request["id"]])
        if short == "OperationService/List":
            rows = [
                operation
                for operation in self.store.operations.values()
                if operation["resource_id"] == request.get("resource_id")
            ]
            return {"operations": [self._operation(row) for row in rows]}
        kind, methods = route.kind, self.methods
        if kind is None:
            raise RefusedError("UNIMPLEMENTED", short)
        self._seed(request)
        simple = {
            "Get": lambda: methods.get(kind, request.get("id", "")),
            "List": lambda: methods.listing(kind, request),
            "ListMembers": lambda: methods.listing(kind, request),
            "ListByAccount": lambda: methods.listing(kind, request, self._keys_of(request)),
            "GetSecret": lambda: {"secret": status.secret_of(self.store.objects[request["id"]])},
        }
        if route.method in simple:
            return simple[route.method]()
        changing = {
            "Create": lambda: methods.create(kind, request, headers.get("x-idempotency-key", "")),
            "Update": lambda: methods.update(kind, request, parse(headers.get(HEADER, ""))),
            "Delete": lambda: methods.delete(kind, request),
        }
        if route.method not in changing:
            raise RefusedError("UNIMPLEMENTED", short)
        return self._operation(changing[route.method]())

    def _keys_of(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [row for row in self.store.of("AccessKey") if row["spec"].get("account") == request.get("account")]

    def _seed(self, request: Mapping[str, Any]) -> None:
        """Add the network and the subnet of a new project, or the groups of a new tenant."""
        parent = request.get("parent_id") or request.get("metadata", {}).get("parent_id", "")
        if parent in self.store.seeded or not parent.startswith(("project-", "tenant-")):
            return
        self.store.seeded.append(parent)
        if parent.startswith("tenant-"):
            for name in GROUPS:
                self.methods.seed("Group", parent, name, {})
        else:
            network = self.methods.seed("Network", parent, "default-network", {})
            self.methods.seed("Subnet", parent, "default-subnet", {"network_id": network})

    def _operation(self, row: Mapping[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": row["id"], "resource_id": row["resource_id"], "description": f"{row['verb']} {row['kind']}",
            "created_at": moment(row["started"]),
        }  # fmt: skip
        if row["finished"] is None:
            work = {"total_tick_count": "100", "done_tick_count": str(int(100 * status.done(row)))}
            shown["progress_tracker"] = {"description": shown["description"], "work_done": work}
            if row["kind"] == "NodeGroup" and row["seconds"] is None:
                stage, message = status.QUOTA_PROBLEM
                packed = ProgressData.from_json(json.dumps({"problems": [{"stage": stage, "message": message}]}))
                carried = Operation(progress_data=_packed(packed))
                shown["progress_data"] = to_full_json(carried)["progress_data"]
            return shown
        error = row["error"] and RefusedError(row["error"]["code"], row["error"]["message"], row["error"]["detail"])
        ended = {} if error is None else to_full_json(_status(error))
        return {**shown, "finished_at": moment(row["finished"]), "status": ended}

    def _tick(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            with self.lock:
                self.methods.settle()


_CHANGING = frozenset({"Create", "Update", "Delete"})
_VERBS = {"ListMembers": "list", "ListByAccount": "list"}


def _name(request: Mapping[str, Any]) -> list[str]:
    """Return the names and ids of a request's object, which faults match."""
    metadata = request.get("metadata", {})
    return [
        str(part) for part in (metadata.get("name"), metadata.get("id"), request.get("id"), request.get("name")) if part
    ]


def _packed(message: Any) -> Any:
    """Return a message as google.protobuf.Any."""
    return type(message).__REGISTRY__.pack_any(message)


def _status(error: RefusedError) -> Any:
    details = [] if error.detail is None else [_packed(ServiceError.from_json(json.dumps(error.detail)))]
    return Status(code=getattr(grpc.StatusCode, error.code).value[0], message=error.message, details=details)


def _routes() -> dict[str, _Route]:
    """Return the messages and the kind of each method, by its path."""
    clients: list[tuple[Any, ObjectKind | None]] = [
        (kind.sdk_class(f"{kind.name}ServiceClient"), kind) for kind in OBJECT_KINDS.values()
    ]
    for text in SERVICES:
        package, name = text.split(":")
        clients.append((getattr(importlib.import_module(f"nebius.api.nebius.{package}"), name), None))
    routes: dict[str, _Route] = {}
    for client, kind in clients:
        service, registry = client.get_descriptor(), client.__registry__
        for method in service.methods:
            request, answer = (
                registry.message_class(type_.full_name) for type_ in (method.input_type, method.output_type)
            )
            path = f"{service.full_name}/{method.name}"
            routes[path] = _Route(service.full_name, method.name, kind, request, answer)
    return routes
