"""Managed instance groups and their resize requests, as far as flex start uses them: a base of the servers of
host_compute.py and of the tests' stand-in.

It refuses what Compute Engine refuses: names that are taken, a run duration outside of ten minutes to a week, a
template of another provisioning model. A request waits until there is capacity for all of its instances, which are then
created together, and deleted at the end of their run duration.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from components.local.compute_engine.http import GOOGLE, Call, RefusalError

WEEK = 7 * 24 * 3600


class InstanceGroups(ABC):
    """The groups of a server."""

    groups: dict[str, dict[str, Any]]
    """By path: the resource, its resize request (`request`), the time of the request (`asked`), the time when its
    instances were created (`came`), and their names (`members`)."""

    # -- methods of the server ---------------------------------------------------------------------------------------

    @abstractmethod
    def queue(self) -> tuple[float, str]:
        """Return the least seconds for which each request waits, and the error with which it fails; empty for none."""

    @abstractmethod
    def now(self) -> float:
        """Return the time in seconds since 1970."""

    @abstractmethod
    def template_of(self, link: str) -> Mapping[str, Any]:
        """Return the properties of a template. Raises RefusalError if there is none."""

    @abstractmethod
    def shortage_of(self, link: str, count: int) -> list[Mapping[str, Any]]:
        """Return the errors of a request for `count` instances of a template."""

    @abstractmethod
    def create_members(self, zone: str, names: Sequence[str], link: str, group: str, ends: float) -> None:
        """Create instances of a group."""

    @abstractmethod
    def delete_members(self, zone: str, names: Sequence[str]) -> None:
        """Delete those instances of a group that exist."""

    @abstractmethod
    def begin_operation(self, call: Call, kind: str, path: str, finish: Callable[[], None]) -> dict[str, Any]:
        """Begin an operation."""

    # -- requests ----------------------------------------------------------------------------------------------------

    def group_routes(self) -> list[tuple[str, str, Callable[..., dict[str, Any]]]]:
        """Return method, path and handler of each request."""
        zone = r"(projects/[^/]+/zones/[^/]+)"
        group = rf"({zone[1:-1]}/instanceGroupManagers/[^/]+)"
        return [
            ("GET", f"{zone}/instanceGroupManagers", self._list_groups),
            ("POST", f"{zone}/instanceGroupManagers", self._insert_group),
            ("PATCH", group, self._patch_group),
            ("DELETE", group, self._delete_group),
            ("POST", f"{group}/deleteInstances", self._delete_instances),
            ("GET", f"{group}/resizeRequests", lambda _, path: {"items": self._requests(path)}),
            ("POST", f"{group}/resizeRequests", self._insert_request),
        ]

    def step_groups(self) -> None:
        """Decide requests whose wait is over, and delete instances whose run time is over."""
        now = self.now()
        seconds, error = self.queue()
        for path, group in list(self.groups.items()):
            zone, name = path.split("/instanceGroupManagers/")
            if group["request"] and group["request"]["state"] == "ACCEPTED" and now - group["asked"] >= seconds:
                self._decide(group, zone, name, error)
            if group["came"] and now >= group["came"] + self._seconds(group):
                self.delete_members(zone, group["members"])
                group["members"] = []

    def _decide(self, group: dict[str, Any], zone: str, name: str, error: str) -> None:
        request, link = group["request"], group["resource"]["instanceTemplate"]
        names = [instance["name"] for instance in request["instances"]]
        if error:
            request["state"] = "FAILED"
            request["status"] = {"error": {"errors": [{"code": error, "message": "the request has failed"}]}}
        elif short := self.shortage_of(link, len(names)):
            request["status"] = {"lastAttempt": {"error": {"errors": [dict(row) for row in short]}}}
        else:
            request |= {"state": "SUCCEEDED", "status": {}}
            group["came"], group["members"] = self.now(), names
            self.create_members(zone, names, link, name, group["came"] + self._seconds(group))

    def _seconds(self, group: Mapping[str, Any]) -> float:
        return float(group["request"]["requestedRunDuration"]["seconds"])

    def _group(self, path: str) -> dict[str, Any]:
        if path not in self.groups:
            raise RefusalError(404, "notFound", f"The resource '{path}' was not found")
        return self.groups[path]

    def _list_groups(self, _call: Call, zone: str) -> dict[str, Any]:
        groups = [group for path, group in sorted(self.groups.items()) if path.startswith(f"{zone}/")]
        return {"items": [{**group["resource"], "targetSize": len(group["members"])} for group in groups]}

    def _insert_group(self, call: Call, zone: str) -> dict[str, Any]:
        path = f"{zone}/instanceGroupManagers/{call.body['name']}"
        if path in self.groups:
            raise RefusalError(409, "alreadyExists", f"The resource '{path}' already exists")
        (version,) = call.body["versions"]
        scheduling = self.template_of(version["instanceTemplate"]).get("scheduling", {})
        if call.body["targetSize"] != 0 or scheduling.get("provisioningModel") != "FLEX_START":
            raise RefusalError(400, "invalid", "Invalid value for field 'resource.targetSize'")
        created = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime(self.now()))
        resource = {
            **call.body,
            "id": str(abs(hash((path, self.now())))),
            "selfLink": GOOGLE + path,
            "creationTimestamp": created,
            "instanceTemplate": version["instanceTemplate"],
        }
        group = {"resource": resource, "request": None, "asked": 0.0, "came": 0.0, "members": []}
        return self.begin_operation(call, "groups.insert", path, lambda: self.groups.update({path: group}))

    def _patch_group(self, call: Call, path: str) -> dict[str, Any]:
        resource, (version,) = self._group(path)["resource"], call.body["versions"]
        self.template_of(version["instanceTemplate"])
        resource |= {"versions": [version], "instanceTemplate": version["instanceTemplate"]}
        return self.begin_operation(call, "groups.patch", path, lambda: None)

    def _delete_group(self, call: Call, path: str) -> dict[str, Any]:
        group = self._group(path)
        group["asked"], group["came"] = math.inf, 0.0

        def finish() -> None:
            if self.groups.pop(path, None):
                self.delete_members(path.partition("/instanceGroupManagers/")[0], group["members"])

        return self.begin_operation(call, "groups.delete", path, finish)

    def _delete_instances(self, call: Call, path: str) -> dict[str, Any]:
        group, zone = self._group(path), path.partition("/instanceGroupManagers/")[0]
        folders, names = zip(*(link.rpartition("/")[::2] for link in call.body["instances"]), strict=True)
        if set(folders) != {f"zones/{zone.rpartition('/')[2]}/instances"}:
            raise RefusalError(400, "invalid", "Invalid value for field 'instances'")
        members = [name for name in names if name in group["members"]]
        if len(members) < len(names) and not call.body.get("skipInstancesOnValidationError"):
            raise RefusalError(400, "invalid", "an instance is not of the group")
        group["members"] = [name for name in group["members"] if name not in members]
        self.delete_members(zone, members)
        return self.begin_operation(call, "groups.deleteInstances", path, lambda: None)

    def _requests(self, path: str) -> list[dict[str, Any]]:
        request = self._group(path)["request"]
        return [request] if request else []

    def _insert_request(self, call: Call, path: str) -> dict[str, Any]:
        group = self._group(path)
        if group["request"]:
            raise RefusalError(409, "alreadyExists", f"The resource '{path}/resizeRequests' already exists")
        seconds = int(call.body["requestedRunDuration"]["seconds"])
        if not call.body.get("instances") or "resizeBy" in call.body or not 600 <= seconds <= WEEK:
            raise RefusalError(400, "invalid", "Invalid value for field 'resource.requestedRunDuration'")
        group["request"], group["asked"] = {**call.body, "state": "ACCEPTED", "status": {}}, self.now()
        return self.begin_operation(call, "resizeRequests.insert", path, lambda: None)
