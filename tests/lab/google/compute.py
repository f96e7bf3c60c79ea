"""A stand-in of Compute Engine that speaks its JSON REST protocol, as far as a bake, flex start and the reconcile loop
use it.

Each request advances every operation by one step. So operations take several requests, can be read before they are
done, and continue after a client was killed. The stand-in refuses what Compute Engine refuses: an image of a disk whose
machine runs, a name that is taken, a deletion while another operation is in progress.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.local.compute_engine.errors import STOCK_OUT, not_found, not_ready, taken
from components.local.compute_engine.http import GOOGLE, Answer, Call, GoogleHttp, RefusalError
from components.local.compute_engine.instance_groups import InstanceGroups

STEPS = (None, "step 1 of 2: packages", "step 2 of 2: tests", "done")


@dataclass
class Operation:
    """An operation that has begun."""

    name: str
    target: str
    zone: str
    kind: str
    left: float
    """Number of requests until it is done."""
    finish: Callable[[], None]
    errors: Sequence[Mapping[str, Any]] = ()
    group: str = ""
    """Group of the operations of one request for many instances."""

    def to_json(self) -> dict[str, Any]:
        done = self.left <= 0
        row: dict[str, Any] = {
            "kind": "compute#operation",
            "id": self.name.rpartition("-")[2],
            "name": self.name,
            "operationType": self.kind.partition(".")[2],
            "targetLink": GOOGLE + self.target,
            "status": "DONE" if done else "RUNNING",
            "progress": 100 if done else 0,
        }
        if self.zone:
            row["zone"] = GOOGLE + self.zone
        if self.group:
            row["operationGroupId"] = self.group
        if done and self.errors:
            row |= {"error": {"errors": list(self.errors)}, "httpErrorStatusCode": 403}
        return row


@dataclass
class Fault:
    """A fault of calls of one kind, such as `instances.insert`."""

    errors: Sequence[Mapping[str, Any]] = ()
    """The operation ends with these errors."""
    never: bool = False
    """The operation does not end."""


@dataclass
class Machine:
    """An instance, and the progress of a builder."""

    resource: dict[str, Any]
    reports: list[str | None]
    """Values of its guest attribute, one for each request; the last one stays."""
    console: str = ""


@dataclass
class World:
    """The resources that exist."""

    machines: dict[str, Machine] = field(default_factory=dict)
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    by_request: dict[str, Operation] = field(default_factory=dict)
    """Operations by the id that the client gave its request."""


def in_use(disk: str) -> RefusalError:
    message = f"The disk resource '{disk}' is already being used"
    return RefusalError(400, "resourceInUseByAnotherResource", message)


class FakeCompute(GoogleHttp):
    """The server. Tests set the reports of its next builders, and its faults."""

    def __init__(self, *, steps: Sequence[str | None] = STEPS, console: str = "", requests_each: int = 2) -> None:
        super().__init__()
        self.steps, self.console, self.requests_each = steps, console, requests_each
        self.trial_steps: Sequence[str | None] = STEPS
        self.faults: dict[str, Fault] = {}
        self.world = World()
        self._numbers = itertools.count(1)

    # -- routes ------------------------------------------------------------------------------------------------------

    def handle(self, call: Call) -> Answer:
        for operation in list(self.world.operations.values()):
            if operation.left > 0:
                operation.left -= 1
                if operation.left <= 0:
                    operation.finish()
        # A repeated request is answered with the operation that the first one began.
        if operation := self.world.by_request.get(call.query.get("requestId", "")):
            return 200, operation.to_json()
        for method, pattern, answer in self._routes():
            if call.method == method and (match := re.fullmatch("/compute/v1/" + pattern, call.path)):
                return 200, answer(call, *match.groups())
        raise RefusalError(404, "notFound", f"no such method here: {call.method} {call.path}")

    def _routes(self) -> list[tuple[str, str, Callable[..., dict[str, Any]]]]:
        zone, machine = r"(projects/[^/]+/zones/[^/]+)", r"(projects/[^/]+/zones/[^/]+/instances/[^/]+)"
        return [
            ("POST", f"{zone}/instances", self._insert_machine),
            ("GET", f"({zone[1:-1]}/instances)", lambda call, path: self._list(call, path, self._machines())),
            ("GET", machine, lambda _, path: self._machine(path).resource),
            ("DELETE", machine, self._delete_machine),
            ("POST", f"{machine}/stop", self._stop),
            ("GET", f"{machine}/getGuestAttributes", self._guest_attributes),
            ("GET", f"{machine}/serialPort", self._serial_port),
            ("POST", r"(projects/[^/]+)/global/images", self._insert_image),
            ("GET", r"(projects/[^/]+/global/images)", lambda call, path: self._list(call, path, self.world.images)),
            ("GET", r"(projects/[^/]+/global/images/[^/]+)", lambda _, path: self._image(path)),
            ("DELETE", r"(projects/[^/]+/global/images/[^/]+)", self._delete_image),
            ("POST", r"(projects/[^/]+/global/images/[^/]+)/setLabels", self._label_image),
            ("GET", r"(?:projects/[^/]+/(?:global|zones/[^/]+))/operations/([^/]+)", self._operation),
        ]

    def _operation(self, _call: Call, name: str) -> dict[str, Any]:
        if name not in self.world.operations:
            raise not_found("operations/" + name)
        return self.world.operations[name].to_json()

    def _machines(self) -> dict[str, dict[str, Any]]:
        return {path: machine.resource for path, machine in self.world.machines.items()}

    def _list(self, call: Call, folder: str, found: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        key, _, value = call.query.get("filter", "").removeprefix("labels.").partition("=")
        rows = [row for path, row in found.items() if path.startswith(f"{folder}/")]
        return {"items": [row for row in rows if not key or row.get("labels", {}).get(key) == value]}

    def _begin(self, call: Call, kind: str, target: str, finish: Callable[[], None]) -> dict[str, Any]:
        fault = self.faults.get(kind, Fault())
        zone = re.sub("/(instances|instanceGroupManagers)/.*", "", target) if "/zones/" in target else ""
        operation = Operation(
            name=f"operation-{next(self._numbers)}",
            target=target,
            zone=zone,
            kind=kind,
            left=math.inf if fault.never else self.requests_each,
            finish=finish,
            errors=fault.errors,
        )
        self.world.operations[operation.name] = operation
        if request := call.query.get("requestId"):
            self.world.by_request[request] = operation
        return operation.to_json()

    def _busy(self, path: str, *kinds: str) -> bool:
        return any(o.target == path and o.left > 0 and o.kind in kinds for o in self.world.operations.values())

    # -- machines ----------------------------------------------------------------------------------------------------

    def _machine(self, path: str) -> Machine:
        if path not in self.world.machines:
            raise not_found(path)
        return self.world.machines[path]

    def _insert_machine(self, call: Call, zone: str) -> dict[str, Any]:
        path = f"{zone}/instances/{call.body['name']}"
        if path in self.world.machines:
            raise taken(path)
        return self._new_machine(call, path)

    def _new_machine(self, call: Call, path: str) -> dict[str, Any]:
        resource = {**call.body, "selfLink": GOOGLE + path, "status": "PROVISIONING"}
        steps = self.trial_steps if path.endswith("-trial") else self.steps
        machine = self.world.machines[path] = Machine(resource, [None, *steps], self.console)

        def finish() -> None:
            if self.faults.get("instances.insert", Fault()).errors:
                self.world.machines.pop(path, None)
            elif machine.resource["status"] == "PROVISIONING":
                machine.resource["status"] = "RUNNING"

        return self._begin(call, "instances.insert", path, finish)

    def _delete_machine(self, call: Call, path: str) -> dict[str, Any]:
        if self._busy(path, "instances.delete"):
            raise not_ready(path)
        self._machine(path).resource["status"] = "STOPPING"
        disk = path.replace("/instances/", "/disks/")
        if any(i["sourceDisk"] == disk and i["status"] == "PENDING" for i in self.world.images.values()):
            raise in_use(disk)

        def finish() -> None:
            if not self.faults.get("instances.delete", Fault()).errors:
                self.world.machines.pop(path, None)

        return self._begin(call, "instances.delete", path, finish)

    def _stop(self, call: Call, path: str) -> dict[str, Any]:
        machine = self._machine(path)
        machine.resource["status"] = "STOPPING"

        def finish() -> None:
            machine.resource["status"] = "TERMINATED"

        return self._begin(call, "instances.stop", path, finish)

    def _guest_attributes(self, call: Call, path: str) -> dict[str, Any]:
        machine = self._machine(path)
        if {"key": "enable-guest-attributes", "value": "TRUE"} not in machine.resource["metadata"]["items"]:
            raise RefusalError(403, "forbidden", "Guest attributes endpoint access is disabled")
        if machine.resource["status"] != "RUNNING":
            raise not_found("hpc/bake")
        report = machine.reports.pop(0) if len(machine.reports) > 1 else machine.reports[0]
        if report == "gone":
            del self.world.machines[path]
            raise not_found(path)
        if report == "off":
            machine.resource["status"] = "TERMINATED"
        if report is None or report == "off":
            raise not_found("hpc/bake")
        return _guest_attribute(call, report)

    def _serial_port(self, call: Call, path: str) -> dict[str, Any]:
        text, start = self._machine(path).console, int(call.query.get("start", 0))
        page = text[start : start + 4000]
        return {
            "kind": "compute#serialPortOutput",
            "contents": page,
            "start": str(start),
            "next": str(start + len(page)),
        }

    # -- images --------------------------------------------------------------------------------------------------------

    def _image(self, path: str) -> dict[str, Any]:
        if path not in self.world.images:
            raise not_found(path)
        return self.world.images[path]

    def _insert_image(self, call: Call, project: str) -> dict[str, Any]:
        path = f"{project}/global/images/{call.body['name']}"
        if path in self.world.images:
            raise taken(path)
        disk = call.body["sourceDisk"]
        if self._machine(disk.replace("/disks/", "/instances/")).resource["status"] != "TERMINATED":
            raise in_use(disk)
        image: dict[str, Any] = {**call.body, "selfLink": GOOGLE + path, "status": "PENDING", "labelFingerprint": "1"}
        self.world.images[path] = image

        def finish() -> None:
            broken = self.faults.get("images.insert", Fault()).errors
            image["status"] = "FAILED" if broken else "READY"

        return self._begin(call, "images.insert", path, finish)

    def _delete_image(self, call: Call, path: str) -> dict[str, Any]:
        self._image(path)
        if self._busy(path, "images.insert", "images.delete"):
            raise not_ready(path)

        def finish() -> None:
            self.world.images.pop(path, None)

        return self._begin(call, "images.delete", path, finish)

    def _label_image(self, call: Call, path: str) -> dict[str, Any]:
        image = self._image(path)
        if call.body["labelFingerprint"] != image["labelFingerprint"]:
            raise RefusalError(
                412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed"
            )

        def finish() -> None:
            image["labels"], image["labelFingerprint"] = call.body["labels"], image["labelFingerprint"] + "1"

        return self._begin(call, "images.setLabels", path, finish)


STEP = 2
"""Number of requests that the start of a machine takes."""


class FakeFlex(FakeCompute):
    """The server for nodes of flex start; `templates` has the provisioning model of each template."""

    def __init__(self, *, capacity_after: float = 4, wait_requests: float = 20, early: bool = False) -> None:
        """`capacity_after`: number of requests until there is capacity; `wait_requests`: number of requests that stands
        for two hours; `early`: whether the operation ends when the machine is queued, or when it runs."""
        super().__init__()
        self.capacity_after, self.wait_requests, self.early = capacity_after, wait_requests, early
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

    def _new_machine(self, call: Call, path: str) -> dict[str, Any]:
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
        requests = self.wait_requests if waits and not refused else 1
        comes = not refused and self.capacity_after <= requests and call.body["name"] not in self.without
        pending = self._schedule(path, self.capacity_after if comes else requests, lambda: None)
        pending.errors = () if comes else refused or [STOCK_OUT]

        def finish() -> None:
            if self.world.machines.get(path) is not machine or machine.resource["status"] == "STOPPING":
                return
            if not comes:
                del self.world.machines[path]
                return
            resource["status"] = "STAGING"
            self._schedule(path, STEP, started)

        def started() -> None:
            if resource["status"] == "STAGING":
                resource["status"] = "RUNNING"

        pending.finish = finish
        if not self.early:
            if request := call.query.get("requestId"):
                self.world.by_request[request] = pending
            return pending.to_json()
        return self._begin(call, "instances.insert", path, lambda: None)

    def _schedule(self, path: str, requests: float, finish: Callable[[], None]) -> Operation:
        """Call `finish` after this number of requests of any client."""
        name, zone = f"operation-{next(self._numbers)}", path.partition("/instances/")[0]
        operation = Operation(name, path, zone, "instances.insert", requests, finish)
        self.world.operations[name] = operation
        return operation

    def _set_metadata(self, call: Call, path: str) -> dict[str, Any]:
        resource = self._machine(path).resource
        if call.body.get("fingerprint") != resource["metadata"]["fingerprint"]:
            raise RefusalError(
                412, "conditionNotMet", "Supplied fingerprint does not match current metadata fingerprint."
            )

        def finish() -> None:
            resource["metadata"] = {**call.body, "fingerprint": resource["metadata"]["fingerprint"] + "1"}

        return self._begin(call, "instances.setMetadata", path, finish)

    def _set_labels(self, call: Call, path: str) -> dict[str, Any]:
        resource = self._machine(path).resource
        if call.body.get("labelFingerprint") != resource["labelFingerprint"]:
            raise RefusalError(
                412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed"
            )

        def finish() -> None:
            resource["labels"] = call.body["labels"]
            resource["labelFingerprint"] += "1"

        return self._begin(call, "instances.setLabels", path, finish)


class FakeElastic(InstanceGroups, FakeCompute):
    """The server for instances of templates, which are created one by one, many at once or by a resize request, and
    listed by label.

    A subclass may run a machine for each instance: `boot` and `halt` are called when an instance starts and ends.
    """

    def __init__(self, templates: Mapping[str, Mapping[str, Any]], *, requests_each: int = 1) -> None:
        """`templates`: properties of each instance template, by its name."""
        super().__init__(requests_each=requests_each)
        self.templates = {name: dict(properties) for name, properties in templates.items()}
        self.capacity: dict[str, int] = {}
        """Number of instances that can still be created from a template; others have no limit."""
        self.unreachable: list[str] = []
        """Zones that lists leave out, as `zones/NAME`."""
        self.guest: dict[str, str] = {}
        """Guest attribute hpc/boot of instances, by name."""
        self.consoles: dict[str, str] = {}
        self.reportable = True
        """Whether hosts can be reported as faulty."""
        self.host = ""
        """Host of all new instances; each has a host of its own if this is empty."""
        self.clock: Callable[[], float] = time.time
        self._ids = itertools.count(1000)
        self.groups = {}
        self.queue_seconds, self.queue_error = 0.0, ""
        """Time for which requests of flex start wait, and the error with which they then fail."""

    def handle(self, call: Call) -> Answer:
        self.step_groups()
        return super().handle(call)

    def queue(self) -> tuple[float, str]:
        return self.queue_seconds, self.queue_error

    def now(self) -> float:
        return self.clock()

    def template_of(self, link: str) -> Mapping[str, Any]:
        return self._template(link)[1]

    def shortage_of(self, link: str, count: int) -> list[Mapping[str, Any]]:
        return [STOCK_OUT] if self._take_capacity(self._template(link)[0], count) else []

    def create_members(self, zone: str, names: Sequence[str], link: str, group: str, ends: float) -> None:
        until = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime(ends))
        created_by = {"key": "created-by", "value": f"projects/1/zones/z/instanceGroupManagers/{group}"}
        for name in names:
            path = f"{zone}/instances/{name}"
            resource = self._resource(path, self.template_of(link), {"metadata": {"items": [created_by]}})
            resource["resourceStatus"]["scheduling"] = {"terminationTimestamp": until}
            self._add(path, {**resource, "status": "RUNNING"})
            self.boot(name, resource)

    def delete_members(self, zone: str, names: Sequence[str]) -> None:
        for name in names:
            if f"{zone}/instances/{name}" in self.world.machines:
                self.end(name, "")

    def begin_operation(self, call: Call, kind: str, path: str, finish: Callable[[], None]) -> dict[str, Any]:
        return self._begin(call, kind, path, finish)

    def boot(self, name: str, resource: dict[str, Any]) -> None:
        """Called when an instance starts, and after a reset."""

    def halt(self, name: str, resource: dict[str, Any]) -> None:
        """Called when an instance has ended."""

    def end(self, name: str, status: str = "TERMINATED") -> None:
        """End an instance without a request, as a preemption does. Delete it if `status` is empty."""
        path = next(path for path in self.world.machines if path.endswith(f"/instances/{name}"))
        self.halt(name, self.world.machines[path].resource)
        if status:
            self.world.machines[path].resource["status"] = status
        else:
            del self.world.machines[path]

    def _routes(self) -> list[tuple[str, str, Callable[..., dict[str, Any]]]]:
        zone, machine = r"(projects/[^/]+/zones/[^/]+)", r"(projects/[^/]+/zones/[^/]+/instances/[^/]+)"
        return [
            ("GET", r"(projects/[^/]+)/aggregated/instances", self._aggregated),
            ("POST", f"{zone}/instances/bulkInsert", self._bulk_insert),
            ("GET", f"{zone}/operations", self._operations),
            ("POST", f"{machine}/reset", self._reset),
            ("POST", f"{machine}/performMaintenance", self._perform_maintenance),
            ("POST", f"{machine}/reportHostAsFaulty", self._report_host),
            *self.group_routes(),
            *super()._routes(),
        ]

    def _aggregated(self, call: Call, project: str) -> dict[str, Any]:
        key, _, value = call.query.get("filter", "").removeprefix("labels.").partition("=")
        every = [
            (path.split("/")[3], row)
            for path, row in sorted(self._machines().items())
            if path.startswith(f"{project}/") and (not key or row.get("labels", {}).get(key) == value)
        ]
        start, most = int(call.query.get("pageToken", 0)), int(call.query.get("maxResults", 500))
        items: dict[str, Any] = {"zones/us-west8-z": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
        for zone, row in every[start : start + most]:
            if f"zones/{zone}" not in self.unreachable:
                items.setdefault(f"zones/{zone}", {"instances": []})["instances"].append(row)
        answer: dict[str, Any] = {"items": items}
        if self.unreachable:
            answer["unreachables"] = list(self.unreachable)
        if start + most < len(every):
            answer["nextPageToken"] = str(start + most)
        return answer

    def _operations(self, call: Call, zone: str) -> dict[str, Any]:
        group = call.query.get("filter", "").partition("=")[2]
        return {
            "items": [operation.to_json() for operation in self.world.operations.values() if operation.group == group]
        }

    def _template(self, link: str) -> tuple[str, dict[str, Any]]:
        name = link.rpartition("/")[2]
        if name not in self.templates:
            raise RefusalError(404, "notFound", f"The resource '{link.rpartition('/compute/v1/')[2]}' was not found")
        return name, self.templates[name]

    def _resource(self, path: str, properties: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        zone, _, name = path.partition("/instances/")
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.clock()))
        return {
            "metadata": {"items": []},
            **properties,
            **given,
            "name": name,
            "id": str(next(self._ids)),
            "zone": GOOGLE + zone,
            "selfLink": GOOGLE + path,
            "creationTimestamp": f"{now}.000+00:00",
            "status": "PROVISIONING",
            "resourceStatus": {"physicalHost": self.host or f"/block/sub/host-{next(self._numbers)}"},
        }

    def _new_machine(self, call: Call, path: str) -> dict[str, Any]:
        template, properties = self._template(call.query.get("sourceInstanceTemplate", ""))
        self._add(path, self._resource(path, properties, call.body))
        short = self._take_capacity(template, 1)
        operation = self._begin(call, "instances.insert", path, lambda: None)
        self._finish_insert([path], operation["name"], short)
        return operation

    def _bulk_insert(self, call: Call, zone: str) -> dict[str, Any]:
        template, properties = self._template(call.body["sourceInstanceTemplate"])
        paths = [f"{zone}/instances/{name}" for name in call.body["perInstanceProperties"]]
        if int(call.body["count"]) != len(paths) or int(call.body.get("minCount", len(paths))) != len(paths):
            raise RefusalError(400, "invalid", "Invalid value for field 'count'")
        for path in paths:
            if path in self.world.machines:
                raise taken(path)
        given = {name: value for name, value in call.body.get("instanceProperties", {}).items() if name != "labels"}
        labels = {**properties.get("labels", {}), **call.body.get("instanceProperties", {}).get("labels", {})}
        for path in paths:
            self._add(path, self._resource(path, properties, {**given, "labels": dict(labels)}))
        short = self._take_capacity(template, len(paths))
        operation = self._begin(call, "instances.insert", f"{zone}/instances/", lambda: None)
        self._finish_insert(paths, operation["name"], short)
        return self.world.operations[operation["name"]].to_json()

    def _add(self, path: str, resource: dict[str, Any]) -> None:
        self.world.machines[path] = Machine(resource, [None], self.consoles.get(resource["name"], ""))

    def _take_capacity(self, template: str, count: int) -> bool:
        """Take capacity of a template. Returns whether there is too little."""
        if template not in self.capacity:
            return False
        if self.capacity[template] < count:
            return True
        self.capacity[template] -= count
        return False

    def _finish_insert(self, paths: Sequence[str], name: str, short: bool) -> None:
        """Make an operation start its instances at its end, or delete them if it fails."""
        operation = self.world.operations[name]
        machines = {path: self.world.machines[path] for path in paths}
        refused = list(operation.errors) or ([STOCK_OUT] if short else [])
        if len(paths) > 1:
            operation.group = f"group-{name}"
            operation.errors = [{"code": "VM_MIN_COUNT_NOT_REACHED", "message": "0 of all"}] if refused else []
            for path in paths:
                each = f"{name}-{path.rpartition('/')[2]}"
                self.world.operations[each] = Operation(
                    each, path, operation.zone, operation.kind, 0, lambda: None, refused, operation.group
                )
        else:
            operation.errors = refused

        def finish() -> None:
            for path, machine in machines.items():
                # The instance may have been deleted meanwhile.
                if self.world.machines.get(path) is not machine or machine.resource["status"] != "PROVISIONING":
                    continue
                if refused:
                    del self.world.machines[path]
                else:
                    machine.resource["status"] = "RUNNING"
                    self.boot(machine.resource["name"], machine.resource)

        operation.finish = finish

    def _delete_machine(self, call: Call, path: str) -> dict[str, Any]:
        if self._busy(path, "instances.delete"):
            raise not_ready(path)
        machine = self._machine(path)
        machine.resource["status"] = "STOPPING"

        def finish() -> None:
            if not self.faults.get("instances.delete", Fault()).errors and self.world.machines.get(path) is machine:
                self.halt(machine.resource["name"], machine.resource)
                del self.world.machines[path]

        return self._begin(call, "instances.delete", path, finish)

    def _reset(self, call: Call, path: str) -> dict[str, Any]:
        machine = self._machine(path)
        if machine.resource["status"] != "RUNNING":
            raise not_ready(path)

        def finish() -> None:
            self.halt(machine.resource["name"], machine.resource)
            self.boot(machine.resource["name"], machine.resource)

        return self._begin(call, "instances.reset", path, finish)

    def _report_host(self, call: Call, path: str) -> dict[str, Any]:
        machine = self._machine(path)
        if not self.reportable:
            raise RefusalError(400, "invalid", "Reporting a faulty host is not supported for this machine type")
        reasons = call.body.get("faultReasons", [])
        behaviors = {"PERFORMANCE", "SILENT_DATA_CORRUPTION", "UNRECOVERABLE_GPU_ERROR", "CHIP_ERROR"}
        if call.body.get("disruptionSchedule") != "IMMEDIATE" or not {row["behavior"] for row in reasons} <= behaviors:
            raise RefusalError(400, "invalid", "Invalid value for field 'resource.faultReasons'")
        machine.resource["status"] = "REPAIRING"

        def finish() -> None:
            machine.resource["resourceStatus"] = {"physicalHost": f"/block/sub/host-{next(self._numbers)}"}
            machine.resource["status"] = "RUNNING"
            self.boot(machine.resource["name"], machine.resource)

        return self._begin(call, "instances.report", path, finish)

    def maintain(self, name: str, *, reasons: Sequence[str] = ("PLANNED_UPDATE",)) -> None:
        """Announce maintenance of an instance's host."""
        for machine in self.world.machines.values():
            if machine.resource["name"] == name:
                upcoming = {
                    "type": "SCHEDULED", "maintenanceStatus": "PENDING", "canReschedule": True,
                    "maintenanceReasons": list(reasons),
                }  # fmt: skip
                machine.resource["resourceStatus"]["upcomingMaintenance"] = upcoming

    def _perform_maintenance(self, call: Call, path: str) -> dict[str, Any]:
        machine = self._machine(path)
        upcoming = machine.resource["resourceStatus"].get("upcomingMaintenance", {})
        if upcoming.get("maintenanceStatus") != "PENDING" or not upcoming.get("canReschedule"):
            raise RefusalError(400, "invalid", "There is no maintenance that can be performed")
        upcoming["maintenanceStatus"] = "ONGOING"
        self.halt(machine.resource["name"], machine.resource)

        def finish() -> None:
            machine.resource["resourceStatus"].pop("upcomingMaintenance", None)
            self.boot(machine.resource["name"], machine.resource)

        return self._begin(call, "instances.performMaintenance", path, finish)

    def _guest_attributes(self, call: Call, path: str) -> dict[str, Any]:
        name = self._machine(path).resource["name"]
        if name not in self.guest:
            raise not_found(call.query["queryPath"])
        return _guest_attribute(call, self.guest[name])


def _guest_attribute(call: Call, value: str) -> dict[str, Any]:
    namespace, _, key = call.query["queryPath"].partition("/")
    items = [{"namespace": namespace, "key": key, "value": value}]
    return {"kind": "compute#guestAttributes", "queryValue": {"items": items}}
