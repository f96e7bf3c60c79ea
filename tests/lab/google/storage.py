"""A stand-in of Google Cloud Storage: buckets, by its JSON API (cloud.google.com/storage/docs/json_api/v1/buckets)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from components.local.compute_engine.http import Answer, Call, GoogleHttp, RefusalError

BUCKETS = "/storage/v1/b"


@dataclass(frozen=True)
class Owned:
    """A bucket and the project that it belongs to."""

    project: str
    resource: dict[str, Any] = field(default_factory=dict)


class FakeStorage(GoogleHttp):
    """The buckets of all projects, whose names are unique. Lists have pages of two."""

    page = 2

    def __init__(self) -> None:
        super().__init__()
        self.buckets: dict[str, Owned] = {}

    def handle(self, call: Call) -> Answer:
        """Answer a request."""
        if call.path != BUCKETS or "project" not in call.query:
            raise RefusalError(404, "notFound", f"Not Found: {call.path}")
        return self._insert(call) if call.method == "POST" else self._list(call)

    def _list(self, call: Call) -> Answer:
        names = [
            name
            for name, owned in sorted(self.buckets.items())
            if owned.project == call.query["project"] and name.startswith(call.query.get("prefix", ""))
        ]
        start = int(call.query.get("pageToken", 0))
        answer: dict[str, Any] = {"kind": "storage#buckets"}
        if rows := [self.buckets[name].resource for name in names[start : start + self.page]]:
            answer["items"] = rows
        if names[start + self.page :]:
            answer["nextPageToken"] = str(start + self.page)
        return 200, answer

    def _insert(self, call: Call) -> Answer:
        name = call.body["name"]
        if name in self.buckets:
            raise RefusalError(
                409, "conflict", "The requested bucket name is not available. The bucket namespace is shared"
            )
        resource = {"kind": "storage#bucket", **call.body, "location": call.body["location"].upper()}
        self.buckets[name] = Owned(call.query["project"], resource)
        return 200, resource
