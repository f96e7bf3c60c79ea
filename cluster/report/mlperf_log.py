"""Reads logs of MLPerf training: their runs, the blocks of training steps, and evaluations."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import BinaryIO, NamedTuple

from cluster.catalog.mlperf import BENCHMARKS
from cluster.printable import one_line

MARK = b":::MLLOG"
RESULT = b"RESULT,"
"""`RESULT,stable_diffusion,SECONDS,USER,START`: the last line of a run (run_and_time.sh of the benchmark)."""
MEMBER = b" MEMBER: "
"""`Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/16`: a line of PyTorch Lightning, with the number of ranks."""
ITERATION = b" elapsed time per iteration (ms): "
"""A line of Megatron-LM for each iteration, as its events only have the beginning and the end of training."""
PATTERNS = (MARK, RESULT, MEMBER, ITERATION)
_KEYS = frozenset(
    b"block_start block_stop cache_clear epoch_start epoch_stop eval_accuracy eval_start eval_stop global_batch_size "
    b"init_start max_sequence_length run_start run_stop status submission_benchmark submission_platform tracked_stats "
    b"trained_samples".split()
)
"""Keys of the events that a report needs; others are not parsed."""
_CHUNK = 256 * 1024
_LONGEST = 64 * 1024
"""Bytes of a line that are parsed. Events have less than 1 KiB."""
_KEY_WITHIN = 250
"""Bytes of an event in which its key is found."""
_LATEST_MS = 10**14
_KEY = re.compile(rb'"key": "([^"]*)"')
_ANY_PATTERN = re.compile(b"|".join(map(re.escape, PATTERNS)))
_DECODER = json.JSONDecoder()
RANKS_APART_MS = 5000
"""Ranks write the same event within one training step. A run that starts again takes longer."""
_PREAMBLE = ("cache_clear", "init_start", "submission_benchmark", "run_start")
"""Events before training. The first of them begins a run."""
_PHASES = ("epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "eval_stop", "run_start", "run_stop")
_AT_ONCE_MS = 100
_MOST_NOTES = 10
_LARGEST = 1e300
_MEMBER = re.compile(r"[0-9]{1,7}/([0-9]{1,7})(?![0-9])")
_ITERATION = re.compile(r" iteration +([0-9]{1,9})/.* elapsed time per iteration \(ms\): ([0-9]{1,12}(?:\.[0-9]+)?)")
_SECONDS = re.compile(r"[^,]*,(?:[^,]*,)??([0-9]{1,9})(?:,|$)")
"""The duration: the first or second field after the benchmark's name."""
_GPUS = re.compile(r"GA100-([0-9]{1,7})")
"""`submission_platform` of Megatron-LM, whatever the GPUs are (megatron/training.py)."""


class Interval(NamedTuple):
    """A part of training between two events of a log."""

    first: float
    """Position at its beginning, in MlperfRun.unit."""
    last: float
    """Position at its end."""
    ms: int
    """The duration."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A measurement of the model's quality."""

    step: int | None
    metric: str
    value: float
    epoch: float | None = None
    """The epoch, if the log has no steps."""


@dataclass(frozen=True, kw_only=True)
class MlperfRun:
    """A run of MLPerf."""

    line: int
    """The line of its first event."""
    started_ms: int
    """Time of its first event, in milliseconds since 1970 (UTC)."""
    benchmark: str
    """The name in the log, such as `stable_diffusion`; empty if the log does not have it."""
    batch: int | None
    """Samples of one training step, on all GPUs (`global_batch_size`)."""
    ranks: int | None
    """Processes of the run, one for each GPU."""
    intervals: tuple[Interval, ...]
    evaluations: tuple[Evaluation, ...]
    step_ms: tuple[tuple[int, float], ...]
    """Iterations of Megatron-LM: number, duration."""
    throughput: tuple[float, ...]
    """Rates in the log; for GPT-3 tokens per second."""
    status: str
    """`success` or `aborted`; empty if the log does not have it."""
    seconds: int | None
    """The duration of the whole run, by its RESULT line."""
    unit: str
    """The unit of Interval.first and .last: `steps`; `samples` or `tokens` if the batch size does not divide them into
    steps; `epochs` if the log has nothing else."""
    notes: tuple[str, ...]
    """Problems of the log, as sentences."""

    @property
    def title(self) -> str:
        """Name of the benchmark."""
        known = BENCHMARKS.get(self.benchmark)
        return known.title if known else self.benchmark or "an unknown benchmark"


class Event(NamedTuple):
    """An event of a log."""

    line: int
    task: int | None
    """Number of the task, if `srun --label` wrote it."""
    time_ms: int
    key: str
    value: object
    metadata: Mapping[str, object]


class Text(NamedTuple):
    """A line of a run that is no event."""

    kind: bytes
    """RESULT, MEMBER or ITERATION."""
    text: str
    """The whole line for ITERATION, else the rest of the line."""


class Unreadable(NamedTuple):
    """An event that can't be parsed."""

    line: int
    reason: str


def scan(log: BinaryIO) -> Iterator[Event | Text | Unreadable]:
    """Yield events and other useful lines, in the order of the file."""
    for line, raw in _lines(log):
        if not any(pattern in raw for pattern in PATTERNS):  # many times faster than the expression
            continue
        for match in _ANY_PATTERN.finditer(raw):
            rest = raw[match.end() :][:_LONGEST]
            if match[0] != MARK:
                text = raw if match[0] == ITERATION else rest
                yield Text(match[0], text.decode("utf-8", "replace").strip())
            elif (key := _KEY.search(rest[:_KEY_WITHIN])) is None or key[1] in _KEYS:
                yield _event(line, _task(raw[: match.start()]), rest.decode("utf-8", "replace"))


def _lines(log: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines, without chunks of the file that have no pattern: most of a large log is NCCL's output."""
    number = 1
    while chunk := log.read(_CHUNK) + log.readline(_CHUNK):
        if any(pattern in chunk for pattern in PATTERNS):
            yield from enumerate(chunk.split(b"\n"), number)
        number += chunk.count(b"\n")


def _task(before: bytes) -> int | None:
    """Return the task that `srun --label` wrote before a line: `12: ` or ` 3: `."""
    label, colon, _ = before[:16].partition(b":")
    label = label.strip()
    return int(label) if colon and label.isdigit() and len(label) < 8 else None


def _event(line: int, task: int | None, text: str) -> Event | Unreadable:
    text = text.lstrip()
    try:
        row, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        reason = "is cut short" if text.startswith("{") else "has no JSON object"
        return Unreadable(line, f"{MARK.decode()} {reason}")
    if not isinstance(row, dict) or not isinstance(row.get("key"), str):
        return Unreadable(line, f"{MARK.decode()} has no key")
    time_ms = row.get("time_ms")
    if isinstance(time_ms, bool) or not isinstance(time_ms, int | float) or not 0 <= time_ms < _LATEST_MS:
        return Unreadable(line, f"{MARK.decode()} has no time_ms")
    metadata = row.get("metadata")
    return Event(line, task, int(time_ms), row["key"], row.get("value"), metadata if isinstance(metadata, dict) else {})


class Mark(NamedTuple):
    """A start or a stop of a block."""

    line: int
    time_ms: int
    at: float
    """Position in the training, in Position.unit."""
    length: int | None = None
    """Length of the block, if the event has it."""


class Position(NamedTuple):
    """The amount of training that is done at an event."""

    at: float
    unit: str
    """steps, samples, tokens or epochs."""
    length: int | None = None


def position(event: Event, benchmark: str) -> Position | None:
    """Return the position of an event in the training; None if the event does not have it.

    Stable Diffusion has `step_num`; newer logs have `step`, or `samples_count` alone. Others have `epoch_num` and
    `first_epoch_num`, which count epochs, samples or tokens (catalog.mlperf.BENCHMARKS). Sources:
    mlperf_logging_utils.py of Stable Diffusion and megatron/training.py of GPT-3 in github.com/mlcommons/training;
    mlperf_common/callbacks/logging.py in github.com/NVIDIA/mlperf-common; logs of github.com/mlcommons/
    training_results_v4.0 to v5.1.
    """
    for name, unit in (("step_num", "steps"), ("step", "steps"), ("samples_count", "samples")):
        at = _whole(event.metadata.get(name))
        if at is not None:
            return Position(at, unit)
    known = BENCHMARKS.get(benchmark)
    unit = known.counts if known else "epochs"
    first = _whole(event.metadata.get("first_epoch_num"))
    if first is not None:
        return Position(first, unit, _whole(event.metadata.get("epoch_count")))
    at = event.metadata.get("epoch_num")
    return Position(float(at), unit) if isinstance(at, int | float) and 0 <= at < 10**15 else None


def _whole(value: object) -> int | None:
    """Return a value if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15 else None


@dataclass
class Blocks:
    """Starts and stops of one run."""

    starts: dict[float, Mark] = field(default_factory=dict)
    stops: dict[float, Mark] = field(default_factory=dict)
    repeated: int = 0
    """Number of events that another rank had written before."""
    again: list[str] = field(default_factory=list)
    """Sentences about steps that were trained twice."""

    def begins_again(self, event: Event, at: float) -> bool:
        """Return whether a start is that of another run: these steps were begun before, and all events are older."""
        before = self.starts.get(at) if event.key == "block_start" else None
        if before is None or event.time_ms - before.time_ms <= RANKS_APART_MS:
            return False
        return event.time_ms > max(mark.time_ms for mark in (*self.starts.values(), *self.stops.values()))

    def add(self, event: Event, at: float, length: int | None = None) -> None:
        """Add a start or a stop. Of several ranks, the first one counts."""
        marks = self.starts if event.key == "block_start" else self.stops
        before = marks.get(at)
        if before is None:
            marks[at] = Mark(event.line, event.time_ms, at, length)
        elif abs(event.time_ms - before.time_ms) <= RANKS_APART_MS:
            self.repeated += 1
        else:
            self.again.append(f"line {event.line} repeats {event.key} of line {before.line}, and is left out")

    def intervals(self, last: float | None) -> tuple[list[Interval], list[str]]:
        """Return the blocks with both ends, in the order of steps, and sentences about the others. `last` is the final
        position of the training, for a last block whose stop has none."""
        notes = list(self.again)
        stops = [stop for mark in self.stops.values() if (stop := self._locate(mark, last))]
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
                    found.append(Interval(first=start.at, last=mark.at, ms=ms))
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

    def _locate(self, stop: Mark, last: float | None) -> Mark | None:
        """Return a stop with the position of its block's end, as some logs write that of its start; None if the end is
        not known."""
        start = self.starts.get(stop.at)
        if not self._stops_have_starts or start is None:
            return stop
        following = min((at for at in self.starts if at > stop.at), default=None)
        counted = stop.at + (start.length or stop.length or 0)
        ends = [end for end in (counted, following) if end is not None and end > stop.at]
        ends = ends or [end for end in (last,) if end is not None and end > stop.at]
        return stop._replace(at=min(ends)) if ends else None

    @property
    def _stops_have_starts(self) -> bool:
        """True if stops have the position of their block's start, which the first one shows."""
        if not self.starts or not self.stops:
            return False
        first = min(self.stops)
        start, stop = self.starts.get(first), self.stops[first]
        return start is not None and start.line < stop.line and start.time_ms < stop.time_ms


def _out_of_order(marks: Iterable[Mark]) -> list[str]:
    by_step = sorted(marks, key=lambda mark: (mark.at, mark.line))
    moved = [later.line for earlier, later in pairwise(by_step) if later.line < earlier.line]
    return [f"blocks are out of order at line {min(moved)}; they are sorted by their steps"] if moved else []


class NotAnMlperfLogError(ValueError):
    """The file is no log of MLPerf. The message describes it."""


@dataclass(frozen=True)
class MlperfLog:
    """A log of MLPerf training."""

    runs: tuple[MlperfRun, ...]
    notes: tuple[str, ...]
    """Sentences about lines of no run."""


def read(log: BinaryIO) -> MlperfLog:
    """Read the runs of a log. Raises NotAnMlperfLogError if it has no event of MLPerf."""
    begin = log.read(4096)
    log.seek(0)
    runs: list[_Builder] = []
    unreadable: list[Unreadable] = []
    for item in scan(log):
        if isinstance(item, Unreadable):
            unreadable.append(item)
        elif isinstance(item, Text):
            if runs:
                runs[-1].add_text(item)
        elif not runs or not runs[-1].add(item):
            runs.append(_Builder(item.line, item.time_ms))
            runs[-1].add(item)
    if not runs:
        raise NotAnMlperfLogError(_describe(begin, unreadable))
    notes: tuple[str, ...] = ()
    if unreadable:
        also = f", and {len(unreadable) - 1} more lines" if len(unreadable) > 1 else ""
        notes = (f"line {unreadable[0].line} is left out{also}: {unreadable[0].reason}",)
    return MlperfLog(tuple(run.finish() for run in runs), notes)


def _describe(begin: bytes, unreadable: list[Unreadable]) -> str:
    """Describe a file that is no log of MLPerf, as a predicate."""
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


@dataclass
class _Builder:
    """A run whose events are being read."""

    line: int
    started_ms: int
    blocks: dict[int | None, Blocks] = field(default_factory=dict)
    """Blocks by the task that wrote them."""
    keys: "Counter[str]" = field(default_factory=Counter)
    run_start_ms: int | None = None
    benchmark: str = ""
    batch: int | None = None
    sequence: int | None = None
    world: int | None = None
    trained: int | None = None
    unit: str = ""
    """The unit of the positions of blocks."""
    last: float | None = None
    """The furthest position of an evaluation or of the end, in that unit."""
    epochs: dict[float, Mark] = field(default_factory=dict)
    """Starts of epochs."""
    epoch_stop_ms: int = 0
    """The end of the last epoch."""
    run_stop_ms: int = 0
    phases: dict[str, list[tuple[Interval, str]]] = field(default_factory=lambda: {"epochs": [], "evaluations": []})
    """Epochs, and the training between evaluations, each with its unit. Epochs come first: if training goes on during
    an evaluation, the time from its end to the next one is too short."""
    trains: Mark | None = None
    """The event at which training began, or went on after an evaluation."""
    status: str = ""
    seconds: int | None = None
    evaluations: dict[tuple[int | None, float | None, str, float], Evaluation] = field(default_factory=dict)
    throughput: list[float] = field(default_factory=list)
    step_ms: dict[int, float] = field(default_factory=dict)
    unplaced: list[int] = field(default_factory=list)
    """Lines of block events without a position."""

    def add(self, event: Event) -> bool:
        """Add an event. Returns False if it belongs to the next run."""
        if event.key in ("block_start", "block_stop"):
            # Stable Diffusion also has blocks of validation.
            return event.value not in (None, "training_step") or self._add_block(event)
        if event.key in _PHASES:
            self._add_phase(event)
        if event.key in _PREAMBLE and self._begins_again(event):
            return False
        self._add_other(event)
        return True

    def _begins_again(self, event: Event) -> bool:
        first_ms = (mark.time_ms for block in self.blocks.values() for mark in block.starts.values())
        begun = self.run_start_ms if self.run_start_ms is not None else min(first_ms, default=None)
        return begun is not None and event.time_ms > begun + RANKS_APART_MS

    def _add_block(self, event: Event) -> bool:
        at = position(event, self.benchmark)
        if at is None or (self.unit and at.unit != self.unit):
            self.unplaced.append(event.line)
            return True
        blocks = self.blocks.setdefault(event.task, Blocks())
        if blocks.begins_again(event, at.at):
            return False
        self.unit = at.unit
        blocks.add(event, at.at, at.length)
        return True

    def _add_phase(self, event: Event) -> None:
        """Add an event of an epoch or an evaluation. Of several ranks, the first one counts."""
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
            interval = Interval(first=begun.at, last=end.at, ms=end.time_ms - begun.time_ms)
            done.append((interval, unit))

    def _add_other(self, event: Event) -> None:
        self.keys[event.key] += 1
        if event.key == "run_start":
            self.run_start_ms = event.time_ms if self.run_start_ms is None else self.run_start_ms
        elif event.key == "submission_benchmark":
            self.benchmark = one_line(str(event.value)[:100])
        elif event.key == "submission_platform" and (gpus := _GPUS.match(str(event.value)[:100])):
            self.world = int(gpus[1])
        elif event.key in ("global_batch_size", "max_sequence_length", "trained_samples"):
            value = _whole(event.value)
            name = {"global_batch_size": "batch", "max_sequence_length": "sequence"}.get(event.key, "trained")
            setattr(self, name, value or getattr(self, name))
        elif event.key in ("run_stop", "status"):
            given = event.value if event.key == "status" else event.metadata.get("status")
            self.status = str(given)[:20] if given else self.status
        elif event.key == "eval_accuracy":
            self._add_evaluation(event)
        elif event.key == "tracked_stats" and isinstance(event.value, dict):
            throughput = _number(event.value.get("throughput"))
            self.throughput += [throughput] if throughput is not None and throughput > 0 else []

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

    def add_text(self, line: Text) -> None:
        """Add a line that is no event."""
        if line.kind == MEMBER and (ranks := _MEMBER.match(line.text)):
            self.world = int(ranks[1])
        elif line.kind == ITERATION and (step := _ITERATION.search(f" {line.text}")):
            self.step_ms[int(step[1])] = float(step[2])
        elif line.kind == RESULT and (seconds := _SECONDS.match(line.text)):
            self.seconds = int(seconds[1])

    def finish(self) -> MlperfRun:
        """Return the run."""
        chosen = min(self.blocks, key=lambda task: -1 if task is None else task, default=None)
        blocks = self.blocks.get(chosen, Blocks())
        intervals, notes = blocks.intervals(self.trained or self.last)
        repeated = blocks.repeated + sum(
            len(other.starts) + len(other.stops) for task, other in self.blocks.items() if task != chosen
        )
        if repeated:
            whose = "of the first rank" if chosen is None else f"of task {chosen}"
            notes.append(f"several ranks wrote blocks: those {whose} count, {repeated} others are left out")
        if self.unplaced:
            notes.append(f"line {self.unplaced[0]} has no step: {len(self.unplaced)} such events are left out")
        if not (self.keys["run_stop"] or self.seconds is not None or self.status):
            notes.append("the log has no end of this run: it goes on still, or was stopped")
        unit = self.unit or "steps"
        epochs = self.phases["epochs"]
        if len(epochs) > 1 and abs(self.run_stop_ms - self.epoch_stop_ms) < _AT_ONCE_MS:
            epochs.pop()  # a parallel evaluation reached the target, and the run ended within the epoch
        if len(intervals) < 2 and not self.step_ms:
            kind, others = max(self.phases.items(), key=lambda pair: len(pair[1]))
            if len(others) > len(intervals):
                intervals, unit = [interval for interval, _ in others], others[0][1]
                what = "epochs" if kind == "epochs" else "the training between evaluations"
                notes.append(f"intervals are {what}: the log has no blocks of steps")
        unit, intervals = self._in_steps(intervals, unit)
        cut = notes[:_MOST_NOTES] + ([f"and {len(notes) - _MOST_NOTES} more"] if len(notes) > _MOST_NOTES else [])
        each = self.keys["init_start"]  # once for each rank; cache_clear is once for each node, in some logs for both
        return MlperfRun(
            line=self.line,
            started_ms=self.started_ms,
            benchmark=self.benchmark,
            batch=self.batch,
            ranks=self.world or (each if each > 1 else None),
            intervals=tuple(intervals),
            evaluations=tuple(self.evaluations.values()),
            step_ms=tuple(sorted(self.step_ms.items())),
            throughput=tuple(self.throughput),
            status=self.status,
            seconds=self.seconds,
            unit=unit,
            notes=tuple(cut),
        )

    def _size(self, unit: str) -> int | None:
        """Return the number of units in a step; None if the log does not have it."""
        sizes = {"steps": 1, "samples": self.batch, "tokens": (self.batch or 0) * (self.sequence or 0)}
        return sizes.get(unit) or None

    def _in_steps(self, intervals: list[Interval], unit: str) -> tuple[str, list[Interval]]:
        size = self._size(unit)
        ends = {end for interval in intervals for end in interval[:2]}
        if size is None or (unit == "samples" and any(end % size for end in ends)):
            return unit, intervals
        return "steps", [
            interval._replace(first=int(interval.first // size), last=int(interval.last // size))
            for interval in intervals
        ]


def _number(value: object) -> float | None:
    """Return a value as float; None if it is no number, not finite or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _LARGEST else None
