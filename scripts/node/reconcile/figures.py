"""Figures of each repair: the course of every node that a health check has drained, until jobs may return to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconcile.decision import Case, Repair, World

STEPS = ("reset", "report", "replace")


@dataclass(frozen=True)
class Course:
    """The stage of a node's repair: since when the fault is known, when the loop saw the node drained, when the last
    job had ended, when the checks had passed again; 0 is not yet."""

    reason: str
    found: float
    drained: float
    free: float = 0.0
    mended: float = 0.0


def follow(before: Mapping[str, Course], world: World) -> tuple[dict[str, Course], list[dict[str, Any]]]:
    """The courses as they are now, and a line of the journal for each that has ended. A pure function."""
    found: dict[str, Course] = {}
    ended: list[dict[str, Any]] = []
    for name, node in world.nodes.items():
        case, last = Case(world, name), before.get(name)
        out = case.sick or case.new
        if not out and not last:
            continue
        course = last or Course(case.reason, world.now, world.now)
        if out and case.health and not course.free and 0 < case.health.found < course.found:
            course = replace(course, found=case.health.found)
        if not course.free and not case.busy:
            course = replace(course, free=world.now)
        if out:
            # A measurement that fails begins it again.
            course = replace(course, mended=(course.mended or world.now) if case.sound else 0.0)
        elif not node.states & {"DRAIN", "DOWN", "FAIL", "MAINTENANCE"}:
            ended.append(_row(name, course, world))
            continue
        found[name] = course
    return found, ended


def _row(name: str, course: Course, world: World) -> dict[str, Any]:
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
