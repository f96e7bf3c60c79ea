"""Reservations that keep jobs away from nodes. Jobs that run when a reservation begins go on.

Slurm keeps reservations in its state, so no other record is kept: each call compares them with the wanted ones.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager

from interface import Spares
from slurm import output
from slurm.nodes import SPARE
from system.host import log, run

END_MINUTES = 60  # by then the machine is deleted, and the reservation ends by itself
OUT = frozenset({"DOWN", "DRAIN", "FAIL"})
"""States of nodes that are out of service."""


def keep(wanted: Mapping[str, tuple[str, float, int]], owned: Callable[[str], bool]) -> None:
    """Create these reservations, and delete any other one whose name is `owned`. `wanted` has by name the node, the
    start in seconds of the epoch, and the minutes. A reservation that would begin in the past is not created. Raises
    SetupError."""
    # Slurm prints times in the machine's own zone.
    starts = {
        name: time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(start))
        for name, (_, start, _) in wanted.items()
        if start > time.time()
    }
    existing = _starts()
    for name in sorted(existing):
        if (owned(name) and name not in wanted) or (name in starts and existing[name] != starts[name]):
            delete(name)
            log(f"deleted the reservation {name}")
    for name, start in sorted(starts.items()):
        if existing.get(name) != start:
            node, _, minutes = wanted[name]
            _create(name, [node], start, minutes)
            log(f"{node} is reserved from {start} on: jobs that would run longer do not start there")


def keep_ends(prefix: str, ends: Mapping[str, float]) -> None:
    """Reserve each node from the end of its machine on. Delete other reservations whose names begin with `prefix`.
    Raises SetupError."""
    wanted = {f"{prefix}{node}": (node, end, END_MINUTES) for node, end in ends.items()}
    keep(wanted, lambda name: name.startswith(prefix))


@contextmanager
def while_open(name: str, nodes: Iterable[str], *, minutes: int, users: Iterable[str]) -> Generator[None]:
    """Reserve nodes for these users in this context. If this process is killed, the reservation ends after `minutes`.
    Raises SetupError."""
    delete(name, accept=(0, 1))
    _create(name, nodes, "now", minutes, users=users)
    try:
        yield
    finally:
        delete(name, accept=(0, 1))


def keep_spares(wanted: Mapping[str, Spares], states: Mapping[str, Collection[str]]) -> None:
    """Hold back as many nodes as each nodeset has spares, less the nodes that are out of service, and no others. Each
    spare node has a reservation of its own without an end. Raises SetupError."""
    held = {name.removeprefix(SPARE) for name in _starts() if name.startswith(SPARE)}
    chosen: set[str] = set()
    for row in wanted.values():
        nodes = {name: states[name] for name in row["nodes"] if name in states}
        chosen |= choose_spares(nodes, held, row["count"])
    for name in sorted(held - chosen):
        delete(f"{SPARE}{name}")
        log(f"{name} is not held back as a spare any more: jobs may have it")
    for name in sorted(chosen - held):
        # Without the flag MAINT, the reconcile loop repairs the node as any other.
        _create(f"{SPARE}{name}", [name], "now", "UNLIMITED", flags="IGNORE_JOBS")
        log(f"{name} is held back as a spare: no job starts there")


def choose_spares(nodes: Mapping[str, Collection[str]], held: Collection[str], count: int) -> set[str]:
    """Return the nodes of a nodeset that are to be held back. `nodes` has their states, in their order. A pure
    function.

    Nodes that are off come first, because a reserved node that is on is not powered down; then nodes that are held
    already, then idle ones, and among equal ones the last.
    """
    position = {name: number for number, name in enumerate(nodes)}

    def is_out(name: str) -> bool:
        sleeps = any(state.startswith(("POWER", "REBOOT")) for state in nodes[name])
        return not sleeps and not OUT.isdisjoint(nodes[name])

    def order(name: str) -> tuple[bool, bool, bool, int]:
        return "POWERED_DOWN" not in nodes[name], name not in held, "IDLE" not in nodes[name], -position[name]

    sound = [name for name, states in nodes.items() if OUT.isdisjoint(states)]
    return set(sorted(sound, key=order)[: max(0, count - sum(map(is_out, nodes)))])


def _starts() -> dict[str, str]:
    """Return every reservation's start as Slurm prints it, by name."""
    rows = output.parse_rows(run("scontrol", "--oneliner", "show", "reservation"))
    return {row["ReservationName"]: row.get("StartTime", "") for row in rows if "ReservationName" in row}


def _create(
    name: str,
    nodes: Iterable[str],
    start: str,
    duration: int | str,
    *,
    users: Iterable[str] = ("root",),
    # The flags of slurm-gcp's dws-eol: jobs that run go on until the machine is deleted.
    flags: str = "MAINT,IGNORE_JOBS",
) -> None:
    span = (f"StartTime={start}", f"Duration={duration}")
    for_whom = (f"Users={','.join(sorted(users))}", f"Nodes={','.join(nodes)}", f"Flags={flags}")
    run("scontrol", "create", "reservation", f"ReservationName={name}", *span, *for_whom)


def delete(name: str, *, accept: tuple[int, ...] = (0,)) -> None:
    """Delete a reservation. Raises SetupError."""
    run("scontrol", "delete", f"ReservationName={name}", accept=accept)
