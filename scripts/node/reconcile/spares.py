"""Spare nodes: Slurm holds them back from jobs, and each takes the place of a node that is out of service.

Each is held by a reservation of its own without an end, `hpc-spare-NODE`. Slurm keeps reservations in its state, so
nothing is remembered here: every pass compares the reservations with the nodes' states.
"""

from collections.abc import Collection, Mapping

from interface import Spares
from slurm import reservations, scheduler
from slurm.scheduler import State
from system.host import log

PREFIX = "hpc-spare-"
_OUT = {"DOWN", "DRAIN", "FAIL"}


def keep(wanted: Mapping[str, Spares]) -> None:
    """Hold back as many nodes as each nodeset has spares, less those that are out of service; no others. Raises
    SetupError."""
    held = {name.removeprefix(PREFIX) for name in reservations.names() if name.startswith(PREFIX)}
    states = scheduler.states() if wanted else {}
    chosen: set[str] = set()
    for row in wanted.values():
        nodes = {name: states[name] for name in row["nodes"] if name in states}
        chosen |= choose(nodes, held, row["count"])
    for name in sorted(held - chosen):
        reservations.delete(f"{PREFIX}{name}")
        log(f"{name} is not held back as a spare any more: jobs may have it")
    for name in sorted(chosen - held):
        reservations.hold(f"{PREFIX}{name}", name)
        log(f"{name} is held back as a spare: no job starts there")


def choose(nodes: Mapping[str, State], held: Collection[str], count: int) -> set[str]:
    """The nodes of a nodeset, in their order, that are held back now. A pure function.

    Nodes that are off come first, as a reservation keeps others from being powered down; then those that are held
    already, then idle ones, and of equal ones the last.
    """

    def is_out(states: set[str]) -> bool:
        sleeps = any(state.startswith(("POWER", "REBOOT")) for state in states)
        return bool(states & _OUT) and not sleeps

    def order(name: str) -> tuple[bool, bool, bool, int]:
        states = nodes[name]["states"]
        return "POWERED_DOWN" not in states, name not in held, "IDLE" not in states, -position[name]

    position = {name: number for number, name in enumerate(nodes)}
    out = {name for name, row in nodes.items() if is_out(row["states"])}
    sound = [name for name, row in nodes.items() if not row["states"] & _OUT]
    return set(sorted(sound, key=order)[: max(0, count - len(out))])
