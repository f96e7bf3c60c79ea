"""What there is in a Compute Engine of the tests' own, and what may go wrong there, in Google's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.google.http import RefusalError

GOOGLE = "https://www.googleapis.com/compute/v1/"
STEPS = (None, "step 1 of 2: packages", "step 2 of 2: tests", "done")

QUOTA = {
    "code": "QUOTA_EXCEEDED",
    "message": "Quota 'C2_CPUS' exceeded.  Limit: 4.0 in region us-central1.",
    "errorDetails": [
        {
            "quotaInfo": {
                "metricName": "compute.googleapis.com/c2_cpus",
                "limitName": "C2-CPUS-per-project-region",
                "dimensions": {"region": "us-central1"},
                "limit": 4.0,
            }
        }
    ],
}
STOCK_OUT = {
    "code": "ZONE_RESOURCE_POOL_EXHAUSTED",
    "message": "The zone 'projects/p/zones/us-central1-a' does not have enough resources available.",
}


@dataclass
class Operation:
    """Work that has begun."""

    name: str
    target: str
    zone: str
    kind: str
    left: float
    """Requests until it is done."""
    finish: Callable[[], None]
    errors: Sequence[Mapping[str, Any]] = ()

    def seen(self) -> dict[str, Any]:
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
        if done and self.errors:
            row |= {"error": {"errors": list(self.errors)}, "httpErrorStatusCode": 403}
        return row


@dataclass
class Fault:
    """What goes wrong with calls of one kind, such as `instances.insert`."""

    errors: Sequence[Mapping[str, Any]] = ()
    """The operation ends with these."""
    never: bool = False
    """The operation does not end."""


@dataclass
class Machine:
    """A builder: how far it is with what it installs."""

    resource: dict[str, Any]
    said: list[str | None]
    """What its guest attribute is from one question to the next; the last stays."""
    console: str = ""


@dataclass
class World:
    """What there is."""

    machines: dict[str, Machine] = field(default_factory=dict)
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    by_request: dict[str, Operation] = field(default_factory=dict)
    """Operations by the id that the client gave its request."""


def not_found(path: str) -> RefusalError:
    return RefusalError(404, "notFound", f"The resource '{path}' was not found")


def not_ready(path: str) -> RefusalError:
    return RefusalError(400, "resourceNotReady", f"The resource '{path}' is not ready")
