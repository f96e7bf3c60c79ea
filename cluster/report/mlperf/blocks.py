"""Blocks of training steps: which start belongs to which stop, whatever order a log has them in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from cluster.catalog.mlperf import BENCHMARKS
from cluster.report.mlperf.lines import Event
from cluster.report.mlperf.run import Interval

RANKS_APART_MS = 5000
"""Ranks that write the same event do so within one training step. A run that starts again needs longer."""


class Mark(NamedTuple):
    """A start or a stop of a block."""

    line: int
    time_ms: int
    at: float
    """Training steps done by then, or what Position.unit says."""
    length: int | None = None
    """How many the block has, where its start says so."""


class Position(NamedTuple):
    """How much of the training is done at an event."""

    at: float
    unit: str
    """steps, samples, tokens or epochs."""
    length: int | None = None


def position(event: Event, benchmark: str) -> Position | None:
    """How much of the training is done at an event, as far as it says so.

    Stable Diffusion has `step_num`; newer logs have `step`, or `samples_count` alone. Others have `epoch_num` and
    `first_epoch_num`, which count epochs, samples or tokens (catalog.mlperf.BENCHMARKS). Sources:
    mlperf_logging_utils.py of Stable Diffusion and megatron/training.py of GPT-3 in github.com/mlcommons/training;
    mlperf_common/callbacks/logging.py in github.com/NVIDIA/mlperf-common; logs of github.com/mlcommons/
    training_results_v4.0 to v5.1.
    """
    for name, unit in (("step_num", "steps"), ("step", "steps"), ("samples_count", "samples")):
        at = whole(event.metadata, name)
        if at is not None:
            return Position(at, unit)
    known = BENCHMARKS.get(benchmark)
    unit = known.counts if known else "epochs"
    first = whole(event.metadata, "first_epoch_num")
    if first is not None:
        return Position(first, unit, whole(event.metadata, "epoch_count"))
    at = event.metadata.get("epoch_num")
    return Position(float(at), unit) if isinstance(at, int | float) and 0 <= at < 10**15 else None


def whole(among: Mapping[str, object], name: str) -> int | None:
    """A whole number of metadata."""
    value = among.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15 else None


@dataclass
class Blocks:
    """Starts and stops of one run."""

    starts: dict[float, Mark] = field(default_factory=dict)
    stops: dict[float, Mark] = field(default_factory=dict)
    repeated: int = 0
    """Events that another rank had written already."""
    again: list[str] = field(default_factory=list)
    """Sentences on steps that were trained twice."""

    def begins_again(self, event: Event, at: float) -> bool:
        """Whether a start is that of another run: these steps were begun before, and all that is known is older."""
        before = self.starts.get(at) if event.key == "block_start" else None
        if before is None or event.time_ms - before.time_ms <= RANKS_APART_MS:
            return False
        return event.time_ms > max(mark.time_ms for mark in (*self.starts.values(), *self.stops.values()))

    def add(self, event: Event, at: float, length: int | None = None) -> None:
        """Take in a start or a stop; the first of several ranks counts."""
        marks = self.starts if event.key == "block_start" else self.stops
        before = marks.get(at)
        if before is None:
            marks[at] = Mark(event.line, event.time_ms, at, length)
        elif abs(event.time_ms - before.time_ms) <= RANKS_APART_MS:
            self.repeated += 1
        else:
            self.again.append(f"line {event.line} repeats {event.key} of line {before.line}, and is left out")

    def intervals(self, last: float | None) -> tuple[list[Interval], list[str]]:
        """The blocks that have both ends, in the order of steps, and sentences on the others. `last`: what was trained
        at the end, for a last block that says nothing else."""
        notes = list(self.again)
        stops = [stop for mark in self.stops.values() if (stop := self._placed(mark, last))]
        marks = sorted([(mark.at, 1, mark) for mark in self.starts.values()] + [(mark.at, 0, mark) for mark in stops])
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
        return found, notes + _out_of_order((*self.starts.values(), *stops))

    def _placed(self, stop: Mark, last: float | None) -> Mark | None:
        """A stop at the end of its block: some logs write there where the block began. None: nothing says where."""
        start = self.starts.get(stop.at)
        if not self._named_by_starts or start is None:
            return stop
        following = min((at for at in self.starts if at > stop.at), default=None)
        counted = stop.at + (start.length or stop.length or 0)
        ends = [end for end in (counted, following) if end is not None and end > stop.at]
        ends = ends or [end for end in (last,) if end is not None and end > stop.at]
        return stop._replace(at=min(ends)) if ends else None

    @property
    def _named_by_starts(self) -> bool:
        """Whether stops have the position of their block's start: the first one has, and comes after it."""
        if not self.starts or not self.stops:
            return False
        first = min(self.stops)
        start, stop = self.starts.get(first), self.stops[first]
        return start is not None and start.line < stop.line and start.time_ms < stop.time_ms


def _out_of_order(marks: Iterable[Mark]) -> list[str]:
    by_step = sorted(marks, key=lambda mark: (mark.at, mark.line))
    moved = [later.line for earlier, later in pairwise(by_step) if later.line < earlier.line]
    return [f"blocks are out of order at line {min(moved)}; they are sorted by their steps"] if moved else []
