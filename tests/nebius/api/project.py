"""A project whose program registers resources of Nebius from rows of a file, and the embedded engine to run it."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from engine import Workspace, events
from engine.core.scope import Scope
from engine.state import crypter
from tests import programs
from tests.lab.nebius_api.server import VARIABLE, NebiusServer
from tests.nebius.forks import FORKS

PROJECT_ID = "project-e00test"
OWNER = "0123456789abcdef"
PROGRAM = """
import json, pathlib, pulumi
from components.nebius.resource import NebiusResource

made = {}

def value(one):
    if isinstance(one, dict):
        return made[one["$"]].id if "$" in one else {name: value(inner) for name, inner in one.items()}
    return [value(inner) for inner in one] if isinstance(one, list) else one

for row in json.loads(pathlib.Path("rows.json").read_text()):
    kind, name = row.pop("kind"), row.pop("name")
    options = pulumi.ResourceOptions(**row.pop("options", {}))
    made[name] = NebiusResource(kind, name, **{key: value(one) for key, one in row.items()}, opts=options)
    pulumi.export(name, made[name].status)
    if kind == "AccessKey":
        pulumi.export(f"{name}-secret", made[name].secret)
"""


def cluster_rows() -> list[dict[str, Any]]:
    """Return what a small cluster has, in the order of its references: `{"$": NAME}` is the id of another."""
    resources = {"platform": "gpu-h100-sxm", "preset": "8gpu-128vcpu-1600gb"}
    jail = {"attach_mode": "READ_WRITE", "mount_tag": "jail", "existing_filesystem": {"id": {"$": "jail"}}}
    template = {
        "resources": resources,
        "boot_disk": {"size_gibibytes": 512, "type": "NETWORK_SSD"},
        "gpu_cluster": {"id": {"$": "fabric"}},
        "network_interfaces": [{"subnet_id": {"$": "subnet"}}],
        "filesystems": [jail],
        "taints": [{"key": "nvidia.com/gpu", "value": "8", "effect": "NO_SCHEDULE"}],
        "preemptible": {},
    }
    plane = {"subnet_id": {"$": "subnet"}, "version": "1.35", "endpoints": {"public_endpoint": {}}}
    key = {
        "account": {"service_account": {"id": {"$": "account"}}},
        "expires_at": "2027-01-02T03:04:05Z",
        "secret_delivery_mode": "INLINE",
    }
    return [
        {"kind": "Network", "name": "network", "spec": {}},
        {"kind": "Subnet", "name": "subnet", "spec": {"network_id": {"$": "network"}}},
        {
            "kind": "Allocation",
            "name": "address",
            "spec": {"ipv4_public": {"cidr": "/32", "subnet_id": {"$": "subnet"}}},
        },
        {"kind": "Filesystem", "name": "jail", "spec": {"type": "NETWORK_SSD", "size_gibibytes": 2048}},
        {"kind": "GpuCluster", "name": "fabric", "spec": {"infiniband_fabric": "fabric-3"}},
        {"kind": "Cluster", "name": "k8s", "spec": {"control_plane": plane}},
        {
            "kind": "NodeGroup",
            "name": "workers",
            "parent_id": {"$": "k8s"},
            "spec": {"version": "1.35", "fixed_node_count": 2, "template": template},
        },
        {"kind": "ServiceAccount", "name": "account", "spec": {"description": "backups"}},
        {"kind": "Group", "name": "writers", "parent_id": "tenant-e00test", "spec": {}},
        {
            "kind": "GroupMembership",
            "name": "member",
            "parent_id": {"$": "writers"},
            "resource_name": "",
            "spec": {"member_id": {"$": "account"}},
        },
        {"kind": "AccessKey", "name": "key", "spec": key},
        {"kind": "Bucket", "name": "backups", "spec": {"versioning_policy": "ENABLED"}},
    ]


def few_rows() -> list[dict[str, Any]]:
    """Three that depend on each other."""
    return [row for row in cluster_rows() if row["name"] in ("network", "subnet", "address")]


class Project:
    """One stack, run by the engine in this process, or in one that is killed."""

    def __init__(self, root: Path, api: NebiusServer) -> None:
        self.root, self.api = root, api
        self.seen: list[events.Event] = []
        (root / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
        (root / "__main__.py").write_text(PROGRAM)

    def write(self, rows: list[dict[str, Any]], **defaults: Any) -> None:
        """What the program registers from now on."""
        common = {"owner": OWNER, "parent_id": PROJECT_ID, "pace": 0.01, **defaults}
        full = [{**common, "resource_name": row["name"], **row} for row in rows]
        (self.root / "rows.json").write_text(json.dumps(full))

    def run(self, kind: str, *, ok: bool = True, replace: tuple[str, ...] = ()) -> dict[str, str]:
        """Run; which operation each resource got, without those that stay as they are."""
        self.seen.clear()
        forced = {"scope": Scope(replace=replace)} if replace else {}
        result = getattr(_stack(self.root), kind)(self.seen.append, **forced)
        assert result.ok is ok, self.text()
        planned = [event for event in self.seen if isinstance(event, events.Planned)]
        return {e.name: e.op for e in planned if e.op != "same" and not e.type.endswith(":Stack")}

    def up(self, rows: list[dict[str, Any]], **defaults: Any) -> dict[str, str]:
        """Write, and run."""
        self.write(rows, **defaults)
        return self.run("up")

    def text(self) -> str:
        """All that the last run printed."""
        return "\n".join(str(event) for event in self.seen)

    def state(self) -> dict[str, Any]:
        """Rows of the state by name."""
        rows = _stack(self.root).export_state()["deployment"].get("resources", [])
        skip = ("pulumi:providers:", "pulumi:pulumi:Stack")
        return {row["urn"].split("::")[-1]: row for row in rows if not row["type"].startswith(skip)}

    def exported(self) -> dict[str, Any]:
        """Outputs of the stack."""
        rows = _stack(self.root).export_state()["deployment"].get("resources", [])
        return next(row["outputs"] for row in rows if row["type"] == "pulumi:pulumi:Stack")

    def pending(self) -> list[Any]:
        """Operations that a killed run left in the state."""
        return _stack(self.root).export_state()["deployment"].get("pending_operations", [])

    def killed(self, kind: str, number: int) -> bool:
        """Run it in another process, which is killed when the server has done that call, before it is answered.

        Whether it came to that.
        """
        child = FORKS.Process(target=_run, args=(str(self.root), kind, self.api.endpoint))
        return programs.killed(self.api, self.api.taken, number, child)


def _stack(root: Path) -> Any:
    workspace = Workspace(root, backend=f"file://{root}/backend", passphrase=lambda: "correct horse")
    return workspace.stack("test")


def _run(root: str, kind: str, endpoint: str) -> None:
    os.environ[VARIABLE] = endpoint  # the process that forks has the environment of its own start
    crypter.ROUNDS = 10  # as in the tests' own process
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        result = getattr(_stack(Path(root)), kind)(lambda _event: None)
    os._exit(0 if result.ok else 1)


def owned(api: NebiusServer) -> dict[str, list[str]]:
    """Ids of what has an owner, by kind and name: each name must have one at most."""
    found: dict[str, list[str]] = {}
    for id_, row in api.store.objects.items():
        if row["metadata"].get("labels", {}).get("hpc-owner") and row["state"] != "SCHEDULED_FOR_DELETION":
            found.setdefault(f"{row['kind']} {row['metadata'].get('name', '')}".strip(), []).append(id_)
    return found
