"""Nodes whose machines the platform deletes at a known time: Slurm starts no job there that would run longer."""

from __future__ import annotations

import time
from typing import Any

from slurm import output
from system.host import log, run

PREFIX = "hpc-end-"
MINUTES = 60  # of the reservation: the machine is gone by then, and the reservation ends by itself


def converge(payload: dict[str, Any]) -> None:
    """A reservation of each node from its end on, and of no other; an end that is not known (0) or over has none."""
    now = time.time()
    wanted = {f"{PREFIX}{node}": (node, _local(end)) for node, end in payload["ends"].items() if end > now}
    there = _there()
    for name in sorted(there):
        if name not in wanted or there[name] != wanted[name][1]:
            run("scontrol", "delete", f"ReservationName={name}")
            log(f"deleted the reservation {name}")
    for name, (node, start) in sorted(wanted.items()):
        if there.get(name) != start:
            # As slurm-gcp's dws-eol: jobs that run go on until the machine is deleted.
            options = ("Users=root", f"Nodes={node}", "Flags=MAINT,IGNORE_JOBS")
            run(
                "scontrol", "create", "reservation", f"ReservationName={name}", f"StartTime={start}",
                f"Duration={MINUTES}", *options,
            )  # fmt: skip
            log(f"{node} ends at {start}: jobs that would run longer do not start there")


def _there() -> dict[str, str]:
    """Start of each of these reservations, as Slurm prints it: in the machine's own time."""
    rows = output.rows(run("scontrol", "--oneliner", "show", "reservation"))
    named = {row.get("ReservationName", ""): row.get("StartTime", "") for row in rows}
    return {name: start for name, start in named.items() if name.startswith(PREFIX)}


def _local(end: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end))
