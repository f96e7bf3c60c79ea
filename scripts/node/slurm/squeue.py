"""What squeue prints, as rows. Pure functions, which the stack's side uses too."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

JOBS = 50  # as many are told one by one; the others are counted
COLUMNS = {  # as squeue(1) calls them; `id` of an array's task is 7_2, `number` what its processes know it by
    "id": "i", "number": "A", "user": "u", "state": "T", "seconds": "M", "limit": "l", "nodes": "N", "count": "D",
    "partition": "P", "reason": "r", "name": "j",
}  # fmt: skip
# Of these, squeue may still name the nodes of their last run (job_state_string of src/common; %T of squeue(1)). A state
# that is not known here counts as one that holds its nodes.
WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}


def columns(mark: str) -> str:
    """The `--format` that `table` reads. `mark` is one that nobody who gave a job its name could know: a name may hold
    anything, whole rows of other jobs too."""
    return "".join(f"%{column}{mark}" for column in COLUMNS.values())


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


def summary(found: list[dict[str, str]]) -> dict[str, Any]:
    """How many jobs are in each state, the first JOBS of them, and those that Slurm or an operator holds."""
    states: Counter[str] = Counter()
    for row in found:
        states[row["state"]] += tasks(row["id"])
        if row["state"] in WAITING:
            row["nodes"] = ""  # those of its last run, until it runs again
    return {"states": dict(states), "first": found[:JOBS], "held": [row for row in found if held(row)][:JOBS]}
