"""What the API refuses: facts of its definitions (comments of the fields) and of Nebius's recipe for Soperator."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cluster.platforms.nebius.machine_types import PLATFORMS
from cluster.platforms.nebius.versions import KUBERNETES_VERSIONS
from components.nebius.api.kinds import Kind
from components.nebius.api.specs import differing, value_at
from lab.nebius_api.faults import RefusedError, bad_request, in_use, refusal
from lab.nebius_api.status import Store, size_bytes, target_nodes

MOST_NODES = 100
LEAST_BOOT_DISK_GIB = 64
PODS = range(8, 257)
BLOCK_SIZES = frozenset(4096 << shift for shift in range(6))
"""Block sizes of a filesystem: powers of two, 4 KiB to 128 KiB."""
ROUND_GIB = 93
"""Sizes of these types of disks are multiples of it."""
ROUND_TYPES = frozenset({"NETWORK_SSD_IO_M3", "NETWORK_SSD_NON_REPLICATED"})

Refusals = Iterator[RefusedError]


def check_create(store: Store, kind: Kind, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    """Raise the first reason for which a creation is refused."""
    name, parent = metadata.get("name", ""), metadata.get("parent_id", "")
    if not parent:
        raise bad_request("metadata.parent_id", "must be set")
    known = store.objects.get(parent, {}).get("kind")
    if kind.parent in ("Cluster", "Group") and known != kind.parent:
        raise refusal("resource_not_found", kind.name, parent)
    if kind.unique and not name:
        raise bad_request("metadata.name", "must be set")
    for row in store.of(kind.name, None if kind.name == "Bucket" else parent):
        same_name = kind.unique and row["metadata"].get("name") == name
        same_identity = not kind.unique and not differing(row["spec"], spec, kind.identity)
        if same_name or same_identity:
            raise refusal("resource_already_exists", kind.name, row["metadata"]["id"])
    version = KUBERNETES_VERSIONS.get(str(value_at(spec, "control_plane.version"))) if kind.name == "Cluster" else None
    if version and version.deprecated:
        raise bad_request("spec.control_plane.version", f"{version.name} is deprecated: no clusters of it are created")
    check_spec(store, kind, spec)


def check_spec(store: Store, kind: Kind, spec: Mapping[str, Any]) -> None:
    """Raise the first reason for which a spec is refused."""
    for path, wanted in _REFERENCES.get(kind.name, ()):
        for id_ in _ids(spec, path.split(".")):
            if id_ not in store.objects or store.objects[id_]["kind"] != wanted:
                raise refusal("resource_not_found", wanted, id_)
    for refused in _SPECS.get(kind.name, lambda _spec: iter(()))(spec):
        raise refused


def check_update(store: Store, kind: Kind, row: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    """Raise the first reason for which an update is refused."""
    for path in differing(row["spec"], spec, kind.immutable):
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
    for other in store.objects.values():
        if other["metadata"]["id"] == id_:
            continue
        parent = other["kind"] == "NodeGroup" and other["metadata"].get("parent_id") == id_
        paths = (path.split(".") for path, kind in _REFERENCES.get(other["kind"], ()) if kind == row["kind"])
        # A membership or a key ends with its account, a release with its cluster.
        holds = other["kind"] not in ("GroupMembership", "AccessKey", "K8sRelease")
        if parent or (holds and any(id_ in _ids(other["spec"], path) for path in paths)):
            raise in_use(id_, f"{other['kind']} {other['metadata']['id']}")


def dependents(store: Store, row: Mapping[str, Any]) -> Iterator[str]:
    """Ids of what ends with an object."""
    id_ = row["metadata"]["id"]
    for other in list(store.objects.values()):
        if other["kind"] in ("GroupMembership", "AccessPermit") and other["metadata"].get("parent_id") == id_:
            yield other["metadata"]["id"]
        elif other["kind"] in ("GroupMembership", "AccessKey", "K8sRelease"):
            paths = (path.split(".") for path, kind in _REFERENCES[other["kind"]] if kind == row["kind"])
            if any(id_ in _ids(other["spec"], path) for path in paths):
                yield other["metadata"]["id"]


def _ids(value: Any, path: list[str]) -> Iterator[str]:  # noqa: ANN401
    if isinstance(value, list):
        for one in value:
            yield from _ids(one, path)
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
    if platform not in PLATFORMS:
        yield bad_request("spec.template.resources.platform", f"there is no platform {platform!r}")
        return
    known = next((row for row in PLATFORMS[platform].presets if row.name == preset), None)
    if known is None:
        yield bad_request("spec.template.resources.preset", f"{platform} has no preset {preset!r}")
    elif template.get("gpu_cluster") and not known.clusterable:
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
    if version and version not in KUBERNETES_VERSIONS:
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
    "K8sRelease": (("cluster_id", "Cluster"),),
    "GroupMembership": (("member_id", "ServiceAccount"),),
    "AccessKey": (("account.service_account.id", "ServiceAccount"),),
}  # fmt: skip
"""Fields of specs that have the id of another object."""
