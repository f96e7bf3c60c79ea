"""The record that the reconcile loop keeps from pass to pass, and in it the course of each repair."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reconcile.world import BadHost, Case, Cooling, Pending, Repair, StateAge, World
from system.host import read_json

STEPS = ("reset", "report", "replace")
AWAY_SECONDS = 180  # without a pass: the controller was off, slurmctld or the API did not answer, or the clock was set
NOTE_SECONDS = 60  # between two notes of the time of a pass


@dataclass(frozen=True)
class Course:
    """The course of a node's repair: the times at which the fault was found, the loop read that the node is drained,
    the last job had ended, and the checks had passed again; 0 is not yet."""

    reason: str
    found: float
    drained: float
    free: float = 0.0
    mended: float = 0.0


_TYPES = {
    "seen": StateAge,
    "pending": Pending,
    "created": Pending,
    "cooling": Cooling,
    "repairs": Repair,
    "hosts": BadHost,
    "courses": Course,
}


@dataclass
class Record:
    """The record that the loop keeps from pass to pass. A killed loop goes on from it."""

    seen: dict[str, StateAge] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    created: dict[str, Pending] = field(default_factory=dict)
    """The last creation of each node's machine, until the node has joined."""
    cooling: dict[str, Cooling] = field(default_factory=dict)
    retry: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    serial: dict[str, int] = field(default_factory=dict)
    repairs: dict[str, Repair] = field(default_factory=dict)
    hosts: dict[str, BadHost] = field(default_factory=dict)
    courses: dict[str, Course] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    """The time since which repaired nodes wait for another node to be measured with."""
    actions: list[float] = field(default_factory=list)
    boots: dict[str, int] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    passed: float = 0.0
    """The time of the last pass, within NOTE_SECONDS."""
    awake: float = 0.0
    """The time since which passes have been made without a break."""

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Return the record at `path`; an empty one where there is none, or it is of another version."""
        document = read_json(path, {})
        try:
            for name, row_type in _TYPES.items():
                document[name] = {key: row_type(**value) for key, value in document.get(name, {}).items()}
            return cls(**document)
        except (TypeError, AttributeError):
            return cls()

    def note_pass(self, now: float) -> None:
        """Note the time of a pass that read Slurm and the cloud. After a break, ages of states begin again: what
        happened meanwhile is unknown, and slurmctld, which may have been off too, waits for its nodes again. They begin
        again also after the clock was set back."""
        if now < self.passed:
            self.retry, self.cooling = {}, {}
            self.pending = {name: replace(row, began=min(row.began, now)) for name, row in self.pending.items()}
            self.actions = [min(at, now) for at in self.actions]
        if not 0 <= now - self.passed <= AWAY_SECONDS:
            self.awake = self.passed = now
        elif now - self.passed >= NOTE_SECONDS:
            self.passed = now

    def text(self) -> str:
        # Each pass writes it, and `asdict` would copy all of it first.
        return json.dumps(vars(self), default=vars, sort_keys=True) + "\n"


def follow_repairs(before: Mapping[str, Course], world: World) -> tuple[dict[str, Course], list[dict[str, Any]]]:
    """Return the courses of repairs as they are now, and a row of the journal for each that has ended. A pure
    function."""
    courses: dict[str, Course] = {}
    ended: list[dict[str, Any]] = []
    for name, node in world.nodes.items():
        case, last = Case(world, name), before.get(name)
        out = case.sick or case.new
        if not out and not last:
            continue
        course = last or Course(case.reason, world.now, world.now)
        if out and not course.free and 0 < case.health.found < course.found:
            course = replace(course, found=case.health.found)
        if not course.free and not case.busy:
            course = replace(course, free=world.now)
        if out:
            # After a measurement that fails, the checks have to pass again.
            course = replace(course, mended=(course.mended or world.now) if case.sound else 0.0)
        elif not node.states & {"DRAIN", "DOWN", "FAIL", "MAINTENANCE"}:
            ended.append(_journal_row(name, course, world))
            continue
        courses[name] = course
    return courses, ended


def _journal_row(name: str, course: Course, world: World) -> dict[str, Any]:
    repair = world.repairs.get(name, Repair())
    free = course.free or world.now
    mended = max(course.mended or world.now, free)
    seconds = {
        "detect": course.drained - course.found,
        "drain": free - course.drained,
        "mend": mended - free,
        "return": world.now - mended,
    }
    return {
        "rule": "repaired",
        "nodes": [name],
        "reason": course.reason,
        "steps": [step for step in STEPS if getattr(repair, step) >= course.drained],
        "seconds": {key: round(value) for key, value in seconds.items()},
    }
