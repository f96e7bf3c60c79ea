"""The result of one check, and what jobs of a check print."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PASS, FAIL, SKIP = "pass", "fail", "skip"
MARK = "hpc-check "
"""In front of what programs of scripts/jobs/checks print for this package."""
Event = Mapping[str, Any]
"""A line of the driver's (scripts/jobs/checks/driver.py)."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one check ended on one node, or on all of them."""

    check: str
    status: str
    node: str = ""
    """Empty for a check of the whole cluster or of a partition."""
    partition: str = ""
    text: str = ""
    """What was found, on one line; of a skipped one why."""
    output: str = ""
    """What the node printed."""
    todo: str = ""


_BUSY = ("nodes are busy", "Immediate execution impossible", "Resources temporarily unavailable")
"""What srun prints when --immediate has passed (slurm_errno.c: ESLURM_NODES_BUSY, ESLURM_CAN_NOT_START_IMMEDIATELY)."""


def found_no_room(event: Event | None) -> bool:
    """Whether a job did not begin, because others have its nodes."""
    return event is not None and bool(event["code"]) and any(text in str(event["err"]) for text in _BUSY)


def tasks_of(event: Event | None) -> list[dict[str, Any]]:
    """What the tasks of a job printed."""
    found: list[dict[str, Any]] = []
    for line in str(event["out"]).splitlines() if event else ():
        if line.startswith(MARK):
            try:
                task = json.loads(line[len(MARK) :])
            except ValueError:
                continue
            if isinstance(task, dict):
                found.append(task)
    return found


def output_of(event: Event | None) -> str:
    """What a job printed, without what is for this module."""
    if event is None:
        return ""
    text = f"{event['err']}\n{event['out']}"
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith(MARK))
