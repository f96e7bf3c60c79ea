"""Methods of the API on objects of every kind, the effects of operations, and what the API refuses.

Refusals are facts of the API's definitions (comments of the fields) and of Nebius's recipe for Soperator.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from components.nebius.api.specs import differing_paths, value_at
from tests.lab.nebius_api import status
from tests.lab.nebius_api.facts import CLUSTERABLE, PRESETS, VERSIONS, ObjectKind
from tests.lab.nebius_api.faults import Fault, RefusedError, bad_request, in_use, refusal
from tests.lab.nebius_api.status import Store, moment, size_bytes, target_nodes

HEADER = "x-resetmask"


def parse(text: str) -> Any:
    """Parse the mask of a header; None if it is empty."""
    from nebius.base.fieldmask import Mask

    return Mask.unmarshal(text) if text else None


def part(mask: Any, name: str) -> Any | None:
    """Return the part of a mask for a field; None if the mask does not name it."""
    if mask is None:
        return None
    return next((inner for key, inner in mask.field_parts.items() if str(key) == name), mask.any)


def updated(cls: Any, old: Mapping[str, Any], given: Mapping[str, Any], mask: Any) -> dict[str, Any]:
    """Return the JSON of a message of that class after an update with `given`."""
    fields = {field.proto_name: field for field in cls.__FIELDS__}
    result = dict(old)
    for name, field in fields.items():
        inner = part(mask, name)
        if name not in given:
            if inner is not None:
                result.pop(name, None)
            continue
        if field.oneof:
            for other in fields.values():
                if other.oneof == field.oneof:
                    result.pop(other.proto_name, None)
        result[name] = _value(field, old.get(name), given[name], inner)
    return result


def _value(field: Any, old: Any, given: Any, mask: Any) -> Any:
    if field.map or not field.message:
        return given
    cls = type(field.codec.default())
    if isinstance(given, list):
        before = old if isinstance(old, list) else []
        each = part(mask, "*") if mask is not None and mask.any is None else getattr(mask, "any", None)
        return [
            updated(cls, before[index], item, each) if index < len(before) and isinstance(item, dict) else item
            for index, item in enumerate(given)
        ]
    if isinstance(given, dict):
        return updated(cls, old if isinstance(old, dict) else {}, given, mask)
    return given


DEFAULT_PAGE = 100


class Methods:
    """The methods of the API. Callers hold the server's lock."""

    def __init__(self, store: Store, seconds: Callable[[str, str], float], faults: list[Fault]) -> None:
        self.store, self.seconds, self.faults = store, seconds, faults

    def create(self, kind: ObjectKind, request: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Start a creation and return its operation. A key that was used returns the operation of its first use."""
        digest = hashlib.sha256(json.dumps([kind.name, request], sort_keys=True).encode()).hexdigest()
        if key in self.store.keys:
            first_use = self.store.keys[key]
            if first_use["digest"] != digest:
                raise bad_request("x-idempotency-key", "was used for another request")
            return self.store.operations[first_use["operation"]]
        given, spec = dict(request.get("metadata", {})), dict(request.get("spec", {}))
        check_create(self.store, kind, given, spec)
        creating = status.STATES.get(kind.name, ("", "", ""))[0]
        row = self.store.add(kind.name, given, spec, creating)
        operation = self._start(kind, row, "create")
        if key:
            self.store.keys[key] = {"digest": digest, "operation": operation["id"]}
        return operation

    def update(self, kind: ObjectKind, request: Mapping[str, Any], mask: Any) -> dict[str, Any]:
        """Start an update with the header's mask, and return its operation."""
        given = request.get("metadata", {})
        row = self._row(kind, given.get("id", ""))
        self._refuse_if_busy(kind, row)
        if given.get("resource_version", "0") not in ("0", row["metadata"]["resource_version"]):
            raise refusal("resource_conflict", kind.name, row["metadata"]["id"])
        cls = kind.sdk_class(f"{kind.name}Spec")
        spec = updated(cls, row["spec"], request.get("spec", {}), part(mask, "spec"))
        check_update(self.store, kind, row, spec)
        named = part(mask, "metadata")
        for name in ("name", "labels"):
            if name in given or part(named, name) is not None:
                row["metadata"][name] = given.get(name, {} if name == "labels" else "")
        row["facts"]["nodes"] = status.target_nodes(row["spec"])
        row["spec"] = spec
        self._touch(row)
        return self._start(kind, row, "update")

    def delete(self, kind: ObjectKind, request: Mapping[str, Any]) -> dict[str, Any]:
        """Start a deletion, and return its operation."""
        row = self._row(kind, request.get("id", ""))
        self._refuse_if_busy(kind, row)
        check_delete(self.store, row)
        row["state"] = status.STATES.get(kind.name, ("", "", ""))[2]
        self._touch(row)
        return self._start(kind, row, "delete")

    def get(self, kind: ObjectKind, id_: str) -> dict[str, Any]:
        """Return the JSON of an object."""
        return self.shown(self._row(kind, id_))

    def listing(self, kind: ObjectKind, request: Mapping[str, Any], rows: list[dict[str, Any]] | None = None) -> Any:
        """Return a page of the objects of a parent."""
        every = list(self.store.of(kind.name, request.get("parent_id", ""))) if rows is None else rows
        start = int(request.get("page_token") or 0)
        end = start + int(request.get("page_size") or DEFAULT_PAGE)
        token = {"next_page_token": str(end)} if end < len(every) else {}
        return {kind.items: [self.shown(row) for row in every[start:end]], **token}

    def shown(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object's JSON."""
        return {"metadata": row["metadata"], "spec": row["spec"], "status": status.status(self.store, row)}

    def settle(self) -> None:
        """End the operations whose duration has passed."""
        now = time.time()
        for operation in list(self.store.operations.values()):
            seconds = operation["seconds"]
            if operation["finished"] is None and seconds is not None and now >= operation["started"] + seconds:
                operation["finished"] = now
                self._end(operation)
                self.store.save()

    def seed(self, kind: str, parent: str, name: str, spec: Mapping[str, Any], id_: str = "") -> str:
        """Add an object that exists before any stack, and return its id."""
        state = status.STATES.get(kind, ("", "", ""))[1]
        row = self.store.add(kind, {"parent_id": parent, "name": name}, dict(spec), state)
        if id_:
            del self.store.objects[row["metadata"]["id"]]
            row["metadata"]["id"] = id_
            self.store.objects[id_] = row
        return row["metadata"]["id"]

    def _start(self, kind: ObjectKind, row: dict[str, Any], verb: str) -> dict[str, Any]:
        id_, name = row["metadata"]["id"], row["metadata"].get("name", "")
        seconds: float | None = self.seconds(kind.name, verb)
        error = None
        fault = self.fault(("fail", "hang"), kind.name, verb, name, id_)
        if fault is not None:
            error = fault.error(kind.name, id_).plain() if fault.mode == "fail" else None
            seconds = seconds if fault.mode == "fail" else None
        return self.store.start(row, verb, seconds, error)

    def fault(self, modes: tuple[str, ...], kind: str, verb: str, *names: str) -> Fault | None:
        """Return the first fault of those modes that affects a call, and count the call."""
        for fault in self.faults:
            if fault.mode in modes and any(fault.hits(kind, verb, name) for name in names or ("",)):
                fault.count = None if fault.count is None else fault.count - 1
                return fault
        return None

    def _end(self, operation: dict[str, Any]) -> None:
        row = self.store.objects.get(operation["resource_id"])
        if row is None:
            return
        states = status.STATES.get(row["kind"], ("", "", ""))
        if operation["error"] is not None:
            if operation["verb"] == "create":
                row["state"] = status.FAILED.get(row["kind"], row["state"])
                row["facts"]["error"] = operation["error"]["message"]
            elif operation["verb"] == "delete":
                row["state"] = states[1]
        elif operation["verb"] == "delete" and row["kind"] != "Bucket":
            self._remove(row)
            return
        elif operation["verb"] != "delete":
            row["state"], row["facts"] = states[1], {}
            row["facts"]["nodes"] = status.target_nodes(row["spec"])
        self._touch(row)

    def _remove(self, row: dict[str, Any]) -> None:
        for deleted in [row, *(self.store.objects[id_] for id_ in dependents(self.store, row))]:
            self.store.objects.pop(deleted["metadata"]["id"], None)

    def _row(self, kind: ObjectKind, id_: str) -> dict[str, Any]:
        row = self.store.objects.get(id_)
        if row is None or row["kind"] != kind.name:
            raise refusal("resource_not_found", kind.name, id_)
        return row

    def _refuse_if_busy(self, kind: ObjectKind, row: Mapping[str, Any]) -> None:
        id_ = row["metadata"]["id"]
        if (other := self.store.under_way(id_)) is not None:
            raised = refusal("operation_conflict", kind.name, id_)
            raised.detail = {**(raised.detail or {})}
            raised.detail["operation_conflict"] = {"resource_id": id_, "conflicting_operation_id": other["id"]}
            raise raised

    @staticmethod
    def _touch(row: dict[str, Any]) -> None:
        row["metadata"]["resource_version"] = str(int(row["metadata"]["resource_version"]) + 1)
        row["metadata"]["updated_at"] = moment(time.time())


MOST_NODES = 100
LEAST_BOOT_DISK_GIB = 64
PODS = range(8, 257)
BLOCK_SIZES = frozenset(4096 << shift for shift in range(6))
"""Block sizes of a filesystem: powers of two, 4 KiB to 128 KiB."""
ROUND_GIB = 93
"""Sizes of disks of ROUND_TYPES are multiples of it."""
ROUND_TYPES = frozenset({"NETWORK_SSD_IO_M3", "NETWORK_SSD_NON_REPLICATED"})

Refusals = Iterator[RefusedError]


def check_create(store: Store, kind: ObjectKind, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    """Raise the first reason for which a creation is refused."""
    name, parent = metadata.get("name", ""), metadata.get("parent_id", "")
    if not parent:
        raise bad_request("metadata.parent_id", "must be set")
    parent_kind = store.objects.get(parent, {}).get("kind")
    if kind.parent and parent_kind != kind.parent:
        raise refusal("resource_not_found", kind.name, parent)
    if not kind.identity and not name:
        raise bad_request("metadata.name", "must be set")
    for row in store.of(kind.name, None if kind.name == "Bucket" else parent):
        same_name = not kind.identity and row["metadata"].get("name") == name
        same_identity = kind.identity and not differing_paths(row["spec"], spec, kind.identity)
        if same_name or same_identity:
            raise refusal("resource_already_exists", kind.name, row["metadata"]["id"])
    name = str(value_at(spec, "control_plane.version")) if kind.name == "Cluster" else ""
    if name in VERSIONS and VERSIONS[name].deprecated:
        raise bad_request("spec.control_plane.version", f"{name} is deprecated: no clusters of it are created")
    check_spec(store, kind, spec)


def check_spec(store: Store, kind: ObjectKind, spec: Mapping[str, Any]) -> None:
    """Raise the first reason for which a spec is refused."""
    for path, referenced in _REFERENCES.get(kind.name, ()):
        for id_ in _ids(spec, path.split(".")):
            if id_ not in store.objects or store.objects[id_]["kind"] != referenced:
                raise refusal("resource_not_found", referenced, id_)
    for refused in _SPECS.get(kind.name, lambda _spec: iter(()))(spec):
        raise refused


def check_update(store: Store, kind: ObjectKind, row: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    """Raise the first reason for which an update is refused."""
    for path in differing_paths(row["spec"], spec, kind.immutable):
        raise bad_request(f"spec.{path}", "the field is immutable")
    if kind.name in ("Filesystem", "Disk") and size_bytes(spec) < size_bytes(row["spec"]):
        raise bad_request("spec.size", "the size can only grow")
    check_spec(store, kind, spec)


def check_delete(store: Store, row: Mapping[str, Any]) -> None:
    """Raise the first reason for which a deletion is refused."""
    id_ = row["metadata"]["id"]
    if row["spec"].get("forbid_deletion"):
        detail = {"bad_resource_state": {"resource_id": id_, "message": "forbid_deletion is set"}}
        raise RefusedError("FAILED_PRECONDITION", f"deletion of {id_} is forbidden", detail)
    if row["kind"] == "Bucket" and store.contents.get(row["metadata"]["name"]):
        # The word is S3's, and the recipe empties its bucket for it; gRPC's code of it is not public.
        raise RefusedError("FAILED_PRECONDITION", "BucketNotEmpty: the bucket you tried to delete is not empty")
    for other in store.objects.values():
        if other["metadata"]["id"] == id_:
            continue
        parent = other["kind"] == "NodeGroup" and other["metadata"].get("parent_id") == id_
        paths = (path.split(".") for path, kind in _REFERENCES.get(other["kind"], ()) if kind == row["kind"])
        # A membership or a key is deleted with its account.
        holds = other["kind"] not in ("GroupMembership", "AccessKey")
        if parent or (holds and any(id_ in _ids(other["spec"], path) for path in paths)):
            raise in_use(id_, f"{other['kind']} {other['metadata']['id']}")


def dependents(store: Store, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of objects that are deleted with an object."""
    id_ = row["metadata"]["id"]
    for other in list(store.objects.values()):
        if other["kind"] in ("GroupMembership", "AccessPermit") and other["metadata"].get("parent_id") == id_:
            yield other["metadata"]["id"]
        elif other["kind"] in ("GroupMembership", "AccessKey"):
            paths = (path.split(".") for path, kind in _REFERENCES[other["kind"]] if kind == row["kind"])
            if any(id_ in _ids(other["spec"], path) for path in paths):
                yield other["metadata"]["id"]


def _ids(value: Any, path: list[str]) -> Iterator[str]:
    if isinstance(value, list):
        for member in value:
            yield from _ids(member, path)
    elif not path:
        if value:
            yield str(value)
    elif isinstance(value, Mapping):
        yield from _ids(value.get(path[0]), path[1:])


def _node_group(spec: Mapping[str, Any]) -> Refusals:
    autoscaling = spec.get("autoscaling", {})
    most = max(target_nodes(spec), int(autoscaling.get("max_node_count", 0)))
    if most > MOST_NODES:
        yield bad_request("spec.fixed_node_count", f"at most {MOST_NODES} nodes, given {most}")
    if int(autoscaling.get("min_node_count", 0)) > int(autoscaling.get("max_node_count", 0)):
        yield bad_request("spec.autoscaling", "min_node_count is more than max_node_count")
    template = spec.get("template", {})
    resources = template.get("resources", {})
    platform, preset = resources.get("platform", ""), resources.get("preset", "")
    if platform not in PRESETS:
        yield bad_request("spec.template.resources.platform", f"there is no platform {platform!r}")
        return
    if preset not in PRESETS[platform]:
        yield bad_request("spec.template.resources.preset", f"{platform} has no preset {preset!r}")
    elif template.get("gpu_cluster") and (platform, preset) not in CLUSTERABLE:
        yield bad_request("spec.template.gpu_cluster", f"nodes of the preset {preset} can't join a GPU cluster")
    disk = template.get("boot_disk", {})
    if disk and size_bytes(disk) < LEAST_BOOT_DISK_GIB << 30:
        yield bad_request("spec.template.boot_disk", f"at least {LEAST_BOOT_DISK_GIB} GiB")
    pods = int(template.get("max_pods", 0))
    if pods and pods not in PODS:
        yield bad_request("spec.template.max_pods", f"{PODS.start} to {PODS.stop - 1}")
    yield from _strategy(spec.get("strategy", {}))


def _strategy(strategy: Mapping[str, Any]) -> Refusals:
    surge, unavailable = (strategy.get(name) for name in ("max_surge", "max_unavailable"))
    for name, value in (("max_surge", surge), ("max_unavailable", unavailable)):
        if value is not None and int(value.get("percent", 0)) not in range(101):
            yield bad_request(f"spec.strategy.{name}.percent", "0 to 100")
    if surge is not None and unavailable is not None and not _count(surge) and not _count(unavailable):
        yield bad_request("spec.strategy", "max_surge and max_unavailable can't both be 0")


def _count(value: Mapping[str, Any]) -> int:
    return int(value.get("percent", 0)) or int(value.get("count", 0))


def _cluster(spec: Mapping[str, Any]) -> Refusals:
    version = value_at(spec, "control_plane.version")
    if version and version not in VERSIONS:
        yield bad_request("spec.control_plane.version", f"there is no version {version!r}")
    size = int(value_at(spec, "control_plane.etcd_cluster_size") or 3)
    if size not in (1, 3):
        yield bad_request("spec.control_plane.etcd_cluster_size", "1 or 3")


def _filesystem(spec: Mapping[str, Any]) -> Refusals:
    if size_bytes(spec) <= 0:
        yield bad_request("spec.size", "must be set")
    block = int(spec.get("block_size_bytes", 4096))
    if block not in BLOCK_SIZES:
        yield bad_request("spec.block_size_bytes", "a power of two, 4096 to 131072")


def _disk(spec: Mapping[str, Any]) -> Refusals:
    if spec.get("type") in ROUND_TYPES and (size_bytes(spec) >> 30) % ROUND_GIB:
        yield bad_request("spec.size", f"a multiple of {ROUND_GIB} GiB for this type")


_SPECS: Mapping[str, Callable[[Mapping[str, Any]], Refusals]] = {
    "NodeGroup": _node_group, "Cluster": _cluster, "Filesystem": _filesystem, "Disk": _disk,
}  # fmt: skip
_REFERENCES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Subnet": (("network_id", "Network"),),
    "Allocation": (("ipv4_public.subnet_id", "Subnet"), ("ipv4_private.subnet_id", "Subnet")),
    "Cluster": (("control_plane.subnet_id", "Subnet"),),
    "NodeGroup": (
        ("template.gpu_cluster.id", "GpuCluster"), ("template.network_interfaces.subnet_id", "Subnet"),
        ("template.filesystems.existing_filesystem.id", "Filesystem"),
    ),
    "GroupMembership": (("member_id", "ServiceAccount"),),
    "AccessKey": (("account.service_account.id", "ServiceAccount"),),
}  # fmt: skip
"""Fields of specs that have the id of another object."""
