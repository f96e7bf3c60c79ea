"""Nodes and jobs in slurmctld, from `scontrol --oneliner show node` and `squeue`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Flag, auto

from cluster.observe.observation import ClusterObservation
from cluster.printable import one_line
from scripts.node.slurm.hostlist import expand
from scripts.node.slurm.output import parse_rows, split_reason


class StateMeaning(Flag):
    """Properties of a state or flag of a node."""

    FINE = auto()
    """Nothing is wrong with the node."""
    UP = auto()
    """The base state of a node that takes or runs jobs."""
    BUSY = auto()
    """The node has jobs."""
    DOWN = auto()
    """The node takes no jobs, and nobody requested this."""
    ASLEEP = auto()
    """The node is off, starts or stops as requested, so it is not down."""
    SILENT = auto()
    """The node does not answer slurmctld."""
    HELD = auto()
    """`scontrol update State=RESUME` has an effect."""
    REBOOTING = auto()
    """slurmctld will reboot the node, or waits until it has booted."""


_POWER = StateMeaning.FINE | StateMeaning.ASLEEP
_SILENT = StateMeaning.DOWN | StateMeaning.SILENT
NODE_STATES = {
    "IDLE": StateMeaning.FINE | StateMeaning.UP,
    "MIXED": StateMeaning.FINE | StateMeaning.UP | StateMeaning.BUSY,
    "ALLOCATED": StateMeaning.FINE | StateMeaning.UP | StateMeaning.BUSY,
    "COMPLETING": StateMeaning.BUSY,
    "PLANNED": _POWER,
    "CLOUD": StateMeaning.FINE,
    "POWERED_DOWN": _POWER,
    "POWERING_DOWN": _POWER,
    "POWER_DOWN": _POWER,
    "POWERING_UP": _POWER,
    "POWER_UP": _POWER,
    "RESERVED": StateMeaning.FINE,
    "MAINTENANCE": StateMeaning.FINE,
    "DYNAMIC_NORM": StateMeaning.FINE,
    "DYNAMIC_FUTURE": StateMeaning.FINE,
    "REBOOT_REQUESTED": StateMeaning.REBOOTING,
    "REBOOT_ISSUED": StateMeaning.REBOOTING | StateMeaning.ASLEEP,
    "DRAIN": StateMeaning.HELD,
    "DOWN": StateMeaning.DOWN | StateMeaning.HELD,
    "FAIL": StateMeaning.DOWN | StateMeaning.HELD,
    "NOT_RESPONDING": _SILENT,
    "NO_RESPOND": _SILENT,
    "ERROR": StateMeaning.DOWN,
    "INVALID_REG": StateMeaning.DOWN,
    "UNKNOWN": StateMeaning.DOWN,
    "FUTURE": StateMeaning.DOWN,
}
"""Base states and flags. Any other state has no property: its node is neither fine nor down."""
OFF, BOOTING = frozenset({"POWERED_DOWN", "POWERING_DOWN"}), frozenset({"POWERING_UP", "POWER_UP"})
"""Flags of a node whose machine is off or stops, and of one whose machine starts."""
_MARKS = {"POWERING_UP": "#", "POWERING_DOWN": "%", "POWERED_DOWN": "~", "POWER_DOWN": "!", "NOT_RESPONDING": "*"}
"""sinfo's marks for flags, of which it prints the first (slurm_protocol_defs.c, node_state_string)."""


def parse(text: str) -> frozenset[str]:
    """Return base state and flags of `IDLE*+DRAIN`. The star stands for NOT_RESPONDING; other marks repeat a flag."""
    return frozenset(re.sub(r"[^A-Z_]", "", word) for word in text.replace("*", "+NOT_RESPONDING").split("+"))


class NodeStates:
    """Properties that follow from a node's states; a base class for classes with `states`."""

    states: frozenset[str]
    """Base state and flags."""

    def _any(self, meaning: StateMeaning) -> bool:
        """Return whether one of the states has a property."""
        return any(meaning in NODE_STATES.get(state, StateMeaning(0)) for state in self.states)

    @property
    def fine(self) -> bool:
        """True if the node takes or runs jobs, and nothing is wrong with it; also if it is off until a job needs it."""
        # slurmctld does not ping machines that are off or starting; a resumed `down~` keeps the flag.
        silent = {"NOT_RESPONDING", "NO_RESPOND"} if self.booting or self.asleep else set[str]()
        rest = self.states - silent
        return self._any(StateMeaning.UP) and all(
            StateMeaning.FINE in NODE_STATES.get(state, StateMeaning(0)) for state in rest
        )

    @property
    def elastic(self) -> bool:
        """True if Slurm has the node's machine created and deleted as needed."""
        return "CLOUD" in self.states

    @property
    def asleep(self) -> bool:
        """True if the node's machine is off or stops, until a job needs it."""
        return bool(self.states & OFF)

    @property
    def booting(self) -> bool:
        """True if the node's machine starts for a job."""
        return bool(self.states & BOOTING)

    @property
    def ready(self) -> bool:
        """True if a job can start there without waiting for a machine."""
        return self.fine and not self.asleep and not self.booting

    @property
    def drained(self) -> bool:
        """True if the node takes no new jobs because an administrator or slurmctld drained it."""
        return "DRAIN" in self.states

    @property
    def down(self) -> bool:
        """True if slurmctld has lost the node, or could not start its machine."""
        lost = "DOWN" in self.states and "REBOOT_ISSUED" not in self.states and "POWERING_DOWN" not in self.states
        return lost or (self._any(StateMeaning.DOWN) and not self._any(StateMeaning.ASLEEP))

    @property
    def silent(self) -> bool:
        """True if the node does not answer slurmctld."""
        return self._any(StateMeaning.SILENT)

    @property
    def rebooting(self) -> bool:
        """True if slurmctld will reboot the node, or waits until it has booted."""
        return self._any(StateMeaning.REBOOTING)

    @property
    def held(self) -> bool:
        """True if RESUME has an effect."""
        return self._any(StateMeaning.HELD)

    @property
    def word(self) -> str:
        """The state as sinfo(1) prints it: with `*` if the node does not answer, `@` for a pending reboot, `^` during
        one, and the marks of power saving."""
        if "REBOOT_ISSUED" in self.states:
            return "reboot^"
        if self.drained:
            word = "draining" if self._any(StateMeaning.BUSY) else "drained"
            word = f"down, {word}" if "DOWN" in self.states else word
        else:
            named = ("DOWN", "FAIL", "COMPLETING", "MIXED", "ALLOCATED", "IDLE")
            word = next((name for name in named if name in self.states), "+".join(sorted(self.states))).lower()
        marks = [mark for state, mark in _MARKS.items() if state in self.states]
        return word + "".join(marks[:1]) + ("@" if "REBOOT_REQUESTED" in self.states else "")


NODES_COMMAND = "scontrol --oneliner --all show node"
SPARE = "hpc-spare-"
"""Prefix of the names of spare nodes' reservations (scripts/node/slurm/reservations.py)."""
_FIELDS = ("%i", "%u", "%T", "%M", "%L", "%N", "%j")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that holds nodes."""

    number: str
    """The number that squeue shows: 7, 7_2, 7+1."""
    user: str
    state: str
    elapsed: str
    left: str
    """The time until its limit, [days-]hours:minutes:seconds or UNLIMITED."""
    name: str
    nodes: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """True if the job has not ended; one that is completing has."""
        return self.state != "COMPLETING"

    def __str__(self) -> str:
        left = "no time limit" if self.left == "UNLIMITED" else f"{self.left} left"
        return (
            f"job {self.number} ({one_line(self.name)}) of {self.user}: {self.state.lower()} for {self.elapsed}, {left}"
        )


@dataclass(frozen=True, kw_only=True)
class Node(NodeStates):
    """A node in slurmctld."""

    name: str
    states: frozenset[str]  # pyrefly: ignore[bad-override]
    reason: str = ""
    by: str = ""
    since: str = ""
    """The time of the reason, in the controller's local time."""
    started: str = ""
    """The start of its slurmd, as registered."""
    reservation: str = ""
    """The reservation that holds it now, where the release prints it."""
    jobs: tuple[Job, ...] = ()

    @classmethod
    def of(cls, name: str, row: Mapping[str, str]) -> "Node":
        """Return the node of a row that scontrol prints."""
        reason, by, since = split_reason(row.get("Reason", ""))
        return cls(
            name=name,
            states=parse(row.get("State", "UNKNOWN")),
            reason=reason,
            by=by,
            since=since,
            started=row.get("SlurmdStartTime", ""),
            reservation=row.get("ReservationName", ""),
        )

    @property
    def why(self) -> str:
        """The reason why no jobs start there: the node's reason, or its reservation; empty if there is none."""
        if self.reason or "RESERVED" not in self.states:
            return self.reason
        return "spare" if self.reservation.startswith(SPARE) else f"reserved ({self.reservation or 'a reservation'})"

    @property
    def since_utc(self) -> float | None:
        """`since` in seconds since the epoch. It requires a row in UTC, as those of an observation are."""
        try:
            return datetime.fromisoformat(self.since).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            return None

    @property
    def busy(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.running)


def observed_nodes(cluster: ClusterObservation) -> list[Node]:
    """Return the nodes in an observation; none if slurmctld could not list them."""
    return [Node.of(name, row) for name, row in (cluster.slurm("nodes") or {}).items()]


def jobs_command(mark: str) -> str:
    """Return the command that lists the jobs that hold nodes, with `mark` after every field.

    A job's name may contain anything, such as line ends and whole rows of other jobs. So the mark is generated for each
    call, and no user can know it. (Slurm of Debian 12 prints JSON of all jobs or of none, in another form with each
    release.)
    """
    columns = "".join(f"{column}{mark}" for column in _FIELDS)
    return f"squeue --noheader --all --states=running,completing,suspended,stopped --format='{columns}'"


def parse_jobs(text: str, mark: str) -> list[Job]:
    """Parse the output of `jobs_command`."""
    cells, width = text.split(mark)[:-1], len(_FIELDS)
    found: list[Job] = []
    for at in range(0, len(cells) - width + 1, width):
        row = dict(zip(("number", "user", "state", "elapsed", "left", "nodes", "name"), cells[at:], strict=False))
        number, nodes = row.pop("number").lstrip("\n"), tuple(expand(row.pop("nodes")))
        found.append(Job(number=number, nodes=nodes, **row))
    return found


def parse_nodes(text: str, jobs: Sequence[Job] = ()) -> dict[str, Node]:
    """Parse the output of NODES_COMMAND: nodes by name in slurmctld's order, with the jobs on each."""
    found = (Node.of(row["NodeName"], row) for row in parse_rows(text) if "NodeName" in row)
    return {node.name: replace(node, jobs=tuple(job for job in jobs if node.name in job.nodes)) for node in found}


def select_nodes(given: Iterable[str], nodes: Mapping[str, Node], cluster: str) -> tuple[list[Node], list[str]]:
    """Return the nodes in host lists, whose names may lack the prefix `cluster`, and the names that are of no node."""
    found: dict[str, Node] = {}
    unknown: dict[str, None] = {}
    for name in (name for text in given for name in expand(text)):
        if full := next((full for full in (name, f"{cluster}-{name}") if full in nodes), None):
            found[full] = nodes[full]
        else:
            unknown[name] = None
    return list(found.values()), list(unknown)
