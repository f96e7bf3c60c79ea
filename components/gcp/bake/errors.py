"""Errors of a bake, with what to do about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from components.gcp.bake.design import Bake

LATER = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "resourceNotReady"})
"""Reasons of a 403 or 400 that is worth a retry: too many requests, or another operation is under way."""

LOG_IN = "run `gcloud auth application-default login`, or name a key file in GOOGLE_APPLICATION_CREDENTIALS"


class BakeError(RuntimeError):
    """The image could not be made; its text is for the person who ran the command."""


class UnwellError(BakeError):
    """The machine ran, and what it had to do failed on it or did not end."""


class Complaint(NamedTuple):
    """One error of Google's."""

    code: str
    """QUOTA_EXCEEDED of an operation, quotaExceeded of an answer."""
    message: str
    limit: str = ""
    """A quota's limit, where Google's answer has it."""


def bake_error(what: str, todo: str = "", *, log: Sequence[str] = (), kind: type[BakeError] = BakeError) -> BakeError:
    """An error: what happened, what to do about it, and the end of the builder's console."""
    lines = [what]
    if log:
        lines += [f"  its console ended with ({len(log)} lines):", *(f"    {line}" for line in log)]
    if todo:
        lines.append(f"  to do: {todo}")
    return kind("\n".join(lines))


def of_answer(error: Exception) -> list[Complaint]:
    """The complaints of a request that was answered with an error, or with nothing."""
    listed = getattr(error, "errors", ())
    rows = [row for row in listed if isinstance(row, dict)]
    if rows:
        return [Complaint(str(row.get("reason", "")), str(row.get("message", ""))) for row in rows]
    return [Complaint("", str(getattr(error, "message", "")) or str(error) or type(error).__name__)]


def refused(bake: Bake, doing: str, complaints: Sequence[Complaint]) -> BakeError:
    """Google refused `doing`, such as `make the builder x`."""
    other = "c2-standard-8" if bake.machine_type.startswith("e2-") else "e2-standard-8"
    todo = advice(_ADVICE, complaints)
    return refusal(
        doing, complaints, todo.format(bake=bake, other=other, account=bake.service_account or "its service account")
    )


def advice(table: Mapping[tuple[str, ...], str], complaints: Sequence[Complaint]) -> str:
    """What to do, from the first row with a word of Google's code or message in lower case; else nothing."""
    messages = [f"{row.code} {row.message}".lower() for row in complaints]
    fitting = (todo for one in messages for marks, todo in table.items() if any(mark in one for mark in marks))
    return next(fitting, "")


def refusal(doing: str, complaints: Sequence[Complaint], todo: str) -> BakeError:
    """The same, with what to do about it."""
    rows = "\n".join(f"    {_sentence(row)}" for row in complaints)
    return bake_error(f"could not {doing}:\n{rows}", todo)


def _sentence(row: Complaint) -> str:
    text = " ".join(row.message.split())
    return ": ".join(part for part in (row.code, text) if part) + (f" ({row.limit})" if row.limit else "")


_ADVICE: Mapping[tuple[str, ...], str] = {
    ("quota_exceeded", "quotaexceeded"): (
        "ask for more at https://console.cloud.google.com/iam-admin/quotas?project={bake.project}, or set "
        "image.builder.machine_type to a type with fewer cores than {bake.machine_type}"
    ),
    ("resource_pool_exhausted",): (
        "{bake.zone} has no {bake.machine_type} left: set image.builder.machine_type to one of another family, "
        "e.g. {other}, or run again later"
    ),
    ("has not been used in project", "accessnotconfigured", "service_disabled"): (
        "gcloud services enable compute.googleapis.com --project {bake.project}"
    ),
    ("autherror", "authentication credentials"): LOG_IN,
    ("guest attributes",): (
        "lift the policy compute.disableGuestAttributesAccess for {bake.project}: the builder reports its "
        "progress by them"
    ),
    ("forbidden", "permission"): (
        "who runs this needs roles/compute.instanceAdmin.v1 in {bake.project}, and roles/iam.serviceAccountUser on "
        "{account}"
    ),
    ("/global/images/",): (
        "if this names {bake.source_image}, which the bake starts from, it was withdrawn: set image.base, or "
        "image.name to an image you have"
    ),
}
