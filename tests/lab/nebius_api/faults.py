"""Errors of the API's calls and operations, and faults that a test or a rehearsal injects."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

MODES = ("refuse", "fail", "hang", "lose")


class RefusedError(Exception):
    """An error of the API: gRPC's code, a message, and the JSON of a ServiceError (nebius.common.v1)."""

    def __init__(self, code: str, message: str, detail: Mapping[str, Any] | None = None) -> None:
        self.code, self.message = code, message
        self.detail = None if detail is None else {"retry_type": "NOTHING", "code": code.lower(), **detail}
        super().__init__(f"{code}: {message}")

    def plain(self) -> dict[str, Any]:
        """Return it as JSON, for the state of an operation."""
        return {"code": self.code, "message": self.message, "detail": self.detail}


@dataclass
class Fault:
    """An injected fault."""

    kind: str = "*"
    """A name of `KINDS`, or a pattern such as "*"."""
    verb: str = "*"
    """create, get, list, update, delete, or poll (of an operation)."""
    mode: str = "refuse"
    """`refuse` the call; accept it and let the operation `fail` or `hang`; or execute it and `lose` the answer."""
    what: str = "internal_error"
    """A name of `ERRORS`."""
    name: str = "*"
    """Pattern of the object's name or id."""
    count: int | None = 1
    """The number of calls that it still affects; None: all."""

    def hits(self, kind: str, verb: str, name: str) -> bool:
        """Return whether it affects this call."""
        if self.count == 0:
            return False
        rules = ((kind, self.kind), (verb, self.verb), (name, self.name))
        return all(fnmatchcase(value, pattern) for value, pattern in rules)

    def error(self, kind: str, id_: str) -> RefusedError:
        """Return the error of the fault."""
        return refusal(self.what, kind, id_)


def refusal(what: str, kind: str, id_: str = "", message: str = "") -> RefusedError:
    """Return the error of that name about an object."""
    code, detail, text = ERRORS[what]
    return RefusedError(code, message or text, None if detail is None else {"service": kind, **_filled(detail, id_)})


def bad_request(field: str, message: str) -> RefusedError:
    """Return the error about a field of a request."""
    violations = [{"field": field, "message": message}]
    return RefusedError("INVALID_ARGUMENT", "invalid argument", {"bad_request": {"violations": violations}})


def in_use(id_: str, by: str) -> RefusedError:
    """Return the error about a deletion of an object that another one uses."""
    detail = {"bad_resource_state": {"resource_id": id_, "message": f"it is used by {by}"}}
    return RefusedError("FAILED_PRECONDITION", f"{id_} is in use", detail)


def _filled(value: Any, id_: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _filled(member, id_) for name, member in value.items()}
    if isinstance(value, list):
        return [_filled(member, id_) for member in value]
    return id_ if value == "ID" else value


_QUOTA = {
    "quota": "compute.instance.gpu.h100", "limit": "8", "requested": "16", "message": "limit of GPUs exceeded",
}  # fmt: skip
_SCARCE = {"resource_type": "gpu-h100-sxm", "requested": "2", "message": "no hosts of fabric-3 are free"}
ERRORS: Mapping[str, tuple[str, Mapping[str, Any] | None, str]] = {
    "bad_request": (
        "INVALID_ARGUMENT", {"bad_request": {"violations": [{"field": "spec", "message": "not valid"}]}},
        "invalid argument",
    ),
    "bad_resource_state": (
        "FAILED_PRECONDITION", {"bad_resource_state": {"resource_id": "ID", "message": "it is being changed"}},
        "failed precondition",
    ),
    "resource_not_found": ("NOT_FOUND", {"resource_not_found": {"resource_id": "ID"}}, "not found"),
    "resource_already_exists": ("ALREADY_EXISTS", {"resource_already_exists": {"resource_id": "ID"}}, "exists"),
    "out_of_range": ("OUT_OF_RANGE", {"out_of_range": {"requested": "101", "limit": "100"}}, "out of range"),
    "permission_denied": ("PERMISSION_DENIED", {"permission_denied": {"resource_id": "ID"}}, "permission denied"),
    "resource_conflict": (
        "ABORTED", {"resource_conflict": {"resource_id": "ID", "message": "resource_version differs"}}, "conflict",
    ),
    "operation_aborted": (
        "ABORTED",
        {"operation_aborted": {"operation_id": "op-1", "aborted_by_operation_id": "op-2", "resource_id": "ID"}},
        "aborted",
    ),
    "operation_conflict": (
        "ABORTED", {"operation_conflict": {"conflicting_operation_id": "op-1", "resource_id": "ID"}},
        "another operation is under way",
    ),
    "too_many_requests": (
        "RESOURCE_EXHAUSTED", {"too_many_requests": {"violation": "20 requests per second"}}, "too many requests",
    ),
    "quota_failure": ("RESOURCE_EXHAUSTED", {"quota_failure": {"violations": [_QUOTA]}}, "quota exceeded"),
    "not_enough_resources": (
        "RESOURCE_EXHAUSTED", {"not_enough_resources": {"violations": [_SCARCE]}}, "not enough resources",
    ),
    "internal_error": (
        "INTERNAL", {"internal_error": {"request_id": "request-1", "trace_id": "trace-1"}}, "internal error",
    ),
    "unavailable": ("UNAVAILABLE", None, "the service is unavailable"),
    "unauthenticated": ("UNAUTHENTICATED", None, "the token has expired"),
}  # fmt: skip
"""Code, detail and message by the name of the detail. The last two have no detail, as in the API."""
