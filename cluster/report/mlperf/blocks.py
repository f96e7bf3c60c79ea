"""Blocks of training steps: which start belongs to which stop, whatever order a log has them in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from cluster.report.mlperf.lines import Event
from cluster.report.mlperf.run import Interval

RANKS_APART_MS = 5000
"""Ranks that write the same event do so within one training step. A run that starts again needs longer."""


class Mark(NamedTuple):
    """A start or a stop of a block."""

    line: int
    time_ms: int
    at: int
    """Training steps, or tokens, done by then."""


def position(event: Event, trained: int | None) -> tuple[int, bool] | None:
    """How much of the training is done at an event, and whether that is in tokens (else in steps).

    Stable Diffusion has `step_num`, newer logs `step`, GPT-3 `first_epoch_num`: tokens at the beginning of the block,
    also for its end, which is `epoch_count` tokens later. Megatron-LM leaves that out and writes `trained` before it.
    Sources: mlperf_logging_utils.py of Stable Diffusion and megatron/training.py of GPT-3 in
    github.com/mlcommons/training; mlperf_common/callbacks/logging.py in github.com/NVIDIA/mlperf-common.
    """
    for name in ("step_num", "step"):
        step = whole(event.metadata, name)
        if step is not None:
            return step, False
    first = whole(event.metadata, "first_epoch_num")
    if first is None:
        return None
    if event.key == "block_start":
        return first, True
    count = whole(event.metadata, "epoch_count")
    end = trained if count is None else first + count
    return None if end is None else (end, True)


def whole(among: Mapping[str, object], name: str) -> int | None:
    """A whole number of metadata."""
    value = among.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15 else None


@dataclass
class Blocks:
    """Starts and stops of one run."""

    starts: dict[int, Mark] = field(default_factory=dict)
    stops: dict[int, Mark] = field(default_factory=dict)
    repeated: int = 0
    """Events that another rank had written already."""
    again: list[str] = field(default_factory=list)
    """Sentences on steps that were trained twice."""

    def begins_again(self, event: Event, at: int) -> bool:
        """Whether a start is that of another run: these steps were begun before, and all that is known is older."""
        before = self.starts.get(at) if event.key == "block_start" else None
        if before is None or event.time_ms - before.time_ms <= RANKS_APART_MS:
            return False
        return event.time_ms > max(mark.time_ms for mark in (*self.starts.values(), *self.stops.values()))

    def add(self, event: Event, at: int) -> None:
        """Take in a start or a stop; the first of several ranks counts."""
        marks = self.starts if event.key == "block_start" else self.stops
        before = marks.get(at)
        if before is None:
            marks[at] = Mark(event.line, event.time_ms, at)
        elif abs(event.time_ms - before.time_ms) <= RANKS_APART_MS:
            self.repeated += 1
        else:
            self.again.append(f"line {event.line} repeats {event.key} of line {before.line}, and is left out")

    def intervals(self) -> tuple[list[Interval], list[str]]:
        """The blocks that have both ends, in the order of steps, and sentences on the others."""
        notes = list(self.again)
        marks = sorted(
            [(mark.at, 1, mark) for mark in self.starts.values()] + [(mark.at, 0, mark) for mark in self.stops.values()]
        )
        found: list[Interval] = []
        start: Mark | None = None
        for _, is_start, mark in marks:
            if is_start:
                if start is not None:
                    notes.append(f"line {start.line} starts a block at {start.at} that has no block_stop")
                start = mark
            elif start is None:
                notes.append(f"line {mark.line} stops a block at {mark.at} that has no block_start")
            else:
                ms = mark.time_ms - start.time_ms
                if ms > 0:
                    found.append(Interval(first=start.at, last=mark.at, ms=ms, line=start.line))
                else:
                    notes.append(
                        f"time goes back between line {start.line} and line {mark.line} ({ms} ms): "
                        f"block {start.at}-{mark.at} is left out"
                    )
                start = None
        if start is not None:
            what = f"line {start.line} starts it at {start.at}, and no block_stop follows"
            notes.append(f"the log ends within a block: {what}")
        return found, notes + _out_of_order((*self.starts.values(), *self.stops.values()))


def _out_of_order(marks: Iterable[Mark]) -> list[str]:
    by_step = sorted(marks, key=lambda mark: (mark.at, mark.line))
    moved = [later.line for earlier, later in pairwise(by_step) if later.line < earlier.line]
    return [f"blocks are out of order at line {min(moved)}; they are sorted by their steps"] if moved else []
