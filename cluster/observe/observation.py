"""One machine as it was seen: its facts as `scripts/node/collect.py` tells them, or why there are none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What one machine told. Times are seconds since the epoch by the clock of the one who asked."""

    name: str
    roles: tuple[str, ...]
    reached: bool
    """Whether it let us in by SSH."""
    why: str = ""
    """Where it was not reached, or told nothing: why."""
    old: bool = False
    """Whether it told nothing because its set-up is of an earlier version, which `up` makes new."""
    facts: Facts = field(default_factory=dict)
    asked: float = 0.0
    answered: float = 0.0

    def part(self, *path: str) -> Any:  # noqa: ANN401 - any JSON value
        """A part of the facts; None where it is not there or could not be read."""
        found: Any = self.facts
        for name in path:
            if not isinstance(found, Mapping) or name not in found:
                return None
            found = found[name]
        return None if self._unread(found) else found

    def error(self, *path: str) -> str:
        """Why a part could not be read; empty where it could, or is not there at all."""
        found: Any = self.facts
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return str(found["error"]) if self._unread(found) else ""

    @property
    def told(self) -> bool:
        """Whether there are facts."""
        return bool(self.facts)

    @staticmethod
    def _unread(value: object) -> bool:
        return isinstance(value, Mapping) and set(value) == {"error"}


@dataclass(frozen=True, kw_only=True)
class Sights:
    """All machines of a cluster, as they were seen at one time."""

    stack: str
    """What the commands that are advised are to name."""
    machines: tuple[Sight, ...]

    @property
    def controller(self) -> Sight:
        """The machine of slurmctld. Every cluster has one."""
        return next(one for one in self.machines if "controller" in one.roles)

    @property
    def nodes(self) -> tuple[Sight, ...]:
        """The compute nodes."""
        return tuple(one for one in self.machines if "node" in one.roles)

    def slurm(self, name: str) -> Any:  # noqa: ANN401 - any JSON value
        """A part of Slurm's own view; None where it could not be read."""
        return self.controller.part("slurm", name)

    @property
    def slurmctld_answers(self) -> bool:
        """Whether slurmctld does."""
        return bool((self.slurm("ping") or {}).get("up"))
