"""Reservations that keep jobs away from nodes: those that run when one begins go on."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager

from slurm import output
from system.host import log, run


def keep(wanted: Mapping[str, tuple[str, float, int]], owned: Callable[[str], bool]) -> None:
    """Have these reservations, and no other one whose name is `owned`: by name the node, the start in seconds of the
    epoch, the minutes. One that would begin in the past is not made. Raises SetupError."""
    # Slurm prints times in the machine's own zone.
    starts = {
        name: time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(start))
        for name, (_, start, _) in wanted.items()
        if start > time.time()
    }
    rows = output.rows(run("scontrol", "--oneliner", "show", "reservation"))
    there = {row.get("ReservationName", ""): row.get("StartTime", "") for row in rows}
    for name in sorted(there):
        if (owned(name) and name not in wanted) or (name in starts and there[name] != starts[name]):
            delete(name)
            log(f"deleted the reservation {name}")
    for name, start in sorted(starts.items()):
        if there.get(name) != start:
            node, _, minutes = wanted[name]
            _create(name, start, minutes, [node])
            log(f"{node} is reserved from {start} on: jobs that would run longer do not start there")


@contextmanager
def while_open(name: str, nodes: Iterable[str], *, minutes: int, users: Iterable[str]) -> Generator[None]:
    """Reserve nodes for these users until the context ends; if this process is killed, Slurm ends it after `minutes`.
    Raises SetupError."""
    delete(name, accept=(0, 1))
    _create(name, "now", minutes, nodes, users)
    try:
        yield
    finally:
        delete(name, accept=(0, 1))


def names() -> list[str]:
    """The names of all reservations. Raises SetupError."""
    rows = output.rows(run("scontrol", "--oneliner", "show", "reservation"))
    return [row["ReservationName"] for row in rows if "ReservationName" in row]


def hold(name: str, node: str) -> None:
    """Reserve a node without an end. Without MAINT it counts as sound, and the reconcile loop looks after it. Raises
    SetupError."""
    span = ("StartTime=now", "Duration=UNLIMITED")
    run("scontrol", "create", "reservation", f"ReservationName={name}", *span, "Users=root", f"Nodes={node}",
        "Flags=IGNORE_JOBS")  # fmt: skip


def _create(name: str, start: str, minutes: int, nodes: Iterable[str], users: Iterable[str] = ("root",)) -> None:
    # As slurm-gcp's dws-eol: jobs that run go on until the machine is gone.
    whom = (f"Users={','.join(sorted(users))}", f"Nodes={','.join(nodes)}", "Flags=MAINT,IGNORE_JOBS")
    span = (f"StartTime={start}", f"Duration={minutes}")
    run("scontrol", "create", "reservation", f"ReservationName={name}", *span, *whom)


def delete(name: str, *, accept: tuple[int, ...] = (0,)) -> None:
    """Delete a reservation. Raises SetupError."""
    run("scontrol", "delete", f"ReservationName={name}", accept=accept)
