"""Compute Engine's REST API, as far as the reconcile loop needs it: instances of one cluster, and operations on them.

Errors are of one class with a kind each, by Google's own codes and reasons and not by the text, which resembles that
of others: a quota of requests and one of machines are both "Quota exceeded". A list says whether it is complete.
"""

import calendar
import json
import re
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from interface import ReconcileCloud
from slurm.hostlist import compress, expand
from system.google_api import FLAVOR, METADATA, TOKEN, answer, refusal

GOOGLE = "https://compute.googleapis.com"
SECONDS = 20  # for one answer
MADE_BY = "hpc-made-by"
OURS = "reconcile"
"""Label and value of the instances that the loop has made: it deletes no other."""
TEMPLATE = "hpc-template"  # label: the name of the template that an instance was made from
PAGE = 500
_FIELDS = (
    "nextPageToken,unreachables,warning,items/*/warning,items/*/instances(name,id,status,zone,creationTimestamp,"
    "machineType,labels,resourceStatus(physicalHost,scheduling/terminationTimestamp,upcomingMaintenance(canReschedule,"
    "maintenanceStatus,maintenanceReasons)))"
)
_GROUP_FIELDS = "nextPageToken,warning,items(name,id,description,creationTimestamp,instanceTemplate)"
CREATED_BY = "created-by"  # metadata of an instance that a managed instance group has created: the group


class Kind(Enum):
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


CAPACITY = frozenset({Kind.STOCK_OUT, Kind.RESERVATION_FULL, Kind.QUOTA})
"""Another way of the nodeset may do, or the same one later."""
PASSING = frozenset({Kind.RATE_LIMIT, Kind.TRANSIENT})
"""The same request may do in a moment."""


class CloudError(Exception):
    """An error of the API, or no answer: `kind`, Google's code or reason, its message."""

    def __init__(self, kind: Kind, code: str, message: str) -> None:
        super().__init__(f"{kind.value} ({code}: {message})" if message else f"{kind.value} ({code})")
        self.kind, self.code, self.message = kind, code, message


# Codes of operations and reasons of answers, in lower case without `_`. Sources: error codes of operations
# (cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation), of bulk requests
# (.../troubleshooting-bulk-vm-creation), of API rate limits (cloud.google.com/compute/docs/api-rate-limits).
_KINDS: dict[str, Kind] = {
    "zoneresourcepoolexhausted": Kind.STOCK_OUT,
    "zoneresourcepoolexhaustedwithdetails": Kind.STOCK_OUT,
    "resourcepoolexhausted": Kind.STOCK_OUT,
    "resourceexhausted": Kind.STOCK_OUT,
    "insufficientcapacity": Kind.STOCK_OUT,
    "stockout": Kind.STOCK_OUT,
    "vmmincountnotreached": Kind.STOCK_OUT,
    "quotaexceeded": Kind.QUOTA,
    "ipspaceexhausted": Kind.QUOTA,
    "ipspaceexhaustedwithdetails": Kind.QUOTA,
    "ratelimitexceeded": Kind.RATE_LIMIT,
    "userratelimitexceeded": Kind.RATE_LIMIT,
    "concurrentoperationsquotaexceeded": Kind.RATE_LIMIT,
    "forbidden": Kind.PERMISSION,
    "permissiondenied": Kind.PERMISSION,
    "permissionserror": Kind.PERMISSION,
    "autherror": Kind.PERMISSION,
    "required": Kind.INVALID,
    "resourcealreadyexists": Kind.EXISTS,
    "alreadyexists": Kind.EXISTS,
    "resourcenotready": Kind.TRANSIENT,
    "internalerror": Kind.TRANSIENT,
    "backenderror": Kind.TRANSIENT,
}
_STATUSES = {
    401: Kind.PERMISSION,
    403: Kind.PERMISSION,
    408: Kind.TRANSIENT,
    409: Kind.EXISTS,
    429: Kind.RATE_LIMIT,
}
_RESERVED = re.compile(r"reservation", re.IGNORECASE)
_NOT_AVAILABLE = re.compile(
    r"do(es)? not have (enough |sufficient )?(available|capacity)|no (more )?available|insufficient|in READY state",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(r"zone does not currently have sufficient capacity", re.IGNORECASE)


def kind_of(code: str, message: str, status: int = 0) -> Kind:
    """Return what an error of Google's means, by its code or reason, and by the HTTP status where it has none that is
    known. A pure function. A full reservation, or one that is not there yet, has no code of its own: its message names
    it. So does the message of a zone that has no room, where a request names a reservation."""
    word = code.replace("_", "").lower()
    if _RESERVED.search(message) and _NOT_AVAILABLE.search(message):
        return Kind.RESERVATION_FULL
    if status == 404 or word in ("notfound", "resourcenotfound"):
        return Kind.TEMPLATE_GONE if "instanceTemplates" in message else Kind.NOT_FOUND
    if word in _KINDS or status in _STATUSES:
        found = _KINDS.get(word) or _STATUSES[status]
        # RESOURCE_EXHAUSTED is the word for both.
        return Kind.RATE_LIMIT if status == 429 and found is Kind.STOCK_OUT else found
    if "quota" in word:  # of a kind that Google has added
        return Kind.QUOTA
    if _NO_ROOM.search(message):
        return Kind.STOCK_OUT
    return Kind.TRANSIENT if status >= 500 else Kind.INVALID


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
    """The host's position in its block, where the API shows it: another one stands for other hardware."""
    maintenance: str = ""
    """Of its host: PENDING or ONGOING; empty where none is announced."""
    reschedules: bool = False
    """True if a request may begin it."""
    fault: str = ""
    """The fault of the host that it is for; empty for any other."""
    labels: dict[str, str] = field(default_factory=dict)
    ends: float = 0.0
    """The time at which it is deleted, at the end of its run time; 0 where it has none."""
    group: str = ""
    """The managed instance group that it is of; a list does not show it."""


@dataclass(frozen=True)
class Listing:
    """The instances of a cluster; `partial` is why some may be missing, empty if none is."""

    instances: tuple[Instance, ...]
    partial: str = ""


@dataclass(frozen=True)
class Group:
    """A managed instance group of flex start: it was created for the nodes of one job, and ends with them."""

    name: str
    id: str
    nodeset: str
    way: str
    nodes: tuple[str, ...]
    created: float
    template: str
    """Name of the template that its instances are made from."""
    refers: str
    """Name of the template that it refers to now."""


@dataclass(frozen=True)
class Resize:
    """The resize request of such a group: its state, and why it failed, or was not fulfilled so far."""

    state: str
    error: CloudError | None = None

    @property
    def waits(self) -> bool:
        return self.state in ("CREATING", "ACCEPTED")


@dataclass(frozen=True)
class Operation:
    """An operation of the API: whether it has ended, and its error if it has one."""

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
        self._token, self._until = "", 0.0
        self.skew = 0.0
        """Seconds by which this machine's clock is ahead of the API's, by its last answer."""

    # -- reads -------------------------------------------------------------------------------------------------------

    def instances(self) -> Listing:
        """Return all instances that carry the cluster's label, in any zone; partial where the cluster's own zone may
        lack some. Raises CloudError: a list that was cut off is none."""
        found: list[Instance] = []
        partial: list[str] = []
        query = {"filter": f"labels.hpc-cluster={self._api['cluster']}", "maxResults": str(PAGE), "fields": _FIELDS}
        for page in self._pages("/aggregated/instances", query):
            # A zone elsewhere that is down is nothing to this cluster.
            gone = [place for place in page.get("unreachables", ()) if f"/{place}".endswith(self._zone)]
            partial += [f"{place} does not answer" for place in gone]
            for place, scope in [("the list", page), *page.get("items", {}).items()]:
                code = scope.get("warning", {}).get("code", "NO_RESULTS_ON_PAGE")
                harmless = ("NO_RESULTS_ON_PAGE", "UNREACHABLE") if place == "the list" else ("NO_RESULTS_ON_PAGE",)
                if code not in harmless and place in ("the list", self._zone[1:]):
                    partial.append(f"{place}: {code}")
                if place != "the list":
                    found += [_instance(row) for row in scope.get("instances", ())]
        return Listing(tuple(found), "; ".join(dict.fromkeys(partial)))

    def _pages(self, path: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list. Raises CloudError."""
        more: dict[str, str] = {}
        while not more or more["pageToken"]:
            yield (page := self._ask("GET", path, {**query, **more}))
            more = {"pageToken": page.get("nextPageToken", "")}

    def get(self, name: str) -> Instance | None:
        """Return one instance, read now; None where there is none. Raises CloudError."""
        row = self._ask_for("GET", f"{self._zone}/instances/{name}")
        return None if row is None else _instance(row)

    def operation(self, name: str) -> Operation:
        """Return an operation; of a request for many instances, with the error of the first that has one of its own.
        Raises CloudError."""
        found = _operation(self._ask("GET", f"{self._zone}/operations/{name}"))
        if found.error and found.error.code == "VM_MIN_COUNT_NOT_REACHED" and found.group:
            rows = self._ask("GET", f"{self._zone}/operations", {"filter": f"operationGroupId={found.group}"})
            each = [_operation(row).error for row in rows.get("items", ()) if row.get("name") != name]
            return Operation(name, found.done, next(filter(None, each), found.error), found.group)
        return found

    def groups(self) -> tuple[list[Group], str]:
        """Return the cluster's groups of flex start, and why some may be missing. Raises CloudError."""
        found: list[Group] = []
        query, partial = {"maxResults": str(PAGE), "fields": _GROUP_FIELDS}, ""
        for page in self._pages(f"{self._zone}/instanceGroupManagers", query):
            if (code := page.get("warning", {}).get("code", "NO_RESULTS_ON_PAGE")) != "NO_RESULTS_ON_PAGE":
                partial = f"instance groups: {code}"
            found += filter(None, (_group(row, self._api["cluster"]) for row in page.get("items", ())))
        return found, partial

    def resize(self, group: str) -> Resize | None:
        """Return the resize request of a group; None where it has none yet. Raises CloudError."""
        rows = self._ask("GET", f"{self._zone}/instanceGroupManagers/{group}/resizeRequests").get("items", ())
        for row in rows:
            status = row.get("status", {})
            errors = status.get("error") or status.get("lastAttempt", {}).get("error") or {}
            return Resize(str(row.get("state", "")), _operation({"error": errors}).error)
        return None

    def guest_attribute(self, name: str) -> str:
        """Return the state of its set-up that an instance has published; empty where it has none. Raises CloudError."""
        found = (
            self._ask_for("GET", f"{self._zone}/instances/{name}/getGuestAttributes", {"queryPath": "hpc/boot"}) or {}
        )
        return "".join(row.get("value", "") for row in found.get("queryValue", {}).get("items", ()))

    def serial_log(self, name: str) -> str:
        """Return the end of what an instance wrote to its serial console. Raises CloudError."""
        return self._ask("GET", f"{self._zone}/instances/{name}/serialPort", {"port": "1"}).get("contents", "")

    # -- writes ------------------------------------------------------------------------------------------------------

    def insert(self, names: list[str], *, template: str, nodeset: str, request: str) -> Operation:
        """Ask for instances of these names from a template: one alone, or several of which all come or none.

        A job over several nodes needs all of its machines. `bulkInsert` with a `minCount` of all takes back the others
        where one can't be had; single inserts would leave them running without their job. The same `request` is
        answered with the same operation. Raises CloudError.
        """
        labels = {
            "hpc-cluster": self._api["cluster"],
            "hpc-part": "node",
            "hpc-nodeset": nodeset,
            MADE_BY: OURS,
            TEMPLATE: template.rpartition("/")[2],
        }
        if len(names) == 1:
            # Labels of a request take the place of the template's.
            body: dict[str, Any] = {"name": names[0], "labels": {**labels, "hpc-node": names[0]}}
            query = {"sourceInstanceTemplate": template, "requestId": request}
            return _operation(self._ask("POST", f"{self._zone}/instances", query, body))
        body = {
            "count": str(len(names)),
            "minCount": str(len(names)),
            "perInstanceProperties": {name: {} for name in names},
            "sourceInstanceTemplate": template,
            "instanceProperties": {"labels": labels},
        }
        return _operation(self._ask("POST", f"{self._zone}/instances/bulkInsert", {"requestId": request}, body))

    def insert_group(
        self, names: list[str], *, template: str, nodeset: str, way: str, policy: str, request: str
    ) -> Operation:
        """Ask for an empty group for instances of these names. `policy`: of their placement; empty for none. Its name
        is the same where the same `request` is sent again. Raises CloudError."""
        in_order = sorted(names, key=lambda name: int(name.rpartition("-")[2]))
        mark = {
            "hpc-cluster": self._api["cluster"], "nodeset": nodeset, "way": way, "nodes": compress(in_order),
            "template": template.rpartition("/")[2],
        }  # fmt: skip
        name = f"{names[0].rpartition('-')[0][:48]}-flex-{request[:8]}"
        body: dict[str, Any] = {
            "name": name,
            "baseInstanceName": name[:58].rstrip("-"),
            "description": json.dumps(mark, sort_keys=True),
            "versions": [{"instanceTemplate": template}],
            "targetSize": 0,
            # A machine that fails is the loop's to replace.
            "instanceLifecyclePolicy": {"defaultActionOnFailure": "DO_NOTHING"},
            "updatePolicy": {"type": "OPPORTUNISTIC"},
        }
        if policy:
            body["resourcePolicies"] = {"workloadPolicy": policy}
        return _operation(self._ask("POST", f"{self._zone}/instanceGroupManagers", {"requestId": request}, body))

    def insert_resize(self, group: Group, seconds: int, *, request: str) -> Operation:
        """Ask for all instances of a group, which come at once when there is capacity, and are deleted after so many
        seconds. Raises CloudError."""
        body = {
            "name": "all",
            "instances": [{"name": name} for name in group.nodes],
            "requestedRunDuration": {"seconds": str(seconds)},
        }
        path = f"{self._zone}/instanceGroupManagers/{group.name}/resizeRequests"
        return _operation(self._ask("POST", path, {"requestId": request}, body))

    def set_template(self, group: Group, template: str, *, request: str) -> Operation:
        """Have a group refer to another template, without effect on its instances. Raises CloudError."""
        path = f"{self._zone}/instanceGroupManagers/{group.name}"
        body = {"versions": [{"instanceTemplate": template}]}
        return _operation(self._ask("PATCH", path, {"requestId": request}, body))

    def delete_group(self, group: str, *, request: str) -> Operation | None:
        """Have a group deleted, with its resize request and its instances; None where there is none. Raises
        CloudError."""
        row = self._ask_for("DELETE", f"{self._zone}/instanceGroupManagers/{group}", {"requestId": request})
        return None if row is None else _operation(row)

    def delete(self, name: str, *, request: str, group: str = "") -> Operation | None:
        """Have an instance deleted, of a group by the group, which else is short of one; None where there is none.
        Raises CloudError."""
        path, query = f"{self._zone}/instances/{name}", {"requestId": request}
        if group:
            body = {"instances": [path[1:]], "skipInstancesOnValidationError": True}
            row = self._ask_for("POST", f"{self._zone}/instanceGroupManagers/{group}/deleteInstances", query, body)
        else:
            row = self._ask_for("DELETE", path, query)
        return None if row is None else _operation(row)

    def reset(self, name: str, *, request: str) -> Operation:
        """Have an instance reboot at once. Raises CloudError."""
        return _operation(self._ask("POST", f"{self._zone}/instances/{name}/reset", {"requestId": request}))

    def report_faulty(self, name: str, description: str, *, request: str) -> Operation:
        """Report an instance's host, so that Google moves the instance to another one. Raises CloudError."""
        body = {
            "disruptionSchedule": "IMMEDIATE",
            "faultReasons": [{"behavior": "UNRECOVERABLE_GPU_ERROR", "description": description[:1000]}],
        }
        path = f"{self._zone}/instances/{name}/reportHostAsFaulty"
        return _operation(self._ask("POST", path, {"requestId": request}, body))

    def perform_maintenance(self, name: str, *, request: str) -> Operation:
        """Have the announced maintenance of an instance's host begin now. Raises CloudError."""
        return _operation(
            self._ask("POST", f"{self._zone}/instances/{name}/performMaintenance", {"requestId": request})
        )

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def _ask_for(
        self, method: str, path: str, query: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Return the answer; None where what it asks for is not there."""
        try:
            return self._ask(method, path, query, body)
        except CloudError as error:
            if error.kind is Kind.NOT_FOUND:
                return None
            raise

    def _ask(
        self, method: str, path: str, query: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        import email.utils  # as http.client, which the answer needs

        url = f"{self._root}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
        headers = {"Authorization": f"Bearer {self._bearer()}", "Content-Type": "application/json"}
        try:
            status, given, text = answer(url, headers, seconds=SECONDS, method=method, data=data)
            if date := email.utils.parsedate(given.get("Date")):
                self.skew = time.time() - calendar.timegm(date)
            if status >= 400:
                if status == 401:
                    self._until = 0.0  # a token that was withdrawn
                said = refusal(text)
                code = said.reason or said.status or str(status)
                raise CloudError(kind_of(code, said.message, status), code, said.message[:500])
            found = json.loads(text or b"{}")
        except (OSError, ValueError) as error:
            raise CloudError(Kind.TRANSIENT, type(error).__name__, str(error)) from None
        if not isinstance(found, dict):
            raise CloudError(Kind.TRANSIENT, "answer", "not a JSON object")
        return found

    def _bearer(self) -> str:
        if self._api["token_file"]:
            try:
                return Path(self._api["token_file"]).read_text().strip()
            except OSError as error:
                raise CloudError(Kind.PERMISSION, "token", str(error)) from None
        if time.time() >= self._until:
            try:
                found = json.loads(answer(METADATA + TOKEN, FLAVOR, seconds=5)[2])
                # As Google's own libraries: a token is not used in its last minutes.
                self._token, self._until = found["access_token"], time.time() + float(found["expires_in"]) - 240
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise CloudError(Kind.TRANSIENT, "token", f"the metadata server gives none: {error!r}") from None
        return self._token


def _operation(row: dict[str, Any]) -> Operation:
    errors = row.get("error", {}).get("errors", ())
    failed = None
    if errors:
        code, message = str(errors[0].get("code", "")), str(errors[0].get("message", ""))
        failed = CloudError(kind_of(code, message), code, message[:500])
    return Operation(
        str(row.get("name", "")), row.get("status") == "DONE", failed, str(row.get("operationGroupId", ""))
    )


def _instance(row: dict[str, Any]) -> Instance:
    resource = row.get("resourceStatus", {})
    upcoming = resource.get("upcomingMaintenance", {})
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
        fault=next((str(why) for why in upcoming.get("maintenanceReasons", ()) if str(why).startswith("FAILURE_")), ""),
        labels=dict(row.get("labels", {})),
        ends=_epoch(str(resource.get("scheduling", {}).get("terminationTimestamp", ""))),
        group=next(
            (
                str(item.get("value", "")).rpartition("/")[2]
                for item in row.get("metadata", {}).get("items", ())
                if item.get("key") == CREATED_BY and "/instanceGroupManagers/" in str(item.get("value", ""))
            ),
            "",
        ),
    )


def _group(row: dict[str, Any], cluster: str) -> Group | None:
    """A group of the cluster, by its description: groups have no labels. None for any other."""
    try:
        mark = json.loads(row.get("description", ""))
        if mark["hpc-cluster"] != cluster or not row["name"].startswith(f"{cluster}-"):
            return None
        refers = str(row.get("instanceTemplate", "")).rpartition("/")[2]
        return Group(
            row["name"], str(row.get("id", "")), mark["nodeset"], mark["way"], tuple(expand(mark["nodes"])),
            _epoch(str(row.get("creationTimestamp", ""))), mark["template"], refers,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None


_RFC3339 = re.compile(r"^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:Z|([+-])(\d\d):(\d\d))$")


def _epoch(text: str) -> float:
    """Seconds since the epoch of a time as Google writes it, with its zone; 0 of anything else."""
    found = _RFC3339.match(text)
    if not found:
        return 0.0
    numbers = [int(part) for part in found.groups()[:6]]
    offset = (int(found[8]) * 60 + int(found[9])) * 60 if found[7] else 0
    return float(calendar.timegm((*numbers, 0, 0, 0)) - (offset if found[7] == "+" else -offset))
