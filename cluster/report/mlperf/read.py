"""Reads the runs of a log."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import BinaryIO

from cluster.catalog.mlperf import BENCHMARKS
from cluster.printable import one_line
from cluster.report.mlperf import lines
from cluster.report.mlperf.blocks import RANKS_APART_MS, Blocks, Mark, Position, position, whole
from cluster.report.mlperf.lines import Event, Text, Unreadable, scan
from cluster.report.mlperf.run import Evaluation, Interval, Run

_PREAMBLE = ("cache_clear", "init_start", "submission_benchmark", "run_start")
"""Events before training: the first of them begins a run."""
_PHASES = ("epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "eval_stop", "run_start", "run_stop")
_AT_ONCE_MS = 100
_MOST_NOTES = 10
_LARGEST = 1e300
_MEMBER = re.compile(r"[0-9]{1,7}/([0-9]{1,7})(?![0-9])")
_ITERATION = re.compile(r" iteration +([0-9]{1,9})/.* elapsed time per iteration \(ms\): ([0-9]{1,12}(?:\.[0-9]+)?)")
_GPUS = re.compile(r"GA100-([0-9]{1,7})")
"""`submission_platform` of Megatron-LM, whatever the GPUs are (megatron/training.py)."""


class NoLog(ValueError):  # noqa: N818 - reads as what it says
    """What was read is no log of MLPerf; the text says what it is instead."""


@dataclass(frozen=True)
class Log:
    """A log."""

    runs: tuple[Run, ...]
    notes: tuple[str, ...]
    """What is wrong with lines that belong to no run, as sentences."""


def read(log: BinaryIO) -> Log:
    """Read the runs of a log. Raises NoLog: it has no event of MLPerf."""
    begin = log.read(4096)
    log.seek(0)
    runs: list[_Builder] = []
    unreadable: list[Unreadable] = []
    for found in scan(log):
        if isinstance(found, Unreadable):
            unreadable.append(found)
        elif isinstance(found, Text):
            if runs:
                runs[-1].add_text(found)
        elif not runs or not runs[-1].add(found):
            runs.append(_Builder(found.line, found.time_ms))
            runs[-1].add(found)
    if not runs:
        raise NoLog(_what_else(begin, unreadable))
    return Log(tuple(run.finish() for run in runs), tuple(_not_read(unreadable)))


def _what_else(begin: bytes, unreadable: list[Unreadable]) -> str:
    if not begin:
        return "is empty"
    if begin.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00")):
        return "is compressed: decompress it first"
    if b"\0" in begin:
        return "is a binary file, not the text of a log"
    if unreadable:
        first = unreadable[0]
        return f"has {len(unreadable)} lines with :::MLLOG, and none can be read: in line {first.line}, {first.reason}"
    return "has no line with :::MLLOG: it is no log of an MLPerf benchmark, or the job stopped before its first event"


def _not_read(unreadable: list[Unreadable]) -> list[str]:
    if not unreadable:
        return []
    first, more = unreadable[0], len(unreadable) - 1
    also = f", and {more} more lines" if more else ""
    return [f"line {first.line} is left out{also}: {first.reason}"]


@dataclass
class _Builder:
    """A run, as far as it is read."""

    line: int
    started_ms: int
    blocks: dict[int | None, Blocks] = field(default_factory=dict)
    """By the task that wrote them."""
    keys: "Counter[str]" = field(default_factory=Counter)
    tasks: set[int] = field(default_factory=set)
    run_start_ms: int | None = None
    benchmark: str = ""
    batch: int | None = None
    sequence: int | None = None
    world: int | None = None
    trained: int | None = None
    unit: str = ""
    """Of the positions of blocks."""
    last: float | None = None
    """The furthest position of an evaluation or of the end, in that unit."""
    epochs: dict[float, Mark] = field(default_factory=dict)
    """Epochs that have begun."""
    epoch_stop_ms: int = 0
    """When the last one ended."""
    run_stop_ms: int = 0
    phases: dict[str, list[tuple[Interval, str]]] = field(default_factory=lambda: {"epochs": [], "evaluations": []})
    """Epochs, and what was trained between evaluations, each with its unit. Epochs first: where training goes on during
    an evaluation, the time from its end to the next one is too short."""
    trains: Mark | None = None
    """Where training began, or went on after an evaluation."""
    status: str = ""
    seconds: int | None = None
    evaluations: dict[tuple[int | None, float | None, str, float], Evaluation] = field(default_factory=dict)
    throughput: list[float] = field(default_factory=list)
    step_ms: dict[int, float] = field(default_factory=dict)
    unplaced: list[int] = field(default_factory=list)
    """Lines of blocks that do not say which steps they are about."""

    def add(self, event: Event) -> bool:
        """Take in an event, unless it is of the next run."""
        if event.key in ("block_start", "block_stop"):
            # Stable Diffusion has blocks of validation as well.
            return event.value not in (None, "training_step") or self._add_block(event)
        if event.key in _PHASES:
            self._add_phase(event)
        if event.key in _PREAMBLE and self._begins_again(event):
            return False
        self._add_other(event)
        return True

    def _begins_again(self, event: Event) -> bool:
        first_ms = (mark.time_ms for one in self.blocks.values() for mark in one.starts.values())
        begun = self.run_start_ms if self.run_start_ms is not None else min(first_ms, default=None)
        return begun is not None and event.time_ms > begun + RANKS_APART_MS

    def _add_block(self, event: Event) -> bool:
        at = position(event, self.benchmark)
        if at is None or (self.unit and at.unit != self.unit):
            self.unplaced.append(event.line)
            return True
        blocks = self.blocks.get(event.task)
        if blocks is None:
            blocks = self.blocks[event.task] = Blocks()
        elif blocks.begins_again(event, at.at):
            return False
        if event.task is not None:
            self.tasks.add(event.task)
        self.unit = at.unit
        blocks.add(event, at.at, at.length)
        return True

    def _add_phase(self, event: Event) -> None:
        """Take in what else divides the training: epochs, and evaluations. The first of several ranks counts."""
        at = position(event, self.benchmark)
        if at is None:
            if event.key not in ("run_start", "run_stop"):
                return
            at = Position(0, "")
        if at.unit == self.unit:
            self.last = max(at.at, self.last or 0)
        mark = Mark(event.line, event.time_ms, at.at)
        if event.key == "epoch_start":
            self.epochs.setdefault(at.at, mark)
        elif event.key == "epoch_stop":
            self.epoch_stop_ms = event.time_ms
            if (begun := self.epochs.get(at.at)) and mark.time_ms > begun.time_ms:
                self._phase("epochs", begun, mark._replace(at=at.at + 1), "epochs")
        elif event.key == "eval_start":
            if self.trains and at.at > self.trains.at and mark.time_ms > self.trains.time_ms:
                self._phase("evaluations", self.trains, mark, at.unit)
                self.trains = None
        elif event.key == "run_stop":
            self.run_stop_ms = event.time_ms
        else:
            self.trains = mark

    def _phase(self, kind: str, begun: Mark, end: Mark, unit: str) -> None:
        done = self.phases[kind]
        if not done or done[-1][0].last < end.at:
            interval = Interval(first=begun.at, last=end.at, ms=end.time_ms - begun.time_ms, line=begun.line)
            done.append((interval, unit))

    def _add_other(self, event: Event) -> None:
        self.keys[event.key] += 1
        if event.task is not None:
            self.tasks.add(event.task)
        if event.key == "run_start":
            self.run_start_ms = event.time_ms if self.run_start_ms is None else self.run_start_ms
        elif event.key == "submission_benchmark":
            self.benchmark = one_line(str(event.value)[:100])
        elif event.key == "submission_platform" and (gpus := _GPUS.match(str(event.value)[:100])):
            self.world = int(gpus[1])
        elif event.key in ("global_batch_size", "max_sequence_length", "trained_samples"):
            value = whole({"": event.value}, "")
            name = {"global_batch_size": "batch", "max_sequence_length": "sequence"}.get(event.key, "trained")
            setattr(self, name, value or getattr(self, name))
        elif event.key in ("run_stop", "status"):
            given = event.value if event.key == "status" else event.metadata.get("status")
            self.status = str(given)[:20] if given else self.status
        elif event.key == "eval_accuracy":
            self._add_evaluation(event)
        elif event.key == "tracked_stats" and isinstance(event.value, dict):
            found = _number(event.value.get("throughput"))
            self.throughput += [found] if found is not None and found > 0 else []

    def _add_evaluation(self, event: Event) -> None:
        value = _number(event.value)
        if value is None:
            return
        known = BENCHMARKS.get(self.benchmark)
        metric = str(event.metadata.get("metric") or (known.metric if known else "eval_accuracy"))[:40]
        at, step, epoch = position(event, self.benchmark), None, None
        if at and at.unit == "epochs":
            epoch = at.at
        elif at and (size := self._size(at.unit)):
            step = int(at.at // size)
        self.evaluations[step, epoch, metric, value] = Evaluation(step=step, metric=metric, value=value, epoch=epoch)

    def add_text(self, found: Text) -> None:
        """Take in a line that is no event."""
        if found.kind == lines.MEMBER and (ranks := _MEMBER.match(found.text)):
            self.world = int(ranks[1])
        elif found.kind == lines.ITERATION and (step := _ITERATION.search(f" {found.text}")):
            self.step_ms[int(step[1])] = float(step[2])
        elif found.kind == lines.RESULT:
            numbers = [one for one in found.text.split(",")[1:3] if one.isascii() and one.isdigit() and len(one) < 10]
            self.seconds = int(numbers[0]) if numbers else self.seconds

    def finish(self) -> Run:
        """The run."""
        chosen = min(self.blocks, key=lambda task: -1 if task is None else task, default=None)
        blocks = self.blocks.get(chosen, Blocks())
        intervals, notes = blocks.intervals(self.trained or self.last)
        repeated = blocks.repeated + sum(
            len(one.starts) + len(one.stops) for task, one in self.blocks.items() if task != chosen
        )
        if repeated:
            whose = "of the first rank" if chosen is None else f"of task {chosen}"
            notes.append(f"several ranks wrote blocks: those {whose} count, {repeated} others are left out")
        if self.unplaced:
            notes.append(f"line {self.unplaced[0]} has no step: {len(self.unplaced)} such events are left out")
        ended = bool(self.keys["run_stop"]) or self.seconds is not None or bool(self.status)
        if not ended:
            notes.append("the log has no end of this run: it goes on still, or was stopped")
        unit = self.unit or "steps"
        epochs = self.phases["epochs"]
        if len(epochs) > 1 and abs(self.run_stop_ms - self.epoch_stop_ms) < _AT_ONCE_MS:
            epochs.pop()  # an evaluation beside it reached the target, and the run ended within the epoch
        if len(intervals) < 2 and not self.step_ms:
            kind, others = max(self.phases.items(), key=lambda pair: len(pair[1]), default=("", []))
            if len(others) > len(intervals):
                intervals, unit = [interval for interval, _ in others], others[0][1]
                what = "epochs" if kind == "epochs" else "the training between evaluations"
                notes.append(f"intervals are {what}: the log has no blocks of steps")
        unit, intervals = self._in_steps(intervals, unit)
        cut = notes[:_MOST_NOTES] + ([f"and {len(notes) - _MOST_NOTES} more"] if len(notes) > _MOST_NOTES else [])
        each = self.keys["init_start"]  # cache_clear is once a node, in some logs beside once a rank
        return Run(
            line=self.line, started_ms=self.started_ms, benchmark=self.benchmark, batch=self.batch,
            ranks=self.world or (each if each > 1 else None), labelled=len(self.tasks), intervals=tuple(intervals),
            evaluations=tuple(self.evaluations.values()), step_ms=tuple(sorted(self.step_ms.items())),
            throughput=tuple(self.throughput), status=self.status, ended=ended, seconds=self.seconds, unit=unit,
            notes=tuple(cut),
        )  # fmt: skip

    def _size(self, unit: str) -> int | None:
        """How many of a unit are in one step, if the log says so."""
        sizes = {"steps": 1, "samples": self.batch, "tokens": (self.batch or 0) * (self.sequence or 0)}
        return sizes.get(unit) or None

    def _in_steps(self, intervals: list[Interval], unit: str) -> tuple[str, list[Interval]]:
        size = self._size(unit)
        ends = {end for one in intervals for end in one[:2]}
        if size is None or (unit == "samples" and any(end % size for end in ends)):
            return unit, intervals
        return "steps", [one._replace(first=int(one.first // size), last=int(one.last // size)) for one in intervals]


def _number(value: object) -> float | None:
    """A number of JSON; None for anything else, for what is not finite, and for what no float can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _LARGEST else None
