"""Observations of machines: the report of each (scripts/node/collect.py), or the reason why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from scripts.node.interface import FileSystemReport, MachineReport, Munge, Observation, Reached, Unit
from scripts.node.judge.document import LATE, error, is_busy, part
from scripts.node.slurm.nodes import Node


@dataclass(frozen=True, kw_only=True)
class MachineObservation:
    """The report of one machine. Times are in seconds since the epoch by the clock of this host."""

    name: str
    roles: tuple[str, ...]
    reached: bool
    """True if SSH to it worked, and its report came in time."""
    late: bool = False
    """True if it accepts connections, but no report came in time: the machine, this host or the network is slow."""
    why: str = ""
    """The reason why it was not reached, or sent no report."""
    old: bool = False
    """True if it sent no report because its set-up is of an earlier version, which `up` updates."""
    facts: Observation = field(default_factory=Observation)
    asked: float = 0.0
    """Time of the request."""
    answered: float = 0.0
    """Time of the response."""

    def part(self, *path: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return a part of the report; None if it is missing or could not be read."""
        return part(self.facts, *path)

    def error(self, *path: str) -> str:
        """Return why a part could not be read; empty if it could, or is missing."""
        return error(self.facts, *path)

    @property
    def has_facts(self) -> bool:
        """True if the machine sent a report."""
        return bool(self.facts)

    @property
    def is_busy(self) -> bool:
        """True if parts of its report that need no daemon are late. Then the silence of a daemon is no finding."""
        return is_busy(self.facts)

    @property
    def needs_longer_timeout(self) -> bool:
        """True if the report may be more complete with a longer timeout."""
        silent = ((self.munge or {}).get("why"), self.error("slurm", "ping"), self.part("slurm", "database", "said"))
        return self.late or self.is_busy or any(LATE.search(why or "") for why in silent)

    @property
    def time(self) -> float:
        """The time at which the observation began, by the machine's own clock."""
        return float(self.facts.get("time", 0))

    @property
    def daemons(self) -> Mapping[str, Unit]:
        """systemd units by name; empty if they could not be read, as are the following."""
        return self.part("daemons") or {}

    @property
    def disks(self) -> Mapping[str, FileSystemReport]:
        """File systems by path. One that could not be read has only `error`."""
        return self.part("disks") or {}

    @property
    def munge(self) -> Munge | None:
        """MUNGE's key and clock, and whether authentication works."""
        return self.part("munge")

    @property
    def report(self) -> MachineReport:
        """The machine's last report in the cluster state."""
        return self.part("cluster_state", "report") or {}

    @property
    def controller(self) -> Reached:
        """The machine's connection to slurmctld."""
        return self.part("controller") or {}


@dataclass(frozen=True, kw_only=True)
class ClusterObservation:
    """The machines of a cluster, observed at one time."""

    stack: str
    """The stack's name, for commands."""
    machines: tuple[MachineObservation, ...]

    @property
    def controller(self) -> MachineObservation:
        """The machine of slurmctld. Every cluster has one."""
        return next(machine for machine in self.machines if "controller" in machine.roles)

    @property
    def monitoring(self) -> MachineObservation:
        """The machine of Prometheus and Alertmanager, where the stack has them."""
        own = (machine for machine in self.machines if "monitoring" in machine.roles)
        return next(own, self.controller)

    @property
    def nodes(self) -> tuple[MachineObservation, ...]:
        return tuple(machine for machine in self.machines if "node" in machine.roles)

    def slurm(self, name: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return a part of slurmctld's answers; None if it could not be read."""
        return self.controller.part("slurm", name)

    @cached_property
    def slurm_nodes(self) -> dict[str, Node] | None:
        """Return slurmctld's nodes by name, whose times are UTC; None if they could not be read."""
        rows = self.slurm("nodes")
        return None if rows is None else {name: Node.of(name, row) for name, row in rows.items()}

    @property
    def slurmctld_answers(self) -> bool:
        return bool((self.slurm("ping") or {}).get("up"))


Mends = Literal["mend", "up", "hand"]
NOTHING = "(nothing)"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference between the stack and a machine: where, what, both values, and how to mend it."""

    id: str
    """The kind, in kebab case. Programs rely on it, so it does not change between versions."""
    where: tuple[str, ...]
    """Names of the machines."""
    what: str
    """The object: `slurm.conf, line 12`, `user alice: shell`."""
    stack: str
    there: str
    mends: Mends = "mend"
    """The action that mends it: `./hpc drift --mend`, `./hpc up`, or a manual change on the machine."""
