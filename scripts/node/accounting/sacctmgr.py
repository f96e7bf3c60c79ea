"""What Slurm's database holds: accounts, who may charge them, and QOS with their limits; as sacctmgr prints it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurm import slurmctld
from system.host import SetupError, listens, run

SECONDS = 3
# sacctmgr's names of what a stack can set of a QOS: the short ones, which it prints, for those that it is told.
LIMITS = {
    "Priority": "priority",
    "MaxWall": "maxwall",
    "MaxJobsPerUser": "maxjobspu",
    "MaxSubmitJobsPerUser": "maxsubmitpu",
    "MaxTRESPerJob": "maxtres",
    "MaxTRESPerUser": "maxtrespu",
    "GrpTRES": "grptres",
    "Preempt": "preempt",
    "Flags": "flags",
}
ON_PEOPLE = ("GrpJobs", "GrpSubmitJobs", "GrpTRES", "GrpWall", "MaxJobs", "MaxSubmitJobs", "MaxTRES", "MaxWall")


def accounts(*, seconds: float = SECONDS) -> dict[str, dict[str, str]]:
    """Every account: description, organization."""
    return {
        name: {"description": d, "organization": o}
        for name, d, o in _show("account", "account", "descr", "org", seconds=seconds)
    }


def associations(*, seconds: float = SECONDS) -> list[dict[str, str]]:
    """Every account's place in the tree, and every user's in an account: parent, shares, QOS, limits that it has."""
    fields = ("account", "user", "parentname", "share", "defaultqos", "qos", *ON_PEOPLE)
    rows = [dict(zip(fields, row)) for row in _show("assoc", *fields, seconds=seconds)]  # noqa: B905 - 3.8
    return [{key: value for key, value in row.items() if value or key not in ON_PEOPLE} for row in rows]


def users(*, seconds: float = SECONDS) -> dict[str, str]:
    """Every user's default account."""
    return {row[0]: row[1] for row in _show("user", "user", "defaultaccount", seconds=seconds)}


def qos(*, seconds: float = SECONDS) -> dict[str, dict[str, str]]:
    """Every QOS with the limits that it has, by the names that sacctmgr is told."""
    found = {}
    for name, *values in _show("qos", "name", *LIMITS.values(), seconds=seconds):
        found[name] = {key: value for key, value in zip(LIMITS, values) if value}  # noqa: B905 - 3.8
    return found


def _show(kind: str, *fields: str, seconds: float) -> list[list[str]]:
    # Without slurmdbd, sacctmgr tries for many seconds before it says so. Pods have their slurmdbd elsewhere.
    if (slurmctld.ETC / "slurmdbd.conf").exists() and not listens(slurmctld.SLURMDBD_PORT):
        raise SetupError(f"nothing listens on slurmdbd's port {slurmctld.SLURMDBD_PORT}")
    text = run("sacctmgr", "--noheader", "--parsable2", "show", kind, f"format={','.join(fields)}", timeout=seconds)
    return [line.split("|") for line in text.split("\n") if line]


PARTS: dict[str, Callable[..., Any]] = {
    "accounts": accounts,
    "associations": associations,
    "users": users,
    "qos": qos,
}
