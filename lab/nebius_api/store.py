"""What the stand-in knows: objects, operations and idempotency keys; in memory, and in a file if asked."""

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

PREFIXES = {
    "Network": "vpcnetwork", "Subnet": "vpcsubnet", "Allocation": "vpcallocation", "Filesystem": "computefilesystem",
    "GpuCluster": "computegpucluster", "Disk": "computedisk", "Cluster": "mk8scluster", "NodeGroup": "mk8snodegroup",
    "K8sRelease": "k8srelease", "ServiceAccount": "serviceaccount", "GroupMembership": "groupmembership",
    "Group": "group", "AccessPermit": "accesspermit", "AccessKey": "accesskey",
    "Bucket": "storagebucket", "Operation": "operation",
}  # fmt: skip
"""Beginnings of ids, as Nebius's recipe checks them; of kinds that it does not check, the kind's name."""


def moment(seconds: float) -> str:
    """A time in RFC 3339."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Store:
    """Rows as JSON. Callers hold the server's lock."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.objects: dict[str, dict[str, Any]] = {}
        """By id: kind, state, created, and the JSON of metadata and spec; `facts` are of the kind."""
        self.operations: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        """By idempotency key: a digest of the request, and the id of its operation."""
        self.serial = 0
        self.seeded: list[str] = []
        """Projects and tenants that have what each has from the start."""
        if file is not None and file.exists():
            known = json.loads(file.read_text(encoding="utf-8"))
            self.objects, self.operations = known["objects"], known["operations"]
            self.keys, self.serial, self.seeded = known["keys"], known["serial"], known["seeded"]

    def save(self) -> None:
        """Write the file; a reader sees the old one or the new one."""
        if self._file is None:
            return
        names = ("objects", "operations", "keys", "serial", "seeded")
        known = {name: getattr(self, name) for name in names}
        new = self._file.with_name(f"{self._file.name}.new")
        # Access keys of the stand-in are in it.
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
            json.dump(known, stream, indent=1)
        new.replace(self._file)

    def new_id(self, kind: str) -> str:
        """An id in the API's form."""
        self.serial += 1
        return f"{PREFIXES[kind]}-e00{self.serial:012x}"

    def of(self, kind: str, parent: str | None = None) -> Iterator[dict[str, Any]]:
        """Rows of a kind, of one parent or of all."""
        for row in list(self.objects.values()):
            if row["kind"] == kind and parent in (None, row["metadata"].get("parent_id", "")):
                yield row

    def add(self, kind: str, metadata: dict[str, Any], spec: dict[str, Any], state: str) -> dict[str, Any]:
        """A new object."""
        id_, now = self.new_id(kind), time.time()
        shown = {**metadata, "id": id_, "resource_version": "1", "created_at": moment(now), "updated_at": moment(now)}
        self.objects[id_] = {"kind": kind, "state": state, "metadata": shown, "spec": spec, "facts": {}}
        return self.objects[id_]

    def start(
        self, row: dict[str, Any], verb: str, seconds: float | None, error: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """A new operation on an object; `seconds` None: it never ends."""
        operation = {
            "id": self.new_id("Operation"), "kind": row["kind"], "resource_id": row["metadata"]["id"], "verb": verb,
            "started": time.time(), "seconds": seconds, "error": error, "finished": None,
        }  # fmt: skip
        self.operations[operation["id"]] = operation
        return operation

    def under_way(self, id_: str) -> dict[str, Any] | None:
        """The operation on an object that has not ended."""
        rows = (one for one in self.operations.values() if one["resource_id"] == id_ and one["finished"] is None)
        return next(rows, None)
