"""The store of the stand-in's objects, and the status of each."""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.lab.nebius_api.facts import DEFAULT_VERSION

PREFIXES = {
    "Network": "vpcnetwork", "Subnet": "vpcsubnet", "Allocation": "vpcallocation", "Filesystem": "computefilesystem",
    "GpuCluster": "computegpucluster", "Disk": "computedisk", "Cluster": "mk8scluster", "NodeGroup": "mk8snodegroup",
    "ServiceAccount": "serviceaccount", "GroupMembership": "groupmembership",
    "Group": "group", "AccessPermit": "accesspermit", "AccessKey": "accesskey",
    "Bucket": "storagebucket", "Operation": "operation",
}  # fmt: skip
"""Prefixes of ids that Nebius's recipe checks; for other kinds the kind's name."""


def moment(seconds: float) -> str:
    """Return a time in RFC 3339."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_KEPT = ("objects", "operations", "keys", "serial", "seeded", "contents")
"""Attributes of a store that its file has."""


class Store:
    """Rows as JSON. Callers hold the server's lock."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.objects: dict[str, dict[str, Any]] = {}
        """Objects by id: kind, state, and the JSON of metadata and spec; `facts` depend on the kind."""
        self.operations: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        """A digest of the request and the id of its operation, by idempotency key."""
        self.serial = 0
        self.seeded: list[str] = []
        """Projects and tenants whose initial objects were added."""
        self.contents: dict[str, dict[str, int]] = {}
        """Bytes of the objects in buckets, by the bucket's name and the object's key."""
        self.domain_name = "storage.eu-north1.nebius.cloud"
        """The object storage's, as buckets show it."""
        if file is not None and file.exists():
            for name, value in json.loads(file.read_text(encoding="utf-8")).items():
                setattr(self, name, value)

    def save(self) -> None:
        """Write the file atomically."""
        if self._file is None:
            return
        content = {name: getattr(self, name) for name in _KEPT}
        new = self._file.with_name(f"{self._file.name}.new")
        # Only for its owner, because it has access keys of the stand-in.
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
            stream.write(json.dumps(content))
        new.replace(self._file)

    def new_id(self, kind: str) -> str:
        """Return a new id in the API's form."""
        self.serial += 1
        return f"{PREFIXES[kind]}-e00{self.serial:012x}"

    def of(self, kind: str, parent: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a kind, of one parent or of all."""
        for row in list(self.objects.values()):
            if row["kind"] == kind and parent in (None, row["metadata"].get("parent_id", "")):
                yield row

    def add(self, kind: str, metadata: dict[str, Any], spec: dict[str, Any], state: str) -> dict[str, Any]:
        """Add an object, and return its row."""
        id_, now = self.new_id(kind), time.time()
        shown = {**metadata, "id": id_, "resource_version": "1", "created_at": moment(now), "updated_at": moment(now)}
        self.objects[id_] = {"kind": kind, "state": state, "metadata": shown, "spec": spec, "facts": {}}
        return self.objects[id_]

    def start(
        self, row: dict[str, Any], verb: str, seconds: float | None, error: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Add an operation on an object, and return it. With `seconds` of None it never ends."""
        operation = {
            "id": self.new_id("Operation"), "kind": row["kind"], "resource_id": row["metadata"]["id"], "verb": verb,
            "started": time.time(), "seconds": seconds, "error": error, "finished": None,
        }  # fmt: skip
        self.operations[operation["id"]] = operation
        return operation

    def under_way(self, id_: str) -> dict[str, Any] | None:
        """Return the operation on an object that has not ended, if there is one."""
        rows = (
            operation
            for operation in self.operations.values()
            if operation["resource_id"] == id_ and operation["finished"] is None
        )
        return next(rows, None)


STATES: Mapping[str, tuple[str, str, str]] = {
    "Network": ("CREATING", "READY", "DELETING"),
    "Subnet": ("CREATING", "READY", "DELETING"),
    "Allocation": ("CREATING", "ALLOCATED", "DELETING"),
    "Filesystem": ("CREATING", "READY", "DELETING"),
    "Disk": ("CREATING", "READY", "DELETING"),
    "Cluster": ("PROVISIONING", "RUNNING", "DELETING"),
    "NodeGroup": ("PROVISIONING", "RUNNING", "DELETING"),
    "Group": ("ACTIVE", "ACTIVE", "ACTIVE"),
    "AccessKey": ("ACTIVE", "ACTIVE", "DELETING"),
    "Bucket": ("CREATING", "ACTIVE", "SCHEDULED_FOR_DELETION"),
}
"""The states of creation, readiness and deletion, by kind. Other kinds have no state."""
FAILED: Mapping[str, str] = {"Filesystem": "ERROR", "Disk": "ERROR"}
"""The state after a failed creation; other kinds keep the state of creation."""
QUOTA_PROBLEM = ("create instances", "quota compute.instance.gpu.h100: limit 8, asked 16")
"""Stage and message of mk8s's ProgressData and of the event of a node group that waits for a quota."""


def status(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of an object's status."""
    kind, state = row["kind"], {"state": row["state"]} if row["state"] else {}
    return {**state, **(_OF[kind](store, row) if kind in _OF else {})}


def target_nodes(spec: Mapping[str, Any]) -> int:
    """Return the number of nodes of a group; the minimum if it is autoscaled."""
    if "autoscaling" in spec:
        return int(spec["autoscaling"].get("min_node_count", 0))
    return int(spec.get("fixed_node_count", 0))


def done(operation: Mapping[str, Any]) -> float:
    """Return the progress of an operation, 0 to 1."""
    if operation["finished"] is not None:
        return 1.0
    if not operation["seconds"]:
        return 0.0
    return min(0.99, (time.time() - operation["started"]) / operation["seconds"])


def _cluster(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    plane = row["spec"].get("control_plane", {})
    shown = {"version": plane.get("version", DEFAULT_VERSION), "etcd_cluster_size": plane.get("etcd_cluster_size", "3")}
    if row["state"] == "RUNNING":
        shown["endpoints"] = {"public_endpoint": f"https://{row['metadata']['id']}.mk8s.invalid:443"}
        shown["auth"] = {"cluster_ca_certificate": _digest(row, 64)}
    return {"control_plane": shown, "reconciling": _reconciling(store, row)}


def _node_group(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    target, operation = target_nodes(row["spec"]), store.under_way(row["metadata"]["id"])
    before = int(row["facts"].get("nodes", 0))
    ready = target if operation is None and row["state"] == "RUNNING" else before
    events: list[dict[str, Any]] = []
    if operation is not None and operation["verb"] != "delete":
        ready = before + int((target - before) * done(operation))
        if operation["seconds"] is None:
            last = {"level": "ERROR", "code": "QuotaFailure", "message": QUOTA_PROBLEM[1]}
            events = [{"occurrence_count": "3", "last_occurrence": last}]
    counts = {"target_node_count": target, "node_count": max(ready, before), "ready_node_count": ready}
    version = row["spec"].get("version", DEFAULT_VERSION)
    shown = {name: str(count) for name, count in counts.items()}
    return {**shown, "version": version, "events": events, "reconciling": _reconciling(store, row)}


def _allocation(_store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    # An address of the network for documentation (RFC 5737).
    number = int(_digest(row, 4), 16) % 254 + 1
    return {"details": {"allocated_cidr": f"192.0.2.{number}/32"}} if row["state"] == "ALLOCATED" else {}


def _access_key(_store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    is_inline = row["spec"].get("secret_delivery_mode") == "INLINE"
    secret = {"secret": secret_of(row)} if is_inline else {}
    return {"aws_access_key_id": access_key_id(row), **secret}


def access_key_id(row: Mapping[str, Any]) -> str:
    """Return the id of an access key in S3."""
    return f"NAKI{_digest(row, 16).upper()}"


def secret_of(row: Mapping[str, Any]) -> str:
    """Return the secret of an access key."""
    return _digest(row, 40)


def _bucket(store: Store, _row: Mapping[str, Any]) -> dict[str, Any]:
    return {"region": "eu-north1", "domain_name": store.domain_name}


def _filesystem(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    reconciling = _reconciling(store, row)
    return {"size_bytes": str(size_bytes(row["spec"])), "reconciling": reconciling}


def size_bytes(spec: Mapping[str, Any]) -> int:
    """Return the size of a Filesystem or a Disk, from its spec."""
    units = {"size_bytes": 0, "size_kibibytes": 10, "size_mebibytes": 20, "size_gibibytes": 30}
    return sum(int(spec[name]) << shift for name, shift in units.items() if name in spec)


def _reconciling(store: Store, row: Mapping[str, Any]) -> bool:
    return store.under_way(row["metadata"]["id"]) is not None


def _digest(row: Mapping[str, Any], length: int) -> str:
    return hashlib.sha256(row["metadata"]["id"].encode()).hexdigest()[:length]


_OF: Mapping[str, Any] = {
    "Cluster": _cluster, "NodeGroup": _node_group, "Allocation": _allocation, "AccessKey": _access_key,
    "Bucket": _bucket, "Filesystem": _filesystem, "Disk": _filesystem,
    "ServiceAccount": lambda _store, _row: {"active": True},
    "GpuCluster": lambda store, row: {"reconciling": _reconciling(store, row)},
}  # fmt: skip
