"""A node whose machine was repaired is measured before jobs return to it, on the controller.

The node is resumed inside a reservation, with up to two idle nodes of its partition beside it: no job of a user starts
there meanwhile. Measurements are those of measure.py that the stack has, with the NCCL test of pairs among them. One
that fails drains the node again, with its reason; else the node is free when the reservation is deleted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from health import drain, measure
from slurm import reservations
from system.host import SetupError, printable, read_json, run, succeeds, take_lock

LOCK_SECONDS = 3600  # that a node waits for another measurement
MINUTES = 60
"""The longest time of a reservation: if this process is killed, Slurm ends it."""
PARTNERS = 2
"""One slow pair does not show which of its nodes is slow."""


def is_measured(name: str) -> bool:
    """Return whether the stack has a measurement of this node."""
    wanted = read_json(measure.SETTINGS, None) or {}
    return any(name in part["nodes"] for kind in measure.MEASURES for part in _parts(wanted, kind))


def begin(name: str) -> bool:
    """Measure a node in a process of its own; False where one is at work already. Raises SetupError."""
    unit = f"hpc-health-accept-{name}"
    if succeeds("systemctl", "is-active", "--quiet", unit):
        return False
    folder = Path(__file__).parents[1]
    program = (
        f"import sys; sys.path.insert(0, '{folder}'); from health.acceptance import main; sys.exit(main('{name}'))"
    )
    run("systemd-run", "--quiet", "--collect", f"--unit={unit}", "python3", "-S", "-c", program)
    return True


def main(name: str) -> int:
    """Measure a node once no other measurement is under way; the exit code."""
    measure.LOCK.parent.mkdir(exist_ok=True)
    with measure.LOCK.open("w") as lock:
        try:
            if not take_lock(lock, seconds=LOCK_SECONDS):
                raise SetupError(f"another measurement has not ended in {LOCK_SECONDS} s")
            accept(name, read_json(measure.SETTINGS, None) or {})
        except SetupError as error:
            sys.stderr.write(printable(f"{name}: {error}\n"))
            return 1
    return 0


def accept(name: str, wanted: dict[str, Any]) -> None:
    """Resume a node in a reservation, measure it, and end the reservation. Raises SetupError."""
    peers = {peer for kind in measure.MEASURES for part in _parts(wanted, kind) if name in part["nodes"]
             for peer in part["nodes"]}  # fmt: skip
    nodes = [name, *[peer for peer in measure.idle(sorted(peers)) if peer != name][:PARTNERS]]
    users = {"root", *(wanted[kind]["user"] for kind in measure.MEASURES if "user" in wanted.get(kind, {}))}
    reservation = f"hpc-accept-{name}"
    with reservations.while_open(reservation, nodes, minutes=MINUTES, users=users):
        drain.apply_action(name, "resume", "")
        for kind, measurement in measure.MEASURES.items():
            for part in _parts(wanted, kind):
                if name in part["nodes"]:
                    there = [node for node in nodes if node in part["nodes"]]
                    measurement({**part, "reservation": reservation}, [name], there, wanted[kind])


def _parts(wanted: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return wanted.get(kind, {}).get("partitions", [])
