"""What keeps an image from being made, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from google.cloud import compute_v1

    from components.gcp.bake.design import Bake

LATER = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "resourceNotReady"})
"""Reasons of a 403 or 400 that is none the next time: too many requests, or another operation is under way."""
STOCK_OUT = "RESOURCE_POOL_EXHAUSTED"
"""Part of every code that says that the zone has no such machine left."""


class BakeError(RuntimeError):
    """The image could not be made; its text is for the person who ran the command."""


class Complaint(NamedTuple):
    """One error of Google's."""

    code: str
    """QUOTA_EXCEEDED of an operation, quotaExceeded of an answer."""
    message: str
    limit: str = ""
    """What a quota allows, where Google says it apart."""


def told(what: str, todo: str = "", *, log: Sequence[str] = ()) -> BakeError:
    """An error: what happened, what to do about it, and the end of the builder's console."""
    lines = [what]
    if log:
        lines += [f"  its console ended with ({len(log)} lines):", *(f"    {line}" for line in log)]
    if todo:
        lines.append(f"  to do: {todo}")
    return BakeError("\n".join(lines))


def of_operation(error: compute_v1.Error) -> list[Complaint]:
    """The complaints of an operation that has ended."""
    found: list[Complaint] = []
    for row in error.errors:
        quotas = [detail.quota_info for detail in row.error_details if detail.quota_info.limit_name]
        limit = "; ".join(f"{q.limit_name}: {q.limit:g}{_place(q.dimensions.values())}" for q in quotas)
        found.append(Complaint(row.code, row.message, limit))
    return found


def _place(dimensions: Iterable[str]) -> str:
    return "".join(f" in {value}" for value in dimensions)


def of_answer(error: Exception) -> list[Complaint]:
    """The complaints of a request that was answered with an error, or with nothing."""
    listed = getattr(error, "errors", ())
    rows = [row for row in listed if isinstance(row, dict)]
    if rows:
        return [Complaint(str(row.get("reason", "")), str(row.get("message", ""))) for row in rows]
    return [Complaint("", str(getattr(error, "message", "")) or str(error) or type(error).__name__)]


def refused(bake: Bake, doing: str, complaints: Sequence[Complaint]) -> BakeError:
    """Google would not: `doing` says what was tried, such as `make the builder x`."""
    said = "\n".join(f"    {_sentence(row)}" for row in complaints)
    return told(f"could not {doing}:\n{said}", next(filter(None, (_todo(bake, row) for row in complaints)), ""))


def _sentence(row: Complaint) -> str:
    text = " ".join(row.message.split())
    return ": ".join(part for part in (row.code, text) if part) + (f" ({row.limit})" if row.limit else "")


def _todo(bake: Bake, row: Complaint) -> str:
    code = row.code.upper().replace("_", "")
    if "QUOTAEXCEEDED" in code:
        return (
            f"ask for more at https://console.cloud.google.com/iam-admin/quotas?project={bake.project}, or set "
            f"image.builder.machine_type to a type with fewer cores than {bake.machine_type}"
        )
    if STOCK_OUT in row.code:
        return (
            f"{bake.zone} has no {bake.machine_type} left: set image.builder.machine_type to one of another family, "
            "e.g. n2-standard-8 (it needs no GPU), or run again later"
        )
    if "has not been used in project" in row.message or code == "ACCESSNOTCONFIGURED":
        return f"gcloud services enable compute.googleapis.com --project {bake.project}"
    if "guest attributes" in row.message.lower():
        return f"lift the policy compute.disableGuestAttributesAccess for {bake.project}: the builder tells by them"
    if code in ("FORBIDDEN", "REQUIREDPERMISSIONDENIED", "PERMISSIONSERROR"):
        account = f" on {bake.service_account}" if bake.service_account else ""
        return (
            f"who runs this needs roles/compute.instanceAdmin.v1 in {bake.project}, "
            f"and roles/iam.serviceAccountUser{account}"
        )
    if code in ("NOTFOUND", "RESOURCENOTFOUND") and "/images/" in row.message:
        return "the image that the bake starts from was withdrawn: set image.base, or image.name to an image you have"
    return ""
