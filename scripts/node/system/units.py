"""The cluster's daemons as systemd sees them: which run, since when, and how often they had to be started again."""

from __future__ import annotations

import time
from typing import Any

from system import phase_state
from system.host import SetupError, run

OF = {
    "controller": ("munge", "mariadb", "slurmdbd", "slurmctld", "ssh"),
    "login": ("munge", "ssh"),
    "node": ("munge", "slurmd", "ssh"),
}
JOINING = ("hpc-node", "hpc-watch")  # on machines that set themselves up
LINES = 12
PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "NRestarts", "StateChangeTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
)  # fmt: skip


def of(roles: list[str]) -> list[str]:
    """The units that a machine of these roles runs."""
    # A machine whose set-up has not ended is nothing yet.
    found = dict.fromkeys([*(unit for role in roles for unit in OF[role]), "munge", "ssh"])
    told = phase_state.last("configure") if "controller" in roles else None
    if (told or {}).get("slurmrestd"):
        found["slurmrestd"] = None
    return [*found, *(JOINING if roles == ["node"] else ())]


def states(units: list[str]) -> dict[str, dict[str, Any]]:
    """Each unit's state, since when (seconds since the epoch, 0: never) and restarts; last messages of a bad one."""
    text = run("systemctl", "show", f"--property={','.join(PROPERTIES)}", *units, timeout=3)
    found = parse(text, now=time.time(), monotonic=time.monotonic())
    for unit, row in found.items():
        if row["state"] != "active" or row["restarts"]:
            row["journal"] = _last_messages(unit)
    return found


def parse(text: str, *, now: float, monotonic: float) -> dict[str, dict[str, Any]]:
    """The output of `systemctl show`, one block a unit. A pure function.

    Its times are microseconds of the monotonic clock, which no time zone and no set clock changes.
    """
    found: dict[str, dict[str, Any]] = {}
    for block in text.strip().split("\n\n"):
        row = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        found[row["Id"].partition(".service")[0]] = {
            "state": row["ActiveState"] if row["LoadState"] == "loaded" else row["LoadState"],
            "sub": row["SubState"],
            "result": row.get("Result", ""),
            "restarts": int(row.get("NRestarts") or 0),
            "since": _when(row.get("StateChangeTimestampMonotonic", ""), now, monotonic),
            "started": _when(row.get("ActiveEnterTimestampMonotonic", ""), now, monotonic),
        }
    return found


def _when(microseconds: str, now: float, monotonic: float) -> float:
    return round(now - monotonic + int(microseconds) / 1e6, 1) if microseconds.strip("0") else 0.0


def _last_messages(unit: str) -> list[str]:
    command = ["journalctl", "--no-pager", "--quiet", "--output=cat", f"--lines={LINES}", f"--unit={unit}"]
    try:
        return run(*command, timeout=2).strip().splitlines()
    except SetupError as error:
        return [str(error)]
