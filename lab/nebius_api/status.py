"""The status of objects, which the API makes up by itself."""

import hashlib
import time
from collections.abc import Mapping
from typing import Any

from cluster.platforms.nebius.versions import KUBERNETES
from lab.nebius_api.store import Store

STATES: Mapping[str, tuple[str, str, str]] = {
    "Network": ("CREATING", "READY", "DELETING"),
    "Subnet": ("CREATING", "READY", "DELETING"),
    "Allocation": ("CREATING", "ALLOCATED", "DELETING"),
    "Filesystem": ("CREATING", "READY", "DELETING"),
    "Disk": ("CREATING", "READY", "DELETING"),
    "Cluster": ("PROVISIONING", "RUNNING", "DELETING"),
    "NodeGroup": ("PROVISIONING", "RUNNING", "DELETING"),
    "K8sRelease": ("INSTALLING", "DEPLOYED", "RUNNING"),
    "Group": ("ACTIVE", "ACTIVE", "ACTIVE"),
    "AccessKey": ("ACTIVE", "ACTIVE", "DELETING"),
    "Bucket": ("CREATING", "ACTIVE", "SCHEDULED_FOR_DELETION"),
}
"""By kind: while it is created, when it is ready, while it is deleted. Others have no state."""
FAILED: Mapping[str, str] = {"Filesystem": "ERROR", "Disk": "ERROR", "K8sRelease": "FAILED"}
"""State after a creation that failed; others stay as while they are created."""
QUOTA_PROBLEM = ("create instances", "quota compute.instance.gpu.h100: limit 8, asked 16")
"""Stage and message of mk8s's ProgressData, and the event, of a node group whose operation hangs for a quota."""


def status(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of an object's status."""
    kind, state = row["kind"], {"state": row["state"]} if row["state"] else {}
    return {**state, **(_OF[kind](store, row) if kind in _OF else {})}


def target_nodes(spec: Mapping[str, Any]) -> int:
    """How many nodes a group shall have; of one that scales by itself, the least."""
    if "autoscaling" in spec:
        return int(spec["autoscaling"].get("min_node_count", 0))
    return int(spec.get("fixed_node_count", 0))


def done(operation: Mapping[str, Any]) -> float:
    """How much of an operation is done, 0 to 1."""
    if operation["finished"] is not None:
        return 1.0
    if not operation["seconds"]:
        return 0.0
    return min(0.99, (time.time() - operation["started"]) / operation["seconds"])


def _cluster(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    plane = row["spec"].get("control_plane", {})
    known = {"version": plane.get("version", KUBERNETES), "etcd_cluster_size": plane.get("etcd_cluster_size", "3")}
    if row["state"] == "RUNNING":
        known["endpoints"] = {"public_endpoint": f"https://{row['metadata']['id']}.mk8s.invalid:443"}
        known["auth"] = {"cluster_ca_certificate": _digest(row, 64)}
    return {"control_plane": known, "reconciling": _reconciling(store, row)}


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
    version = row["spec"].get("version", KUBERNETES)
    shown = {name: str(count) for name, count in counts.items()}
    return {**shown, "version": version, "events": events, "reconciling": _reconciling(store, row)}


def _allocation(_store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    # Addresses of documentation (RFC 5737): nobody has them.
    number = int(_digest(row, 4), 16) % 254 + 1
    return {"details": {"allocated_cidr": f"192.0.2.{number}/32"}} if row["state"] == "ALLOCATED" else {}


def _access_key(_store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    known = {"aws_access_key_id": f"NAKI{_digest(row, 16).upper()}"}
    delivered = row["spec"].get("secret_delivery_mode") == "INLINE"
    return {**known, **({"secret": secret_of(row)} if delivered else {})}


def secret_of(row: Mapping[str, Any]) -> str:
    """The secret of an access key."""
    return _digest(row, 40)


def _bucket(_store: Store, _row: Mapping[str, Any]) -> dict[str, Any]:
    return {"region": "eu-north1", "domain_name": "storage.eu-north1.nebius.cloud"}


def _release(_store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    return {"error_message": row["facts"].get("error", "")}


def _filesystem(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    reconciling = _reconciling(store, row)
    return {"size_bytes": str(size_bytes(row["spec"])), "reconciling": reconciling}


def size_bytes(spec: Mapping[str, Any]) -> int:
    """The size that a Filesystem or a Disk asks for."""
    units = {"size_bytes": 0, "size_kibibytes": 10, "size_mebibytes": 20, "size_gibibytes": 30}
    return sum(int(spec[name]) << shift for name, shift in units.items() if name in spec)


def _reconciling(store: Store, row: Mapping[str, Any]) -> bool:
    return store.under_way(row["metadata"]["id"]) is not None


def _digest(row: Mapping[str, Any], length: int) -> str:
    return hashlib.sha256(row["metadata"]["id"].encode()).hexdigest()[:length]


_OF: Mapping[str, Any] = {
    "Cluster": _cluster, "NodeGroup": _node_group, "Allocation": _allocation, "AccessKey": _access_key,
    "Bucket": _bucket, "K8sRelease": _release, "Filesystem": _filesystem, "Disk": _filesystem,
    "ServiceAccount": lambda _store, _row: {"active": True},
    "GpuCluster": lambda store, row: {"reconciling": _reconciling(store, row)},
}  # fmt: skip
