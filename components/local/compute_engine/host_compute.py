"""A stand-in of Compute Engine whose instances are machines of this host: the cloud of a rehearsal's elastic nodes.

It speaks Compute Engine's protocol as the reconcile loop uses it. An instance is a machine of the design that its
template names, and its status is that of the machine. Operations take seconds, continue without requests, and are
continued by the next process: the state is one file, written after each change. It does not imitate disks, networks,
permissions and quotas, nor the metadata server on the machines.

Faults are set while the stand-in runs, under /rehearsal/ with the same token: see `Faults`, and `FaultClient` in
fault_day.py.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from components.local.compute_engine.errors import QUOTA, STOCK_OUT, not_found, not_ready, taken
from components.local.compute_engine.http import GOOGLE, Answer, Call, GoogleHttp, RefusalError
from components.local.compute_engine.instance_groups import InstanceGroups
from components.local.host import machine
from components.local.host.cloud import INSTANCE, CloudPaths
from components.local.host.layer import File
from components.local.host.paths import HostError
from components.local.host.process import Process, usual_umask
from scripts.hostfiles import locked, write_atomically

WORKERS = 8
"""Machines that are started or ended at the same time."""
KEPT = 400
"""Number of finished operations that the state keeps."""
NOTICE_SECONDS = 30.0
"""From the notice of a preemption until the instance is stopped, by default."""
NVIDIA_SMI = "/usr/bin/nvidia-smi"
LOST = """\
#!/bin/sh
echo "Unable to determine the device handle for GPU 0000:04:00.0: GPU is lost.  Reboot the system to recover this GPU"
exit 15
"""
"""A replacement of nvidia-smi with its message and exit code for a lost GPU (nvidia-smi(1))."""
PLACE = "/etc/hpc/place"
"""File with the name of the host, as scripts/gcp/start.py writes it."""
_JOIN_UNIT = "/etc/systemd/system/multi-user.target.wants/hpc-node.service"
_TICK_SECONDS = 0.1
_MINIMUM_MISSED = {"code": "VM_MIN_COUNT_NOT_REACHED", "message": "Requested minimum count of VMs was not reached."}


@dataclass
class Faults:
    """The faults of the cloud, until others are set."""

    insert_seconds: float = 3.0
    """Time for which an instance is provisioned before its machine boots. If Slurm requested the node, a shorter time
    makes slurmctld conclude, by three roundings to whole seconds, that the node had booted before the request."""
    delete_seconds: float = 0.5
    capacity: dict[str, int] = field(default_factory=dict)
    """Largest number of instances at a time by way, such as `spot`, or `*` for all. Further ones are a stock-out."""
    stock_out_until: dict[str, float] = field(default_factory=dict)
    """End of a stock-out by way, in seconds since 1970."""
    quota: int | None = None
    """Largest number of instances of the project."""
    hang: dict[str, int] = field(default_factory=dict)
    """Number of the next operations that do not end, by kind: `insert`, `delete`."""
    unavailable: float = 0.0
    """Part of the requests that are answered with 503, 0 to 1."""
    queue_seconds: float = 3.0
    """Least time for which a request of flex start waits."""
    queue_error: str = ""
    """Code of the error with which that request fails; empty for none."""
    bad_hosts: list[str] = field(default_factory=list)
    """Hosts, such as `host-3`, whose machines boot and never join the cluster."""
    sick_hosts: list[str] = field(default_factory=list)
    """Hosts whose machines report a lost GPU by nvidia-smi, from their next boot on."""


@dataclass
class HostInstance:
    """An instance. Its machine has the same name."""

    id: str
    name: str
    zone: str
    template: str
    """Empty for a static node, whose machine the stack creates and deletes."""
    labels: dict[str, str]
    created: float
    host: str
    status: str = "PROVISIONING"
    stops: float = 0.0
    """Time of its preemption; 0 for none."""
    maintenance: float = 0.0
    """Start of its maintenance window; 0 for none."""
    group: str = ""
    """Its managed instance group, if it has one."""
    ends: float = 0.0
    """Time of its deletion at the end of its run time; 0 for none."""


@dataclass
class HostOperation:
    """An operation on instances that has begun."""

    name: str
    kind: str
    zone: str
    targets: list[str]
    due: float
    """Time at which it acts, in seconds since 1970."""
    done: bool = False
    errors: list[dict[str, Any]] = field(default_factory=list)
    group: str = ""
    hangs: bool = False

    def to_json(self) -> dict[str, Any]:
        target = self.targets[0] if len(self.targets) == 1 else ""
        row: dict[str, Any] = {
            "kind": "compute#operation",
            "id": self.name.rpartition("-")[2],
            "name": self.name,
            "operationType": self.kind,
            "targetLink": f"{GOOGLE}{self.zone}/instances/{target}",
            "zone": GOOGLE + self.zone,
            "status": "DONE" if self.done else "RUNNING",
            "progress": 100 if self.done else 0,
        }
        if self.group:
            row["operationGroupId"] = self.group
        if self.done and self.errors:
            row |= {"error": {"errors": self.errors}, "httpErrorStatusCode": 503}
        return row


class HostCompute(InstanceGroups, GoogleHttp):
    """The server of one stack."""

    def __init__(self, paths: CloudPaths) -> None:
        self._paths = paths
        self.design: dict[str, Any] = json.loads(paths.design.read_text())
        super().__init__((self.design["gateway"], int(self.design["port"])))
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._pool = ThreadPoolExecutor(WORKERS)
        self._acting: dict[str, threading.Thread] = {}
        """Threads of operations that act at present."""
        self._machine_locks: dict[str, threading.Lock] = {}
        """Locks that are held while a machine is changed, by its name."""
        self._ended = threading.Event()
        self._random = random.Random(0)  # noqa: S311 - the same faults in each run
        self.requests: deque[dict[str, Any]] = deque(maxlen=2000)
        """The last requests: time, method, path, status."""
        self.instances: dict[str, HostInstance] = {}
        self.operations: dict[str, HostOperation] = {}
        self.by_request: dict[str, str] = {}
        self.faults = Faults()
        self.groups = {}
        self.next = 1
        self._load()

    # -- state -------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        with suppress(FileNotFoundError):
            state = json.loads(self._paths.state.read_text())
            self.instances = {row["name"]: HostInstance(**row) for row in state["instances"]}
            self.operations = {row["name"]: HostOperation(**row) for row in state["operations"]}
            self.by_request, self.next = state["requests"], state["next"]
            self.faults = Faults(**state["faults"])
            self.groups = state.get("groups", {})
        self._read_design()

    def _save(self) -> None:
        for name in [name for name, operation in self.operations.items() if operation.done][:-KEPT]:
            del self.operations[name]
        self.by_request = {key: name for key, name in self.by_request.items() if name in self.operations}
        state = {
            "instances": [asdict(instance) for instance in self.instances.values()],
            "operations": [asdict(operation) for operation in self.operations.values()],
            "requests": self.by_request,
            "next": self.next,
            "faults": asdict(self.faults),
            "groups": self.groups,
        }
        write_atomically(self._paths.state, json.dumps(state), mode=0o600)
        self._changed.notify_all()

    def _number(self) -> str:
        self.next += 1
        return str(self.next)

    # -- time --------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Act on operations until `end` is called or the folder is gone, then finish with machines in progress."""
        # Not `wait`: it holds the lock that `end` needs, which a signal handler calls on this thread.
        while not self._ended.is_set() and self._paths.lock.exists():
            self.tick()
            time.sleep(_TICK_SECONDS)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def end(self) -> None:
        """Make `serve` return."""
        self._ended.set()

    def tick(self) -> None:
        """Start operations and preemptions that are due."""
        now = time.time()
        with self._lock:
            self.step_groups()
            for name, operation in self.operations.items():
                if not operation.done and not operation.hangs and name not in self._acting and operation.due <= now:
                    self._acting[name] = threading.Thread(target=self._run_operation, args=[operation], daemon=True)
                    self._acting[name].start()
            for instance in self.instances.values():
                if instance.stops and instance.stops <= now:
                    instance.stops, instance.status = 0.0, "STOPPING"
                    self._begin("preempted", instance.zone, [instance.name], 0.0)

    def _run_operation(self, operation: HostOperation) -> None:
        """Run an operation on all of its instances in parallel. One that was interrupted is repeated."""
        try:
            results = [self._pool.submit(self._act_on, operation, name) for name in operation.targets]
            errors = [error for result in results for error in result.result()]
        except (RuntimeError, CancelledError):  # this process ends
            return
        with self._lock:
            operation.done, operation.errors = True, [*operation.errors, *errors]
            del self._acting[operation.name]
            self._save()

    def _act_on(self, operation: HostOperation, name: str) -> list[dict[str, Any]]:
        acts = {
            "insert": self._boot, "delete": self._remove, "stop": self._halt, "preempted": self._halt,
            "start": self._start, "reset": self._reset, "reportHostAsFaulty": self._change_host,
            "performMaintenance": self._perform_maintenance,
        }  # fmt: skip
        with self._lock:
            machine_lock = self._machine_locks.setdefault(name, threading.Lock())
        with machine_lock:
            with self._lock:
                instance = self.instances.get(name)
            try:
                if instance and operation.kind == "insert" and operation.errors:
                    self._forget(instance)
                elif instance:
                    acts[operation.kind](instance)
            except (HostError, OSError) as error:
                print(f"{operation.kind} of {name}: {error}", flush=True)
                return [{"code": "INTERNAL_ERROR", "message": f"{name}: {error}"}]
        return []

    def _set_status(self, instance: HostInstance, status: str, *before: str) -> bool:
        """Set the status if it is one of `before`, and if no other instance has the name now."""
        with self._lock:
            if self.instances.get(instance.name) is not instance or (before and instance.status not in before):
                return False
            instance.status = status
            self._save()
            return True

    def _forget(self, instance: HostInstance) -> None:
        with self._lock:
            if self.instances.get(instance.name) is instance:
                del self.instances[instance.name]
                self._save()

    # -- machines ----------------------------------------------------------------------------------------------------

    def _machine(self, instance: HostInstance) -> machine.Design:
        """Return the design of an instance's machine."""
        # The template may be deleted, since the stack has another image.
        template = self.design["templates"].get(instance.template)
        nodeset = template["nodeset"] if template else instance.labels["hpc-nodeset"]
        props = self.design["machines"][nodeset]
        design = machine.design({**props, "name": instance.name, "address": self.design["addresses"][instance.name]})
        if not instance.template:
            return design
        files = {INSTANCE: File(content=f"{instance.id}\n"), PLACE: File(content=f"{_place(instance)}\n")}
        if instance.host in self.faults.bad_hosts:
            files[_JOIN_UNIT] = File(link="/dev/null")
        if instance.host in self.faults.sick_hosts:
            files[NVIDIA_SMI] = File(content=LOST, mode=0o755)
        return replace(design, files={**design.files, **files})

    def _bare(self, instance: HostInstance) -> machine.Design:
        return machine.bare(Path(self.design["root"]), self.design["stack"], instance.name)

    def _boot(self, instance: HostInstance) -> None:
        if not self._set_status(instance, "STAGING", "PROVISIONING", "STAGING"):
            return
        design = self._machine(instance)
        # An earlier process may have been killed after the start of the machine.
        with suppress(FileNotFoundError):
            text = Path(f"{design.paths.upper}{INSTANCE}").read_text()
            if text == f"{instance.id}\n" and machine.running(design.paths):
                self._set_status(instance, "RUNNING", "STAGING")
                return
        try:
            machine.create(design)
        except HostError:
            self._forget(instance)
            raise
        self._set_status(instance, "RUNNING", "STAGING")

    def _remove(self, instance: HostInstance) -> None:
        bare = self._bare(instance)
        files = machine.files_of(bare.paths)
        # A node that has become static has another machine of this name.
        if files is None or INSTANCE in files:
            machine.delete(bare)
        self._forget(instance)

    def _halt(self, instance: HostInstance) -> None:
        if not self._set_status(instance, "STOPPING", "RUNNING", "STOPPING", "STAGING", "PROVISIONING"):
            return
        machine.stop(self._bare(instance))
        scheduling = self._properties(instance).get("scheduling", {})
        if scheduling.get("instanceTerminationAction") == "DELETE":
            self._remove(instance)
        else:
            self._set_status(instance, "TERMINATED")

    def _start(self, instance: HostInstance) -> None:
        machine.update(self._machine(instance))
        self._set_status(instance, "RUNNING")

    def _reset(self, instance: HostInstance) -> None:
        machine.stop(self._bare(instance))
        self._start(instance)

    def _perform_maintenance(self, instance: HostInstance) -> None:
        with self._lock:
            instance.maintenance = 0.0
        self._reset(instance)

    def _change_host(self, instance: HostInstance) -> None:
        """Restart the instance on another host, with its disk."""
        machine.stop(self._bare(instance))
        with self._lock:
            instance.host = self._free_host()
        self._start(instance)

    def _free_host(self) -> str:
        taken = {instance.host for instance in self.instances.values()}
        return next(name for n in range(len(taken) + 2) if (name := f"host-{n}") not in taken)

    # -- requests ----------------------------------------------------------------------------------------------------

    def answer(self, call: Call) -> Answer:
        """Handle a request, and return the answer for the client."""
        try:
            answer = self._answer_authenticated(call)
        except RefusalError as refusal:
            answer = refusal.answer
        self.requests.append({"time": time.time(), "method": call.method, "path": call.path, "status": answer[0]})
        return answer

    def _answer_authenticated(self, call: Call) -> Answer:
        if call.headers.get("Authorization") != f"Bearer {self.design['token']}":
            raise RefusalError(401, "authError", "Request had invalid authentication credentials.")
        if call.path.startswith("/compute/") and self._random.random() < self.faults.unavailable:
            raise RefusalError(503, "backendError", "Service is currently unavailable.")
        with self._lock:
            self._read_design()
            return self.handle(call)

    def _read_design(self) -> None:
        """Read the design again, since `up` may have changed it."""
        with suppress(FileNotFoundError, ValueError):
            self.design = json.loads(self._paths.design.read_text())
        static = dict(self.design["static"])
        for name in [name for name, row in self.instances.items() if not row.template and name not in static]:
            del self.instances[name]
        for name, nodeset in static.items():
            if name not in self.instances:
                labels = {**self.design["labels"], "hpc-nodeset": nodeset, "hpc-node": name}
                self._add(self.design["place"], name, "", labels)

    def handle(self, call: Call) -> Answer:
        """Answer a request that is authenticated."""
        # A repeated request is answered with the operation that the first one began.
        if name := self.by_request.get(call.query.get("requestId", "")):
            return 200, self.operations[name].to_json()
        for method, pattern, answer in self._routes():
            if call.method == method and (match := re.fullmatch(pattern, call.path)):
                return 200, answer(call, *match.groups())
        raise RefusalError(404, "notFound", f"no such method here: {call.method} {call.path}")

    def _routes(self) -> list[tuple[str, str, Callable[..., dict[str, Any]]]]:
        project = r"/compute/v1/(projects/[^/]+)"
        zone, instance = rf"{project[:-1]}/zones/[^/]+)", rf"{project[:-1]}/zones/[^/]+)/instances/([^/]+)"
        changes: list[tuple[str, str, Callable[..., dict[str, Any]]]] = [
            ("POST", f"{instance}/{kind}", lambda call, zone, name, kind=kind: self._change(call, kind, zone, name))
            for kind in ("stop", "start", "reset", "reportHostAsFaulty", "performMaintenance")
        ]
        return [
            ("GET", f"{project}/aggregated/instances", self._aggregated),
            ("GET", f"{zone}/instances", self._list),
            ("POST", f"{zone}/instances", self._insert),
            ("POST", f"{zone}/instances/bulkInsert", self._bulk_insert),
            ("GET", instance, lambda _, zone, name: self._instance_json(self._instance(zone, name))),
            ("DELETE", instance, self._delete),
            ("GET", f"{instance}/serialPort", self._serial_port),
            ("GET", f"{instance}/getGuestAttributes", lambda _, zone, name: self._no_attribute(zone, name)),
            *changes,
            *((method, f"/compute/v1/{path}", answer) for method, path, answer in self.group_routes()),
            ("GET", f"{zone}/operations", self._operations),
            ("GET", f"{zone}/operations/([^/]+)", self._operation),
            ("POST", f"{zone}/operations/([^/]+)/wait", self._operation),
            ("GET", "/rehearsal/faults", lambda _: asdict(self.faults)),
            ("POST", "/rehearsal/faults", self._set_faults),
            ("POST", "/rehearsal/preempt/([^/]+)", self._preempt),
            ("POST", "/rehearsal/maintenance/([^/]+)", self._maintain),
            ("GET", "/rehearsal/requests", lambda _: {"requests": list(self.requests)}),
        ]

    def _instance(self, zone: str, name: str) -> HostInstance:
        instance = self.instances.get(name)
        if instance is None or instance.zone != zone:
            raise not_found(f"{zone}/instances/{name}")
        return instance

    def _properties(self, instance: HostInstance) -> Mapping[str, Any]:
        return self.design["templates"].get(instance.template, {}).get("properties", {})

    def _instance_json(self, instance: HostInstance) -> dict[str, Any]:
        """Return an instance as it is now. One whose machine has ended is TERMINATED."""
        if instance.status == "RUNNING" or (instance.status == "TERMINATED" and not instance.template):
            paths = self._bare(instance).paths
            runs = machine.running(paths) is not None or machine.is_between_boots(paths)
            instance.status = "RUNNING" if runs else "TERMINATED"
        created = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(instance.created))
        status: dict[str, Any] = {"physicalHost": _place(instance)}
        if instance.maintenance:
            begins = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instance.maintenance))
            ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instance.maintenance + 3600))
            status["upcomingMaintenance"] = {
                "type": "SCHEDULED", "maintenanceStatus": "PENDING", "canReschedule": True,
                "windowStartTime": begins, "latestWindowStartTime": begins, "windowEndTime": ends,
            }  # fmt: skip
        metadata = {}
        if instance.group:
            path = f"projects/1/zones/z/instanceGroupManagers/{instance.group}"
            metadata = {"metadata": {"items": [{"key": "created-by", "value": path}]}}
            until = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime(instance.ends))
            status["scheduling"] = {"terminationTimestamp": until}
        return {
            **self._properties(instance),
            **metadata,
            "id": instance.id,
            "name": instance.name,
            "zone": GOOGLE + instance.zone,
            "selfLink": f"{GOOGLE}{instance.zone}/instances/{instance.name}",
            "creationTimestamp": f"{created}.000+00:00",
            "labels": instance.labels,
            "status": instance.status,
            "networkInterfaces": [{"networkIP": self.design["addresses"].get(instance.name, "")}],
            "resourceStatus": status,
        }

    def _page(self, call: Call) -> tuple[list[HostInstance], dict[str, Any]]:
        """Return the instances that the request's filter selects, on the requested page, and the next page's token."""
        match = re.fullmatch(r'labels\.([a-z0-9_-]+)\s*[=:]\s*"?([^"]*)"?', call.query.get("filter", ""))
        if call.query.get("filter") and not match:
            raise RefusalError(400, "invalid", "Invalid value for field 'filter'")
        instances = [self.instances[name] for name in sorted(self.instances)]
        if match:
            instances = [instance for instance in instances if instance.labels.get(match[1]) == match[2]]
        start, most = int(call.query.get("pageToken", 0)), int(call.query.get("maxResults", 500))
        token = {"nextPageToken": str(start + most)} if start + most < len(instances) else {}
        return instances[start : start + most], token

    def _aggregated(self, call: Call, _project: str) -> dict[str, Any]:
        page, token = self._page(call)
        items: dict[str, Any] = {}
        for instance in page:
            zone = instance.zone.partition("/")[2].partition("/")[2]
            items.setdefault(zone, {"instances": []})["instances"].append(self._instance_json(instance))
        return {"items": items, **token}

    def _list(self, call: Call, _zone: str) -> dict[str, Any]:
        page, token = self._page(call)
        return {"items": [self._instance_json(instance) for instance in page], **token}

    def _insert(self, call: Call, zone: str) -> dict[str, Any]:
        template = self._template(call.query.get("sourceInstanceTemplate", ""))
        name = call.body["name"]
        self._refuse_taken(zone, [name])
        errors = self._shortage(template, 1)
        self._add(zone, name, template, call.body.get("labels"))
        return self._begin("insert", zone, [name], self.faults.insert_seconds, call, errors=errors).to_json()

    def _bulk_insert(self, call: Call, zone: str) -> dict[str, Any]:
        template, names = self._template(call.body["sourceInstanceTemplate"]), list(call.body["perInstanceProperties"])
        least = int(call.body.get("minCount", len(names)))
        if int(call.body["count"]) != len(names) or not 1 <= least <= len(names):
            raise RefusalError(400, "invalid", "Invalid value for field 'count'")
        self._refuse_taken(zone, names)
        available = next((count for count in range(len(names), -1, -1) if not self._shortage(template, count)), 0)
        accepted, refused = (names[:available], names[available:]) if available >= least else ([], names)
        labels = call.body.get("instanceProperties", {}).get("labels", {})
        for name in accepted:
            self._add(zone, name, template, {**self._labels(template), **labels})
        errors = [] if accepted else [_MINIMUM_MISSED]
        # Google reports the reason of each in an operation of its own, of the same group.
        whole = self._begin("insert", zone, accepted, self.faults.insert_seconds, call, errors=errors)
        whole.group = f"group-{whole.name}"
        for name in refused:
            each = self._begin("insert", zone, [name], 0.0, errors=self._shortage(template, len(names)))
            each.group, each.done = whole.group, True
        self._save()
        return whole.to_json()

    def _template(self, link: str) -> str:
        name = link.rpartition("/")[2]
        if name not in self.design["templates"]:
            raise RefusalError(404, "notFound", f"The resource '{link.rpartition('/compute/v1/')[2]}' was not found")
        return name

    def _labels(self, template: str) -> dict[str, str]:
        return dict(self.design["templates"][template].get("properties", {}).get("labels", {}))

    def _refuse_taken(self, zone: str, names: Sequence[str]) -> None:
        for name in names:
            if name in self.instances:
                raise taken(f"{zone}/instances/{name}")
            if name not in self.design["addresses"]:
                raise RefusalError(400, "invalid", f"{name} is no elastic node of this stack")

    def _shortage(self, template: str, count: int) -> list[dict[str, Any]]:
        """Return the errors of a request for `count` more instances."""
        way, faults = self.design["templates"][template]["way"], self.faults
        elastic = [instance.template for instance in self.instances.values() if instance.template]
        ways = [self.design["templates"].get(name, {}).get("way") for name in elastic]
        if count and faults.quota is not None and len(ways) + count > faults.quota:
            return [dict(QUOTA)]
        for key, existing in ((way, ways.count(way)), ("*", len(ways))):
            short = key in faults.capacity and existing + count > faults.capacity[key]
            if count and (short or faults.stock_out_until.get(key, 0.0) > time.time()):
                return [dict(STOCK_OUT)]
        return []

    def _add(self, zone: str, name: str, template: str, labels: Mapping[str, str] | None) -> None:
        self.instances[name] = HostInstance(
            id=self._number() + "0000", name=name, zone=zone, template=template, created=time.time(),
            labels=dict(self._labels(template) if labels is None else labels), host=self._free_host(),
            status="PROVISIONING" if template else "RUNNING",
        )  # fmt: skip

    def _begin(
        self,
        kind: str,
        zone: str,
        targets: Sequence[str],
        seconds: float,
        call: Call | None = None,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> HostOperation:
        hangs = self.faults.hang.get(kind, 0) > 0 and call is not None
        if hangs:
            self.faults.hang[kind] -= 1
        operation = HostOperation(
            name=f"operation-{self._number()}", kind=kind, zone=zone, targets=list(targets), due=time.time() + seconds,
            errors=[dict(row) for row in errors], hangs=hangs,
        )  # fmt: skip
        self.operations[operation.name] = operation
        if call and (request := call.query.get("requestId")):
            self.by_request[request] = operation.name
        self._save()
        return operation

    def _delete(self, call: Call, zone: str, name: str) -> dict[str, Any]:
        instance = self._instance(zone, name)
        if not instance.template:
            raise RefusalError(403, "forbidden", f"{name} is a static node, which the stack deletes")
        if any(row.kind == "delete" and name in row.targets and not row.done for row in self.operations.values()):
            raise not_ready(f"{zone}/instances/{name}")
        instance.status = "STOPPING"
        return self._begin("delete", zone, [name], self.faults.delete_seconds, call).to_json()

    def _change(self, call: Call, kind: str, zone: str, name: str) -> dict[str, Any]:
        instance = self._instance(zone, name)
        needed = "TERMINATED" if kind == "start" else "RUNNING"
        if self._instance_json(instance)["status"] != needed:
            raise not_ready(f"{zone}/instances/{name}")
        if kind == "performMaintenance" and not instance.maintenance:
            raise RefusalError(400, "invalid", "There is no maintenance that can be performed")
        instance.status = {"stop": "STOPPING", "start": "STAGING", "reset": "RUNNING"}.get(kind, "REPAIRING")
        if kind == "reportHostAsFaulty":
            behaviors = {"PERFORMANCE", "SILENT_DATA_CORRUPTION", "UNRECOVERABLE_GPU_ERROR", "CHIP_ERROR"}
            if not {row["behavior"] for row in call.body.get("faultReasons", ())} <= behaviors:
                raise RefusalError(400, "invalid", "Invalid value for field 'resource.faultReasons'")
        return self._begin(kind, zone, [name], self.faults.insert_seconds, call).to_json()

    def _serial_port(self, call: Call, zone: str, name: str) -> dict[str, Any]:
        lines = machine.console_tail(self._bare(self._instance(zone, name)).paths.console, 200)
        text, start = "\n".join(lines), int(call.query.get("start", 0))
        row = {"kind": "compute#serialPortOutput", "contents": text[start:]}
        return {**row, "start": str(start), "next": str(len(text))}

    def _no_attribute(self, zone: str, name: str) -> dict[str, Any]:
        self._instance(zone, name)
        raise not_found("hpc/boot")

    def _operations(self, call: Call, zone: str) -> dict[str, Any]:
        group = call.query.get("filter", "").partition("=")[2].strip('" ')
        rows = [row for row in self.operations.values() if row.zone == zone and (not group or row.group == group)]
        return {"items": [row.to_json() for row in rows]}

    def _operation(self, call: Call, zone: str, name: str) -> dict[str, Any]:
        operation = self.operations.get(name)
        if operation is None or operation.zone != zone:
            raise not_found(f"{zone}/operations/{name}")
        if call.method == "POST":
            self._changed.wait_for(lambda: operation.done, timeout=20)
        return operation.to_json()

    # -- managed instance groups -------------------------------------------------------------------------------------

    def queue(self) -> tuple[float, str]:
        return self.faults.queue_seconds, self.faults.queue_error

    def now(self) -> float:
        return time.time()

    def template_of(self, link: str) -> Mapping[str, Any]:
        return self.design["templates"][self._template(link)].get("properties", {})

    def shortage_of(self, link: str, count: int) -> list[Mapping[str, Any]]:
        # The template may be deleted, since the stack has another image.
        name = link.rpartition("/")[2]
        return list(self._shortage(name, count)) if name in self.design["templates"] else [dict(STOCK_OUT)]

    def create_members(self, zone: str, names: Sequence[str], link: str, group: str, ends: float) -> None:
        for name in names:
            self._add(zone, name, link.rpartition("/")[2], None)
            self.instances[name].group, self.instances[name].ends = group, ends
        self._begin("insert", zone, names, self.faults.insert_seconds)

    def delete_members(self, zone: str, names: Sequence[str]) -> None:
        existing = [name for name in names if name in self.instances]
        for name in existing:
            self.instances[name].status = "STOPPING"
        self._begin("delete", zone, existing, self.faults.delete_seconds)

    def begin_operation(self, call: Call, kind: str, path: str, finish: Callable[[], None]) -> dict[str, Any]:
        operation = self._begin(kind, path.partition("/instanceGroupManagers/")[0], [], 0.0, call)
        if not operation.hangs:
            operation.done = True
            finish()
            self._save()
        return operation.to_json()

    # -- faults ------------------------------------------------------------------------------------------------------

    def _set_faults(self, call: Call) -> dict[str, Any]:
        """Set these faults and no others: an empty request ends all faults."""
        unknown = call.body.keys() - {field.name for field in fields(Faults)}
        if unknown:
            raise RefusalError(400, "invalid", f"no such fault: {', '.join(sorted(unknown))}")
        self.faults = Faults(**call.body)
        self._save()
        return asdict(self.faults)

    def _preempt(self, call: Call, name: str) -> dict[str, Any]:
        if name not in self.instances:
            raise not_found(name)
        self.instances[name].stops = time.time() + float(call.query.get("seconds", NOTICE_SECONDS))
        self._save()
        return {}

    def _maintain(self, call: Call, name: str) -> dict[str, Any]:
        if name not in self.instances:
            raise not_found(name)
        self.instances[name].maintenance = time.time() + float(call.query.get("seconds", 3600))
        self._save()
        return {}


def _place(instance: HostInstance) -> str:
    """Return the full name of an instance's host, with its block. A block has two hosts."""
    number = int(instance.host.rpartition("-")[2])
    return f"/cluster/block-{number // 2}/{instance.host}"


def main(folder: str) -> int:
    """Serve until a signal. Return at once if another process serves the folder."""
    usual_umask()
    paths = CloudPaths(Path(folder))
    with locked(paths.lock, wait=False) as is_free:
        if not is_free:
            return 0
        process = Process.of(os.getpid())
        if process:
            write_atomically(paths.record, json.dumps(asdict(process)), mode=0o600)
        with HostCompute(paths) as server:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: server.end())
            server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
