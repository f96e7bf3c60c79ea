"""Compute Engine's REST API, as far as the reconcile loop needs it: instances of one cluster, and operations on them.

Each CloudError has a kind, which follows from Google's codes and reasons. Messages are not enough: a quota of requests
and a quota of machines both read "Quota exceeded". A list has the reason why it may be incomplete.

Source of methods, fields and enums: compute.v1 discovery document, revision 20261106.
"""

import calendar
import json
import re
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from interface import ReconcileCloud
from slurm.hostlist import compress, expand
from system.google_api import FLAVOR, METADATA, TOKEN, answer, refusal

GOOGLE = "https://compute.googleapis.com"
SECONDS = 20  # for one answer
MADE_BY_LOOP = {"hpc-made-by": "reconcile"}
"""Label of the instances that the loop has made. It deletes no others."""
TEMPLATE_LABEL = "hpc-template"  # the name of the template that an instance was made from
PAGE_SIZE = 500
_FIELDS = (
    "nextPageToken,unreachables,warning,items/*/warning,items/*/instances(name,id,status,zone,creationTimestamp,"
    "machineType,labels,resourceStatus(physicalHost,scheduling/terminationTimestamp,upcomingMaintenance(canReschedule,"
    "maintenanceStatus,maintenanceReasons)))"
)
_GROUP_FIELDS = "nextPageToken,warning,items(name,id,description,creationTimestamp,instanceTemplate)"
_CREATED_BY = "created-by"  # metadata of an instance: the managed instance group that has created it


class ErrorKind(Enum):
    """The meaning of an error for the caller."""

    STOCK_OUT = "no capacity"
    RESERVATION_FULL = "the reservation has no machine left"
    QUOTA = "the project's quota is used up"
    PERMISSION = "the controller's service account may not do this"
    TEMPLATE_GONE = "there is no such instance template"
    INVALID = "the request was refused"
    RATE_LIMIT = "too many requests"
    TRANSIENT = "the API does not answer"
    EXISTS = "the name is taken"
    NOT_FOUND = "there is no such instance"


CAPACITY = frozenset({ErrorKind.STOCK_OUT, ErrorKind.RESERVATION_FULL, ErrorKind.QUOTA})
"""Another way of the nodeset may succeed, or the same one later."""
PASSING = frozenset({ErrorKind.RATE_LIMIT, ErrorKind.TRANSIENT})
"""The same request may succeed in a moment."""


class CloudError(Exception):
    """An error of the API, or a missing answer, with Google's code or reason and its message."""

    def __init__(self, kind: ErrorKind, code: str, message: str) -> None:
        super().__init__(f"{kind.value} ({code}: {message})" if message else f"{kind.value} ({code})")
        self.kind, self.code, self.message = kind, code, message


# Codes of operations and reasons of answers, in lower case without `_`. Sources: error codes of operations
# (cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation), of bulk requests
# (.../troubleshooting-bulk-vm-creation), of API rate limits (cloud.google.com/compute/docs/api-rate-limits).
_CODES: dict[ErrorKind, str] = {
    ErrorKind.STOCK_OUT: "zoneresourcepoolexhausted zoneresourcepoolexhaustedwithdetails resourcepoolexhausted "
    "resourceexhausted insufficientcapacity stockout vmmincountnotreached",
    ErrorKind.QUOTA: "quotaexceeded ipspaceexhausted ipspaceexhaustedwithdetails",
    ErrorKind.RATE_LIMIT: "ratelimitexceeded userratelimitexceeded concurrentoperationsquotaexceeded",
    ErrorKind.PERMISSION: "forbidden permissiondenied permissionserror autherror",
    ErrorKind.INVALID: "required",
    ErrorKind.EXISTS: "resourcealreadyexists alreadyexists",
    ErrorKind.TRANSIENT: "resourcenotready internalerror backenderror",
}
_KINDS = {code: kind for kind, codes in _CODES.items() for code in codes.split()}
_STATUSES = {
    401: ErrorKind.PERMISSION,
    403: ErrorKind.PERMISSION,
    408: ErrorKind.TRANSIENT,
    409: ErrorKind.EXISTS,
    429: ErrorKind.RATE_LIMIT,
}
_RESERVED = re.compile(r"reservation", re.IGNORECASE)
_NOT_AVAILABLE = re.compile(
    r"do(es)? not have (enough |sufficient )?(available|capacity)|no (more )?available|insufficient|in READY state",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(r"zone does not currently have sufficient capacity", re.IGNORECASE)


def kind_of(code: str, message: str, status: int = 0) -> ErrorKind:
    """Return the kind of Google's error, by its code or reason, else by the HTTP status. A pure function.

    A full reservation, or one that is not ready yet, has no code of its own, so its message decides; also that of a
    zone without capacity for a request that names a reservation.
    """
    word = code.replace("_", "").lower()
    if _RESERVED.search(message) and _NOT_AVAILABLE.search(message):
        return ErrorKind.RESERVATION_FULL
    if status == 404 or word in ("notfound", "resourcenotfound"):
        return ErrorKind.TEMPLATE_GONE if "instanceTemplates" in message else ErrorKind.NOT_FOUND
    if word in _KINDS or status in _STATUSES:
        kind = _KINDS.get(word) or _STATUSES[status]
        # RESOURCE_EXHAUSTED is the code of both.
        return ErrorKind.RATE_LIMIT if status == 429 and kind is ErrorKind.STOCK_OUT else kind
    if "quota" in word:  # a code that is not in the table
        return ErrorKind.QUOTA
    if _NO_ROOM.search(message):
        return ErrorKind.STOCK_OUT
    return ErrorKind.TRANSIENT if status >= 500 else ErrorKind.INVALID


@dataclass(frozen=True)
class Instance:
    """An instance, as a list shows it."""

    name: str
    zone: str
    status: str
    created: float = 0.0
    """Seconds since the epoch; 0 where the API gives none."""
    id: str = ""
    machine_type: str = ""
    host: str = ""
    """The host's position in its block, where the API shows it. Another position is other hardware."""
    maintenance: str = ""
    """State of the host's maintenance: PENDING or ONGOING; empty where none is announced."""
    reschedules: bool = False
    """True if a request may begin the maintenance."""
    fault: str = ""
    """The fault of the host that the maintenance is for; empty if it has another reason."""
    labels: dict[str, str] = field(default_factory=dict)
    ends: float = 0.0
    """The time at which Google deletes it, at the end of its run time; 0 where it has none."""
    group: str = ""
    """The managed instance group that it belongs to. Only `get` returns it."""

    @property
    def made_by_loop(self) -> bool:
        return MADE_BY_LOOP.items() <= self.labels.items()


@dataclass(frozen=True)
class Listing:
    """The instances of a cluster. `partial` is the reason why some may be missing, empty if none is."""

    instances: tuple[Instance, ...]
    partial: str = ""


@dataclass(frozen=True)
class InstanceGroup:
    """A managed instance group of flex start. It is created for the nodes of one job, and deleted with the last."""

    name: str
    id: str
    nodeset: str
    way: str
    nodes: tuple[str, ...]
    created: float
    template: str
    """Name of the template that its instances are made from."""
    refers: str
    """Name of the template that the group refers to now."""


@dataclass(frozen=True)
class Resize:
    """The resize request of a group: its state, and the reason why it failed or is not fulfilled yet."""

    state: str
    error: CloudError | None = None

    @property
    def is_waiting(self) -> bool:
        return self.state in ("CREATING", "ACCEPTED")


@dataclass(frozen=True)
class ComputeOperation:
    """An operation of the API. `group` is the id of a request for many instances that it is part of."""

    name: str
    done: bool
    error: CloudError | None = None
    group: str = ""


class ComputeEngine:
    """The instances of one cluster."""

    def __init__(self, api: ReconcileCloud) -> None:
        self._api = api
        self._root = f"{api['endpoint'] or GOOGLE}/compute/v1/projects/{api['project']}"
        self._zone = f"/zones/{api['zone']}"
        self._token, self._token_ends = "", 0.0
        self.skew = 0.0
        """Seconds by which this machine's clock was ahead of the API's at the last answer."""

    # -- reads -------------------------------------------------------------------------------------------------------

    def instances(self) -> Listing:
        """Return all instances that carry the cluster's label, in any zone. The list is partial where instances of the
        cluster's own zone may be missing. Raises CloudError if a page can't be read."""
        instances: list[Instance] = []
        partial: list[str] = []
        fields = {"maxResults": str(PAGE_SIZE), "fields": _FIELDS}
        query = {"filter": f"labels.hpc-cluster={self._api['cluster']}", **fields}
        for page in self._pages("/aggregated/instances", query):
            # Other zones may be unreachable: the cluster has no machines there.
            missing = [place for place in page.get("unreachables", ()) if f"/{place}".endswith(self._zone)]
            partial += [f"{place} does not answer" for place in missing]
            for place, scope in [("the list", page), *page.get("items", {}).items()]:
                code = scope.get("warning", {}).get("code", "NO_RESULTS_ON_PAGE")
                harmless = ("NO_RESULTS_ON_PAGE", "UNREACHABLE") if place == "the list" else ("NO_RESULTS_ON_PAGE",)
                if code not in harmless and place in ("the list", self._zone[1:]):
                    partial.append(f"{place}: {code}")
                if place != "the list":
                    instances += [_instance(row) for row in scope.get("instances", ())]
        return Listing(tuple(instances), "; ".join(dict.fromkeys(partial)))

    def _pages(self, path: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list. Raises CloudError."""
        token: str | None = None
        while token != "":
            yield (page := self._send("GET", path, query if token is None else {**query, "pageToken": token}))
            token = page.get("nextPageToken", "")

    def get(self, name: str) -> Instance | None:
        """Return one instance, read now; None where there is none. Raises CloudError."""
        row = self._send_if_present("GET", f"{self._zone}/instances/{name}")
        return None if row is None else _instance(row)

    def operation(self, name: str) -> ComputeOperation:
        """Return an operation. For a failed request for many instances, its error is the first one of an instance.
        Raises CloudError."""
        operation = _operation(self._send("GET", f"{self._zone}/operations/{name}"))
        if operation.error and operation.error.code == "VM_MIN_COUNT_NOT_REACHED" and operation.group:
            rows = self._send("GET", f"{self._zone}/operations", {"filter": f"operationGroupId={operation.group}"})
            errors = [_operation(row).error for row in rows.get("items", ()) if row.get("name") != name]
            return replace(operation, error=next(filter(None, errors), operation.error))
        return operation

    def groups(self) -> tuple[list[InstanceGroup], str]:
        """Return the cluster's groups of flex start, and why some may be missing. Raises CloudError."""
        groups: list[InstanceGroup] = []
        query, partial = {"maxResults": str(PAGE_SIZE), "fields": _GROUP_FIELDS}, ""
        for page in self._pages(f"{self._zone}/instanceGroupManagers", query):
            if (code := page.get("warning", {}).get("code", "NO_RESULTS_ON_PAGE")) != "NO_RESULTS_ON_PAGE":
                partial = f"instance groups: {code}"
            groups += filter(None, (_group(row, self._api["cluster"]) for row in page.get("items", ())))
        return groups, partial

    def resize(self, group: str) -> Resize | None:
        """Return the resize request of a group; None where it has none yet. Raises CloudError."""
        rows = self._send("GET", f"{self._zone}/instanceGroupManagers/{group}/resizeRequests").get("items", ())
        for row in rows:
            status = row.get("status", {})
            errors = status.get("error") or status.get("lastAttempt", {}).get("error") or {}
            return Resize(str(row.get("state", "")), _operation({"error": errors}).error)
        return None

    def guest_attribute(self, name: str) -> str:
        """Return the set-up state that an instance has published; empty where it has none. Raises CloudError."""
        path = f"{self._zone}/instances/{name}/getGuestAttributes"
        attributes = self._send_if_present("GET", path, {"queryPath": "hpc/boot"}) or {}
        return "".join(row.get("value", "") for row in attributes.get("queryValue", {}).get("items", ()))

    def serial_log(self, name: str) -> str:
        """Return the end of an instance's serial log. Raises CloudError."""
        return self._send("GET", f"{self._zone}/instances/{name}/serialPort", {"port": "1"}).get("contents", "")

    # -- writes ------------------------------------------------------------------------------------------------------
    # All raise CloudError. `request` is the request's id: the same one is answered with the same operation.

    def insert(self, names: list[str], *, template: str, nodeset: str, request: str) -> ComputeOperation:
        """Request instances of these names from a template; of several, all are created or none.

        A job over several nodes needs all of its machines. `bulkInsert` with a `minCount` of all deletes the others
        where one can't be created; single inserts would leave them running without their job.
        """
        labels = {
            "hpc-cluster": self._api["cluster"],
            "hpc-part": "node",
            "hpc-nodeset": nodeset,
            **MADE_BY_LOOP,
            TEMPLATE_LABEL: template.rpartition("/")[2],
        }
        if len(names) == 1:
            # Labels of a request replace the template's.
            body: dict[str, Any] = {"name": names[0], "labels": {**labels, "hpc-node": names[0]}}
            return self._write("POST", "/instances", request, body, sourceInstanceTemplate=template)
        body = {
            "count": str(len(names)),
            "minCount": str(len(names)),
            "perInstanceProperties": {name: {} for name in names},
            "sourceInstanceTemplate": template,
            "instanceProperties": {"labels": labels},
        }
        return self._write("POST", "/instances/bulkInsert", request, body)

    def insert_group(
        self, names: list[str], *, template: str, nodeset: str, way: str, policy: str, request: str
    ) -> ComputeOperation:
        """Request an empty group for instances of these names. `policy` is their placement policy; empty for none. The
        group's name follows from `request`."""
        in_order = sorted(names, key=lambda name: int(name.rpartition("-")[2]))
        description = {
            "hpc-cluster": self._api["cluster"], "nodeset": nodeset, "way": way, "nodes": compress(in_order),
            "template": template.rpartition("/")[2],
        }  # fmt: skip
        name = f"{names[0].rpartition('-')[0][:48]}-flex-{request[:8]}"
        body: dict[str, Any] = {
            "name": name,
            "baseInstanceName": name[:58].rstrip("-"),
            "description": json.dumps(description, sort_keys=True),
            "versions": [{"instanceTemplate": template}],
            "targetSize": 0,
            # The loop replaces machines that fail, not the group.
            "instanceLifecyclePolicy": {"defaultActionOnFailure": "DO_NOTHING"},
            "updatePolicy": {"type": "OPPORTUNISTIC"},
        }
        if policy:
            body["resourcePolicies"] = {"workloadPolicy": policy}
        return self._write("POST", "/instanceGroupManagers", request, body)

    def insert_resize(self, group: InstanceGroup, seconds: int, *, request: str) -> ComputeOperation:
        """Request all instances of a group. They are created together when there is capacity, and deleted after this
        many seconds."""
        body = {
            "name": "all",
            "instances": [{"name": name} for name in group.nodes],
            "requestedRunDuration": {"seconds": str(seconds)},
        }
        return self._write("POST", f"/instanceGroupManagers/{group.name}/resizeRequests", request, body)

    def set_template(self, group: InstanceGroup, template: str, *, request: str) -> ComputeOperation:
        """Make a group refer to another template, without effect on its instances."""
        body = {"versions": [{"instanceTemplate": template}]}
        return self._write("PATCH", f"/instanceGroupManagers/{group.name}", request, body)

    def delete_group(self, group: str, *, request: str) -> ComputeOperation | None:
        """Delete a group with its resize request and its instances; None where there is none."""
        return self._write_if_present("DELETE", f"/instanceGroupManagers/{group}", request)

    def delete(self, name: str, *, request: str, group: str = "") -> ComputeOperation | None:
        """Delete an instance; None where there is none. An instance of a group is deleted by the group, which would
        otherwise have one too few."""
        if group:
            path = f"{self._zone}/instances/{name}"
            body = {"instances": [path[1:]], "skipInstancesOnValidationError": True}
            return self._write_if_present("POST", f"/instanceGroupManagers/{group}/deleteInstances", request, body)
        return self._write_if_present("DELETE", f"/instances/{name}", request)

    def reset(self, name: str, *, request: str) -> ComputeOperation:
        """Reboot an instance at once."""
        return self._write("POST", f"/instances/{name}/reset", request)

    def report_faulty(self, name: str, description: str, *, request: str) -> ComputeOperation:
        """Report an instance's host as faulty, so that Google moves the instance to another one."""
        body = {
            "disruptionSchedule": "IMMEDIATE",
            "faultReasons": [{"behavior": "UNRECOVERABLE_GPU_ERROR", "description": description[:1000]}],
        }
        return self._write("POST", f"/instances/{name}/reportHostAsFaulty", request, body)

    def perform_maintenance(self, name: str, *, request: str) -> ComputeOperation:
        """Begin the announced maintenance of an instance's host now."""
        return self._write("POST", f"/instances/{name}/performMaintenance", request)

    def delete_command(self, instance: Instance) -> str:
        """Return the command with which a person deletes an instance."""
        return (
            f"gcloud compute instances delete {instance.name} --zone={instance.zone} --project={self._api['project']}"
        )

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def _write(
        self, method: str, path: str, request: str, body: dict[str, Any] | None = None, **query: str
    ) -> ComputeOperation:
        """Send a request that changes something in the cluster's zone."""
        return _operation(self._send(method, f"{self._zone}{path}", {**query, "requestId": request}, body))

    def _write_if_present(
        self, method: str, path: str, request: str, body: dict[str, Any] | None = None
    ) -> ComputeOperation | None:
        row = self._send_if_present(method, f"{self._zone}{path}", {"requestId": request}, body)
        return None if row is None else _operation(row)

    def _send_if_present(
        self, method: str, path: str, query: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Send a request and return the answer; None where the resource does not exist. Raises CloudError."""
        try:
            return self._send(method, path, query, body)
        except CloudError as error:
            if error.kind is ErrorKind.NOT_FOUND:
                return None
            raise

    def _send(
        self, method: str, path: str, query: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request and return the answer. Raises CloudError."""
        import email.utils  # slow to import, as http.client is, which `answer` imports

        url = f"{self._root}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
        headers = {"Authorization": f"Bearer {self._access_token()}", "Content-Type": "application/json"}
        try:
            status, response_headers, text = answer(url, headers, seconds=SECONDS, method=method, data=data)
            if date := email.utils.parsedate(response_headers.get("Date")):
                self.skew = time.time() - calendar.timegm(date)
            if status >= 400:
                if status == 401:
                    self._token_ends = 0.0  # the token was withdrawn
                error = refusal(text)
                code = error.reason or error.status or str(status)
                raise CloudError(kind_of(code, error.message, status), code, error.message[:500])
            document = json.loads(text or b"{}")
        except (OSError, ValueError) as error:
            raise CloudError(ErrorKind.TRANSIENT, type(error).__name__, str(error)) from None
        if not isinstance(document, dict):
            raise CloudError(ErrorKind.TRANSIENT, "answer", "not a JSON object")
        return document

    def _access_token(self) -> str:
        if self._api["token_file"]:
            try:
                return Path(self._api["token_file"]).read_text().strip()
            except OSError as error:
                raise CloudError(ErrorKind.PERMISSION, "token", str(error)) from None
        if time.time() >= self._token_ends:
            try:
                token = json.loads(answer(METADATA + TOKEN, FLAVOR, seconds=5)[2])
                # As in Google's own libraries, a token is not used in its last minutes.
                self._token, self._token_ends = token["access_token"], time.time() + float(token["expires_in"]) - 240
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise CloudError(ErrorKind.TRANSIENT, "token", f"the metadata server gives none: {error!r}") from None
        return self._token


def _operation(row: dict[str, Any]) -> ComputeOperation:
    error = None
    if errors := row.get("error", {}).get("errors", ()):
        code, message = str(errors[0].get("code", "")), str(errors[0].get("message", ""))
        error = CloudError(kind_of(code, message), code, message[:500])
    return ComputeOperation(
        str(row.get("name", "")), row.get("status") == "DONE", error, str(row.get("operationGroupId", ""))
    )


def _instance(row: dict[str, Any]) -> Instance:
    resource = row.get("resourceStatus", {})
    upcoming = resource.get("upcomingMaintenance", {})
    reasons = [str(reason) for reason in upcoming.get("maintenanceReasons", ())]
    metadata = row.get("metadata", {}).get("items", ())
    creators = [str(item.get("value", "")) for item in metadata if item.get("key") == _CREATED_BY]
    groups = [creator.rpartition("/")[2] for creator in creators if "/instanceGroupManagers/" in creator]
    return Instance(
        name=row["name"],
        zone=str(row.get("zone", "")).rpartition("/")[2],
        status=str(row.get("status", "")),
        created=_epoch(str(row.get("creationTimestamp", ""))),
        id=str(row.get("id", "")),
        machine_type=str(row.get("machineType", "")).rpartition("/")[2],
        host=str(resource.get("physicalHost", "")),
        maintenance=str(upcoming.get("maintenanceStatus", "")),
        reschedules=upcoming.get("canReschedule") is True,
        fault=next((reason for reason in reasons if reason.startswith("FAILURE_")), ""),
        labels=dict(row.get("labels", {})),
        ends=_epoch(str(resource.get("scheduling", {}).get("terminationTimestamp", ""))),
        group=next(iter(groups), ""),
    )


def _group(row: dict[str, Any], cluster: str) -> InstanceGroup | None:
    """Return a group of the cluster, known by its description, as groups have no labels; None for any other."""
    try:
        description = json.loads(row.get("description", ""))
        if description["hpc-cluster"] != cluster or not row["name"].startswith(f"{cluster}-"):
            return None
        return InstanceGroup(
            name=row["name"],
            id=str(row.get("id", "")),
            nodeset=description["nodeset"],
            way=description["way"],
            nodes=tuple(expand(description["nodes"])),
            created=_epoch(str(row.get("creationTimestamp", ""))),
            template=description["template"],
            refers=str(row.get("instanceTemplate", "")).rpartition("/")[2],
        )
    except (ValueError, KeyError, TypeError):
        return None


_RFC3339 = re.compile(r"^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:Z|([+-])(\d\d):(\d\d))$")


def _epoch(text: str) -> float:
    """Return the seconds since the epoch of a time as Google writes it, with its zone; 0 for anything else."""
    match = _RFC3339.match(text)
    if not match:
        return 0.0
    numbers = [int(part) for part in match.groups()[:6]]
    offset = (int(match[8]) * 60 + int(match[9])) * 60 if match[7] else 0
    return float(calendar.timegm((*numbers, 0, 0, 0)) - (offset if match[7] == "+" else -offset))
