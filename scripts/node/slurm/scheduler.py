"""Slurm's own view of the cluster, as the controller's commands print it."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from jobs.queue import WAITING
from slurm import slurmctld
from slurm.scontrol import rows
from system.host import SetupError, listens, run

SECONDS = 3
JOBS = 50  # as many are told one by one; the others are counted
KEPT = (
    "State", "Reason", "CPUTot", "CPUAlloc", "RealMemory", "AllocMem", "Gres", "GresUsed", "Version", "NodeAddr",
    "BootTime", "SlurmdStartTime", "LastBusyTime", "Partitions",
)  # fmt: skip
PARTITION = (
    "Default", "MaxTime", "DefaultTime", "State", "Nodes", "TotalCPUs", "TotalNodes", "AllowAccounts", "AllowQos",
    "AllowGroups", "PriorityTier", "OverSubscribe",
)  # fmt: skip
COLUMNS = {  # as squeue(1) calls them
    "id": "i", "user": "u", "state": "T", "seconds": "M", "limit": "l", "nodes": "N", "count": "D", "partition": "P",
    "reason": "r", "name": "j",
}  # fmt: skip


def nodes() -> dict[str, dict[str, str]]:
    """Every node, by name, with the fields of KEPT that `scontrol show node` has."""
    return {
        row["NodeName"]: {k: row[k] for k in KEPT if k in row} for row in rows(_ask("scontrol", "-o", "show", "node"))
    }


def partitions() -> dict[str, dict[str, str]]:
    """Every partition, by name, with the fields of PARTITION."""
    found = rows(_ask("scontrol", "-o", "--all", "show", "partition"))
    return {row["PartitionName"]: {k: row[k] for k in PARTITION if k in row} for row in found}


def jobs() -> dict[str, Any]:
    """How many jobs are in each state, and the first JOBS of them: running ones, then waiting ones by priority.

    Those that Slurm, or an operator, holds stand once more under `held`, JOBS at most: they come last in the queue.
    """
    os.environ["SLURM_BITSTR_LEN"] = "0"  # the numbers of a long array in full
    # A job's name may hold anything, whole rows of other jobs too: nobody who gave one could know this mark.
    mark = secrets.token_hex(8)
    text = _ask("squeue", "--noheader", "--sort=-t,-p", f"--format={''.join(f'%{c}{mark}' for c in COLUMNS.values())}")
    found = table(text, mark)
    states: Counter[str] = Counter()
    for row in found:
        states[row["state"]] += tasks(row["id"])
        if row["state"] in WAITING:
            row["nodes"] = ""  # those of its last run, until it runs again
    return {"states": dict(states), "first": found[:JOBS], "held": [row for row in found if held(row)][:JOBS]}


def table(text: str, mark: str) -> list[dict[str, str]]:
    """What squeue printed, by COLUMNS, with `mark` behind every field. A pure function."""
    cells, width = text.split(mark)[:-1], len(COLUMNS)
    rows = [cells[at : at + width] for at in range(0, len(cells) - width + 1, width)]
    return [dict(zip(COLUMNS, [row[0].lstrip("\n"), *row[1:]])) for row in rows]  # noqa: B905 - 3.8


def held(row: dict[str, str]) -> bool:
    """Whether a waiting job starts only when an operator releases it. A pure function.

    The words are those of job_state_reason_string (JobHeldAdmin, JobHoldMaxRequeue) and of src/slurmctld/job_mgr.c
    ("launch failed requeued held", "job requeued in held state"), from 22.05 to 26.05. JobHeldUser: its user's wish.
    """
    return (
        row["state"] in WAITING
        and bool(re.search(r"held|hold", row["reason"], re.IGNORECASE))
        and (row["reason"] != "JobHeldUser")
    )


def tasks(number: str) -> int:
    """How many jobs squeue shows by one number: `7`, `7_2` are one, `7_[1-5,9%2]` is six. A pure function."""
    count = 0
    for part in number.partition("[")[2].rstrip("]").partition("%")[0].split(","):
        first, _, last = part.partition(":")[0].partition("-")
        step = int(part.partition(":")[2] or 1) if ":" in part else 1
        if first.isdigit() and (last or first).isdigit():
            count += (int(last or first) - int(first)) // step + 1
    return count or 1


def config() -> dict[str, str]:
    """The values that slurmctld runs with, by parameter, as `scontrol show config` prints them."""
    found: dict[str, str] = {}
    for line in _ask("scontrol", "show", "config").splitlines():
        name, equals, value = line.partition("=")
        if equals and line[:1].strip():
            found.setdefault(name.strip(), value.strip())
    return found


def ping() -> dict[str, Any]:
    """Whether slurmctld answers, and in how many seconds."""
    began = time.monotonic()
    said = _ask("scontrol", "ping").strip()
    return {"up": said.endswith("UP"), "said": said, "seconds": round(time.monotonic() - began, 3)}


def statistics() -> dict[str, int]:
    """What waits for slurmdbd in slurmctld: its records are kept until slurmdbd takes them."""
    for line in _ask("sdiag").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "DBD Agent queue size":
            return {"waiting": int(value)}
    raise SetupError("sdiag does not say how many records wait for slurmdbd")


def database() -> dict[str, Any]:
    """Whether slurmdbd answers. Its port tells that it runs; only an answer tells that MariaDB does, too."""
    if not listens(slurmctld.SLURMDBD_PORT):
        return {"up": False, "said": f"nothing listens on port {slurmctld.SLURMDBD_PORT}"}
    try:
        run("sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster", timeout=SECONDS)
    except SetupError as error:
        return {"up": False, "said": str(error)}
    return {"up": True, "said": ""}


def _ask(*command: str) -> str:
    # A command whose daemon is gone tries for many seconds before it says so.
    if not listens(slurmctld.SLURMCTLD_PORT):
        raise SetupError(f"nothing listens on slurmctld's port {slurmctld.SLURMCTLD_PORT}")
    return run(*command, timeout=SECONDS)


PARTS: dict[str, Callable[[], Any]] = {
    "nodes": nodes,
    "partitions": partitions,
    "jobs": jobs,
    "config": config,
    "ping": ping,
    "statistics": statistics,
    "database": database,
}
