"""Reads the runs of a log."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import BinaryIO

from cluster.printable import one_line
from cluster.report.mlperf import lines
from cluster.report.mlperf.blocks import RANKS_APART_MS, Blocks, position, whole
from cluster.report.mlperf.lines import Event, Text, Unreadable, scan
from cluster.report.mlperf.run import Evaluation, Interval, Run

_PREAMBLE = ("cache_clear", "init_start", "submission_benchmark", "run_start")
"""Events before training: the first of them begins a run."""
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
    tokens: bool = False
    status: str = ""
    seconds: int | None = None
    evaluations: dict[tuple[int | None, str, float], Evaluation] = field(default_factory=dict)
    throughput: list[float] = field(default_factory=list)
    step_ms: dict[int, float] = field(default_factory=dict)
    unplaced: list[int] = field(default_factory=list)
    """Lines of blocks that do not say which steps they are about."""

    def add(self, event: Event) -> bool:
        """Take in an event, unless it is of the next run."""
        if event.key in ("block_start", "block_stop"):
            # Stable Diffusion has blocks of validation as well.
            return event.value not in (None, "training_step") or self._add_block(event)
        if event.key in _PREAMBLE and self._begins_again(event):
            return False
        self._add_other(event)
        return True

    def _begins_again(self, event: Event) -> bool:
        first_ms = (mark.time_ms for one in self.blocks.values() for mark in one.starts.values())
        begun = self.run_start_ms if self.run_start_ms is not None else min(first_ms, default=None)
        return begun is not None and event.time_ms > begun + RANKS_APART_MS

    def _add_block(self, event: Event) -> bool:
        at = position(event, self.trained)
        if at is None:
            self.unplaced.append(event.line)
            return True
        blocks = self.blocks.get(event.task)
        if blocks is None:
            blocks = self.blocks[event.task] = Blocks()
        elif blocks.begins_again(event, at[0]):
            return False
        if event.task is not None:
            self.tasks.add(event.task)
        self.tokens |= at[1]
        blocks.add(event, at[0])
        return True

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
        metric = str(event.metadata.get("metric") or "log perplexity")[:40]
        step = whole(event.metadata, "step_num")
        tokens = whole(event.metadata, "epoch_num")
        if step is None and tokens is not None and self.batch and self.sequence:
            step = tokens // (self.batch * self.sequence)
        self.evaluations[step, metric, value] = Evaluation(step=step, metric=metric, value=value)

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
        intervals, notes = blocks.intervals()
        repeated = blocks.repeated + sum(
            len(one.starts) + len(one.stops) for task, one in self.blocks.items() if task != chosen
        )
        if repeated:
            whose = "of the first rank" if chosen is None else f"of task {chosen}"
            notes.append(f"several ranks wrote blocks: those {whose} count, {repeated} others are left out")
        if self.unplaced:
            notes.append(f"line {self.unplaced[0]} has no step_num: {len(self.unplaced)} such events are left out")
        ended = bool(self.keys["run_stop"]) or self.seconds is not None or bool(self.status)
        if not ended:
            notes.append("the log has no end of this run: it goes on still, or was stopped")
        unit, intervals = self._in_steps(intervals)
        cut = notes[:_MOST_NOTES] + ([f"and {len(notes) - _MOST_NOTES} more"] if len(notes) > _MOST_NOTES else [])
        each = max(self.keys["init_start"], self.keys["cache_clear"])
        return Run(
            line=self.line, started_ms=self.started_ms, benchmark=self.benchmark, batch=self.batch,
            ranks=self.world or (each if each > 1 else None), labelled=len(self.tasks), intervals=tuple(intervals),
            evaluations=tuple(self.evaluations.values()), step_ms=tuple(sorted(self.step_ms.items())),
            throughput=tuple(self.throughput), status=self.status, ended=ended, seconds=self.seconds, unit=unit,
            notes=tuple(cut),
        )  # fmt: skip

    def _in_steps(self, intervals: list[Interval]) -> tuple[str, list[Interval]]:
        if not self.tokens:
            return "steps", intervals
        if not self.batch or not self.sequence:
            return "tokens", intervals
        size = self.batch * self.sequence
        return "steps", [
            Interval(first=one.first // size, last=one.last // size, ms=one.ms, line=one.line) for one in intervals
        ]


def _number(value: object) -> float | None:
    """A number of JSON; None for anything else, for what is not finite, and for what no float can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _LARGEST else None
