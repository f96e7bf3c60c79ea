"""Lines of logs, in the order in which they were written on several machines."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

# Slurm writes [2026-11-21T05:43:25.538], the journal 2026-11-21T05:43:26.796289+0000, MUNGE 2026-11-21 05:43:24 +0000.
# Cut to the second's fraction: all of them stand in the machine's own time.
_TIME = re.compile(r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")


@dataclass(frozen=True, order=True)
class Line:
    """One line; ordered by its time, then by its place among those of its machine."""

    time: str
    place: int
    machine: str
    text: str


def stamp(text: str) -> str:
    """The time that a line begins with, in a form that sorts; empty if it begins with none."""
    match = _TIME.match(text)
    return f"{match[1]}T{match[2]}.{(match[3] or '').ljust(6, '0')}" if match else ""


class Clock:
    """Gives the lines of one machine their times: one without any belongs to the line before it."""

    def __init__(self, machine: str) -> None:
        self._machine, self._time, self._place = machine, "", 0

    def line(self, text: str) -> Line:
        # Never back: what a machine wrote later stays later, also where its clock was set.
        self._time = max(self._time, stamp(text))
        self._place += 1
        return Line(self._time, self._place, self._machine, text)


def merged(logs: Mapping[str, Iterable[str]]) -> list[Line]:
    """The lines of several machines in one order; those of each keep theirs."""

    def lines() -> Iterator[Line]:
        for machine, texts in logs.items():
            clock = Clock(machine)
            yield from (clock.line(text) for text in texts)

    return sorted(lines())
