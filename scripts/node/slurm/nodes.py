"""The nodes of slurmctld: what `scontrol show node` prints of them, and what their states mean. Pure functions, which
`./hpc` uses too."""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import Flag, auto
from typing import NamedTuple

from .hostlist import expand
from .jobs import Job
from .output import count_gpus, parse_rows, parse_tres, split_reason
from .times import utc_seconds

COMMAND = ("scontrol", "--oneliner", "--all", "show", "node")
"""The command whose output `parse` reads."""
OBSERVED = (
    "State Reason CPUTot CPUAlloc RealMemory AllocMem Gres GresUsed Version NodeAddr BootTime SlurmdStartTime "
    "LastBusyTime Partitions ReservationName"
).split()
"""Fields of scontrol that an observation of a cluster has of each node."""
SPARE = "hpc-spare-"
"""Prefix of the names of spare nodes' reservations."""
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]+)")


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
STATES = {
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


def parse_states(text: str) -> frozenset[str]:
    """Return base state and flags of `IDLE*+DRAIN`. The star stands for NOT_RESPONDING; other marks repeat a flag."""
    return frozenset(re.sub(r"[^A-Z_]", "", word) for word in text.replace("*", "+NOT_RESPONDING").split("+"))


class Node(NamedTuple):
    """A node in slurmctld. Times are as scontrol prints them, in the zone of its environment."""

    name: str
    states: frozenset[str]
    """Base state and flags."""
    reason: str = ""
    by: str = ""
    """Who gave the reason."""
    since: str = ""
    """The time of the reason."""
    booted: str = ""
    """The start of its kernel; `None` until it has registered."""
    started: str = ""
    """The start of its slurmd, as registered."""
    reservation: str = ""
    """The reservation that holds it now, where the release prints it."""
    partitions: tuple[str, ...] = ()
    address: str = ""
    version: str = ""
    """Slurm's release, by slurmd's last registration."""
    gres: str = ""
    cpus: int = 0
    usable_cpus: int = 0
    """CPUs without those that are reserved for slurmd."""
    used_cpus: int = 0
    memory: int = 0
    """MiB."""
    reserved_memory: int = 0
    """MiB that jobs can't have (MemSpecLimit)."""
    used_memory: int = 0
    """MiB."""
    used_gpus: int = 0
    jobs: tuple[Job, ...] = ()
    """The jobs on it, where they were read too."""

    @classmethod
    def of(cls, name: str, row: Mapping[str, str]) -> "Node":
        """Return the node of a row that scontrol prints. What the row lacks is empty or 0."""
        reason, by, since = split_reason(row.get("Reason", ""))
        cpus = _number(row.get("CPUTot"))
        return cls(
            name=name,
            states=parse_states(row.get("State", "UNKNOWN")),
            reason=reason,
            by=by,
            since=since,
            booted=row.get("BootTime", ""),
            started=row.get("SlurmdStartTime", ""),
            reservation=row.get("ReservationName", ""),
            partitions=tuple(filter(None, row.get("Partitions", "").split(","))),
            address=row.get("NodeAddr", ""),
            version=row.get("Version", ""),
            gres="" if row.get("Gres") == "(null)" else row.get("Gres", ""),
            cpus=cpus,
            usable_cpus=_number(row.get("CPUEfctv")) or cpus,
            used_cpus=_number(row.get("CPUAlloc")),
            memory=_number(row.get("RealMemory")),
            reserved_memory=_number(row.get("MemSpecLimit")),
            used_memory=_number(row.get("AllocMem")),
            used_gpus=count_gpus(parse_tres(row.get("AllocTRES", ""))),
        )

    def _any(self, meaning: StateMeaning) -> bool:
        """Return whether one of the states has a property."""
        return any(meaning in STATES.get(state, StateMeaning(0)) for state in self.states)

    @property
    def gpus(self) -> int:
        """The GPUs of its `Gres`."""
        return sum(int(count) for count in _GPUS.findall(self.gres))

    @property
    def free_cpus(self) -> int:
        return max(0, self.usable_cpus - self.used_cpus)

    @property
    def free_memory(self) -> int:
        """MiB."""
        return max(0, self.memory - self.reserved_memory - self.used_memory)

    @property
    def free_gpus(self) -> int:
        return max(0, self.gpus - self.used_gpus)

    @property
    def emptied(self) -> "Node":
        """The node as it is when its jobs have ended."""
        return self._replace(used_cpus=0, used_memory=0, used_gpus=0)

    @property
    def fine(self) -> bool:
        """True if the node takes or runs jobs, and nothing is wrong with it; also if it is off until a job needs it."""
        # slurmctld does not ping machines that are off or starting; a resumed `down~` keeps the flag.
        silent = {"NOT_RESPONDING", "NO_RESPOND"} if self.booting or self.asleep else set[str]()
        rest = self.states - silent
        return self._any(StateMeaning.UP) and all(
            StateMeaning.FINE in STATES.get(state, StateMeaning(0)) for state in rest
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
    def off(self) -> bool:
        """True if the node has no machine, until a job needs it."""
        return "POWERED_DOWN" in self.states

    @property
    def booting(self) -> bool:
        """True if the node's machine starts for a job."""
        return bool(self.states & BOOTING)

    @property
    def ready(self) -> bool:
        """True if a job can start there without waiting for a machine."""
        return self.fine and not self.asleep and not self.booting

    @property
    def occupied(self) -> bool:
        """True if jobs run or end there."""
        return self._any(StateMeaning.BUSY)

    @property
    def working(self) -> bool:
        """True if the node takes or runs jobs, with its machine on, also if it is about to be rebooted."""
        return (self._any(StateMeaning.UP) or self.occupied) and not self.broken

    @property
    def broken(self) -> bool:
        """True if the node takes no jobs now, whatever the reason."""
        out = self._any(StateMeaning.DOWN) or self.held
        return out or self.asleep or self.booting or "REBOOT_ISSUED" in self.states

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
    def taken_out(self) -> bool:
        """True if somebody took it out of service for a time: it reboots by command, or a reservation for maintenance
        has it. Then a machine that does not answer is no fault."""
        return bool(self.states & {"REBOOT_ISSUED", "MAINTENANCE"})

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
            word = "draining" if self.occupied else "drained"
            word = f"down, {word}" if "DOWN" in self.states else word
        else:
            named = ("DOWN", "FAIL", "COMPLETING", "MIXED", "ALLOCATED", "IDLE")
            word = next((name for name in named if name in self.states), "+".join(sorted(self.states))).lower()
        marks = [mark for state, mark in _MARKS.items() if state in self.states]
        return word + "".join(marks[:1]) + ("@" if "REBOOT_REQUESTED" in self.states else "")

    @property
    def why(self) -> str:
        """The reason why no jobs start there: the node's reason, or its reservation; empty if there is none."""
        if self.reason or "RESERVED" not in self.states:
            return self.reason
        return "spare" if self.reservation.startswith(SPARE) else f"reserved ({self.reservation or 'a reservation'})"

    @property
    def since_utc(self) -> float | None:
        """`since` in seconds since the epoch. It requires a row in UTC, as those of an observation are."""
        return utc_seconds(self.since)

    @property
    def busy(self) -> tuple[Job, ...]:
        """The jobs that have not ended; completing ones have."""
        return tuple(job for job in self.jobs if job.state != "COMPLETING")


def parse(text: str, jobs: Collection[Job] = ()) -> dict[str, Node]:
    """Return the nodes in the output of COMMAND by name, in slurmctld's order, each with those of the jobs on it."""
    nodes = (Node.of(row["NodeName"], row) for row in parse_rows(text) if "NodeName" in row)
    placed = [(job, frozenset(job.hosts)) for job in jobs]
    return {
        node.name: node._replace(jobs=tuple(job for job, hosts in placed if node.name in hosts)) if placed else node
        for node in nodes
    }


def observed_rows(text: str) -> dict[str, dict[str, str]]:
    """Return the OBSERVED fields of every node by name, of which `Node.of` makes nodes where they are read."""
    return {
        row["NodeName"]: {key: row[key] for key in OBSERVED if key in row}
        for row in parse_rows(text)
        if "NodeName" in row
    }


def select(given: Iterable[str], nodes: Mapping[str, Node], cluster: str) -> tuple[list[Node], list[str]]:
    """Return the nodes in host lists, whose names may lack the prefix `cluster`, and the names that are of no node."""
    found: dict[str, Node] = {}
    unknown: dict[str, None] = {}
    for name in (name for text in given for name in expand(text)):
        if full := next((full for full in (name, f"{cluster}-{name}") if full in nodes), None):
            found[full] = nodes[full]
        else:
            unknown[name] = None
    return list(found.values()), list(unknown)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
