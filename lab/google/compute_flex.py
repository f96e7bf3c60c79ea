"""A Compute Engine that queues machines of flex start: PENDING until there is capacity, gone where none came."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from lab.google.compute import FakeCompute
from lab.google.compute_world import GOOGLE, STOCK_OUT, Fault, Machine, Operation
from lab.google.http import Call, RefusalError

STEP = 2
"""Requests that a start takes."""


class FakeFlex(FakeCompute):
    """The server; `templates` has the provisioning model of each."""

    def __init__(self, *, capacity_after: float = 4, patience: float = 20, early: bool = False) -> None:
        """`capacity_after`: requests until there is capacity; `patience`: what two hours are in requests. `early`:
        whether the operation ends when the machine is queued, or when it runs."""
        super().__init__()
        self.capacity_after, self.patience, self.early = capacity_after, patience, early
        self.without: set[str] = set()
        """Names of machines for which there is no capacity."""
        self.templates = {"t-1": "FLEX_START", "t-2": "FLEX_START", "plain": "STANDARD"}
        self._ids = itertools.count(1000)

    def _routes(self) -> list[tuple[str, str, Callable[..., dict[str, Any]]]]:
        machine = r"(projects/[^/]+/zones/[^/]+/instances/[^/]+)"
        return [
            ("POST", f"{machine}/setMetadata", self._set_metadata),
            ("POST", f"{machine}/setLabels", self._set_labels),
            *super()._routes(),
        ]

    def _insert_machine(self, call: Call, zone: str) -> dict[str, Any]:
        path = f"{zone}/instances/{call.body['name']}"
        if known := self._known(call):
            return known
        if path in self.world.machines:
            raise RefusalError(409, "alreadyExists", f"The resource '{path}' already exists")
        model = self.templates.get(call.query.get("sourceInstanceTemplate", "").rpartition("/")[2])
        waits = int(call.body.get("params", {}).get("requestValidForDuration", {}).get("seconds", 0))
        if model is None:
            raise RefusalError(404, "notFound", "The resource 'instanceTemplates' was not found")
        if waits and (model != "FLEX_START" or not 90 <= waits <= 7200):
            raise RefusalError(400, "invalid", "Invalid value for field 'resource.params.requestValidForDuration'")
        resource = {
            **call.body,
            "selfLink": GOOGLE + path,
            "id": str(next(self._ids)),
            "status": "PENDING" if waits else "PROVISIONING",
            "metadata": {**call.body["metadata"], "fingerprint": "1"},
            "labelFingerprint": "1",
            "lastStartTimestamp": "2026-11-22T08:00:00.123-08:00",
            "scheduling": {"maxRunDuration": {"seconds": "3600"}},
            "networkInterfaces": [{"networkIP": "172.16.0.9"}, {"networkIP": "10.0.0.9"}],
        }
        self.world.machines[path] = machine = Machine(resource, [None])
        refused = self.faults.get("instances.insert", Fault()).errors
        patience = self.patience if waits and not refused else 1
        comes = not refused and self.capacity_after <= patience and call.body["name"] not in self.without
        told = self._later(path, self.capacity_after if comes else patience, lambda: None)
        told.errors = () if comes else refused or [STOCK_OUT]

        def finish() -> None:
            if self.world.machines.get(path) is not machine or machine.resource["status"] == "STOPPING":
                return
            if not comes:
                del self.world.machines[path]
                return
            resource["status"] = "STAGING"
            self._later(path, STEP, started)

        def started() -> None:
            if resource["status"] == "STAGING":
                resource["status"] = "RUNNING"

        told.finish = finish
        if not self.early:
            if request := call.query.get("requestId"):
                self.world.by_request[request] = told
            return told.seen()
        return self._begin(call, "instances.insert", path, lambda: None)

    def _later(self, path: str, requests: float, finish: Callable[[], None]) -> Operation:
        """What happens after so many requests, whoever sends them."""
        name = f"operation-{next(self._numbers)}"
        operation = Operation(
            name=name,
            target=path,
            zone=path.partition("/instances/")[0],
            kind="instances.insert",
            left=requests,
            finish=finish,
        )
        self.world.operations[name] = operation
        return operation

    def _set_metadata(self, call: Call, path: str) -> dict[str, Any]:
        resource = self._machine(path).resource
        if known := self._known(call):
            return known
        if call.body.get("fingerprint") != resource["metadata"]["fingerprint"]:
            raise RefusalError(
                412, "conditionNotMet", "Supplied fingerprint does not match current metadata fingerprint."
            )

        def finish() -> None:
            resource["metadata"] = {**call.body, "fingerprint": resource["metadata"]["fingerprint"] + "1"}

        return self._begin(call, "instances.setMetadata", path, finish)

    def _set_labels(self, call: Call, path: str) -> dict[str, Any]:
        resource = self._machine(path).resource
        if known := self._known(call):
            return known
        if call.body.get("labelFingerprint") != resource["labelFingerprint"]:
            raise RefusalError(
                412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed"
            )

        def finish() -> None:
            resource["labels"] = call.body["labels"]
            resource["labelFingerprint"] += "1"

        return self._begin(call, "instances.setLabels", path, finish)
