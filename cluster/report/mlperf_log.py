"""Reads logs of the MLPerf benchmarks that `./hpc mlperf run` trains: runs, intervals of training steps, evaluations.

Sources of what they write: stable_diffusion/main.py and mlperf_logging_utils.py, and megatron/training.py of GPT-3, in
github.com/mlcommons/training at catalog.mlperf.COMMIT.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

from cluster.catalog.mlperf import GPT3, QUALITY, TITLES
from cluster.printable import counted, one_line

MARK = ":::MLLOG"
ITERATION = " elapsed time per iteration (ms): "
"""A line of Megatron-LM for each iteration, as its events only have the beginning and the end of training."""
_LONGEST = 64 * 1024
"""Characters of an event that are parsed. Events have less than 1 KiB."""
_RANKS_APART_MS = 5000
"""Ranks write the same event within one training step. A run that starts again takes longer."""
_PREAMBLE = ("cache_clear", "init_start", "submission_benchmark", "run_start")
"""Events before training. The first of them begins a run."""
_EVALUATION_SAMPLES = 24576
"""Samples between two evaluations of GPT-3 (README.md of large_language_model/megatron-lm)."""
_MOST_NOTES = 10
_LARGEST = 1e300
_ITERATION = re.compile(r" iteration +([0-9]{1,9})/.* elapsed time per iteration \(ms\): ([0-9]{1,12}(?:\.[0-9]+)?)")
_PLATFORM = re.compile(r"GA100-([0-9]{1,7})")
"""`submission_platform` of Megatron-LM, whatever the GPUs are, with their number."""


class NotAnMlperfLogError(ValueError):
    """The file is no log of MLPerf. The message describes it."""


class Interval(NamedTuple):
    """A part of training."""

    first: int
    """Training steps before it."""
    last: int
    """Training steps at its end."""
    ms: int
    """The duration."""


class Evaluation(NamedTuple):
    """A measurement of the model's quality."""

    step: int | None
    metric: str
    value: float
    seconds: int | None
    """Seconds from `run_start` to its result; None without a `run_start`."""


@dataclass(kw_only=True)
class MlperfRun:
    """A run of MLPerf."""

    line: int
    """The line of its first event."""
    started_ms: int
    """Time of its first event, in milliseconds since 1970 (UTC)."""
    benchmark: str = ""
    """The name in the log, such as `stable_diffusion`; empty if the log does not have it."""
    batch: int | None = None
    """Samples of one training step, on all GPUs (`global_batch_size`)."""
    sequence: int | None = None
    """Tokens of a sample."""
    ranks: int | None = None
    """Processes of the run, one for each GPU."""
    intervals: list[Interval] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    status: str = ""
    """`success` or `aborted`; empty if the log does not have it."""
    seconds: int | None = None
    """Seconds from `run_start` to `run_stop`."""
    notes: list[str] = field(default_factory=list)
    """Problems of the log, as sentences."""
    step_ms: dict[int, float] = field(default_factory=dict)
    """Durations of Megatron-LM's iterations by their number."""
    _inits: int = 0
    _trains_ms: int | None = None
    """Time of the first `run_start` or `block_start`."""
    _clock_ms: int | None = None
    """Time of the first `run_start`, which the beginning of a log may lack."""
    _starts: dict[int, int] = field(default_factory=dict)
    """Times of the starts of blocks by step."""
    _open: tuple[int, int, int] | None = None
    """Line, time and step of a start without its stop."""
    _unplaced: list[int] = field(default_factory=list)
    """Lines of blocks without a step."""

    @property
    def title(self) -> str:
        """Name of the benchmark."""
        return TITLES.get(self.benchmark) or self.benchmark or "an unknown benchmark"

    def add(self, line: int, event: dict[str, Any]) -> bool:
        """Add an event. Returns False if it belongs to the next run."""
        key, value, ms, begun = event["key"], event.get("value"), event["time_ms"], self._trains_ms
        metadata = event["metadata"] if isinstance(event.get("metadata"), dict) else {}
        if key in ("block_start", "block_stop"):
            # Stable Diffusion also has blocks of validation, and GPT-3 one block for all of training.
            return value != "training_step" or self._add_block(line, key, ms, _whole(metadata.get("step_num")))
        if key in _PREAMBLE and begun is not None and ms > begun + _RANKS_APART_MS:
            return False
        if key == "init_start":
            self._inits += 1  # Stable Diffusion writes it once for each rank
        elif key == "run_start":
            self._trains_ms = ms if begun is None else begun
            self._clock_ms = ms if self._clock_ms is None else self._clock_ms
        elif key == "submission_benchmark":
            self.benchmark = one_line(str(value)[:100])
        elif key == "submission_platform" and (gpus := _PLATFORM.match(str(value)[:100])):
            self.ranks = int(gpus[1])
        elif key == "global_batch_size":
            self.batch = _whole(value) or self.batch
        elif key == "max_sequence_length":
            self.sequence = _whole(value) or self.sequence
        elif key == "eval_accuracy":
            self._add_evaluation(value, metadata, self._elapsed(ms))
        elif key in ("run_stop", "status"):
            self.status = str((value if key == "status" else metadata.get("status")) or self.status)[:20]
            self.seconds = self._elapsed(ms) if key == "run_stop" else self.seconds
        return True

    def _elapsed(self, ms: int) -> int | None:
        """Return the whole seconds from `run_start` to a time; None without a `run_start`."""
        return None if self._clock_ms is None else max(0, ms - self._clock_ms) // 1000

    def _add_block(self, line: int, key: str, ms: int, step: int | None) -> bool:
        """Add the start or the stop of a block. Of several ranks, the first one counts."""
        if step is None:
            self._unplaced.append(line)
        elif key == "block_start":
            if step in self._starts:
                return ms <= self._starts[step] + _RANKS_APART_MS
            self._starts[step] = ms
            self._trains_ms = ms if self._trains_ms is None else self._trains_ms
            if self._open:
                self.notes.append(f"line {self._open[0]} starts a block at {self._open[2]} that has no block_stop")
            self._open = line, ms, step
        elif self._open and step > self._open[2]:
            (start, start_ms, first), self._open = self._open, None
            if ms > start_ms:
                self.intervals.append(Interval(first, step, ms - start_ms))
            else:
                back = f"time goes back between line {start} and line {line} ({ms - start_ms} ms)"
                self.notes.append(f"{back}: block {first}-{step} is left out")
        elif step not in {interval.last for interval in self.intervals[-2:]}:
            self.notes.append(f"line {line} stops a block at {step} that has no block_start")
        return True

    def _add_evaluation(self, value: object, metadata: dict[str, Any], seconds: int | None) -> None:
        step, tokens = _whole(metadata.get("step_num")), _whole(metadata.get("epoch_num"))
        if step is None and tokens is not None and self.batch and self.sequence:
            step = tokens // (self.batch * self.sequence)
        if not isinstance(value, bool) and isinstance(value, int | float) and abs(value) < _LARGEST:
            metric = str(metadata.get("metric") or ("log perplexity" if self.benchmark == GPT3 else "eval_accuracy"))[
                :40
            ]
            self.evaluations.append(Evaluation(step, metric, float(value), seconds))

    def trained(self) -> list[Evaluation]:
        """Return the evaluations that first met all targets of the benchmark, at one step; empty if none did.

        The last of them ends the time to train, as the clock may be stopped once the target is reached
        (training_rules.adoc, as of QUALITY). The status of a run of Stable Diffusion without thresholds is `success`
        whatever its quality is (stable_diffusion/main.py).
        """
        found: dict[int | None, dict[str, Evaluation]] = {}
        targets = QUALITY.get(self.benchmark, ())
        for evaluation in self.evaluations:
            met = found.setdefault(evaluation.step, {})
            if any(target.metric == evaluation.metric and target.is_met(evaluation.value) for target in targets):
                met[evaluation.metric] = evaluation
            if targets and len(met) == len(targets):
                return list(met.values())
        return []

    def end(self) -> "MlperfRun":
        """Complete the run after its last event, with notes about it."""
        if self.step_ms and len(self.intervals) < 2:
            size = -(-_EVALUATION_SAMPLES // self.batch) if self.batch else 10
            steps = sorted(self.step_ms.items())
            for group in (steps[begin : begin + size] for begin in range(0, len(steps), size)):
                ms = max(1, round(sum(ms for _, ms in group)))
                self.intervals.append(Interval(group[0][0] - 1, group[-1][0], ms))
            self.notes.append(f"intervals are sums of {size} times that Megatron-LM wrote for its iterations")
        if self._open:
            what = f"line {self._open[0]} starts it at {self._open[2]}, and no block_stop follows"
            self.notes.append(f"the log ends within a block: {what}")
        if self._unplaced:
            self.notes.append(f"line {self._unplaced[0]} has no step: {len(self._unplaced)} such events are left out")
        if self.seconds is None and not self.status:
            self.notes.append("the log has no end of this run: it goes on still, or was stopped")
        more = len(self.notes) - _MOST_NOTES
        self.notes[_MOST_NOTES:] = [f"and {more} more"] if more > 0 else []
        self.ranks = self.ranks or (self._inits if self._inits > 1 else None)
        return self


def read(log: BinaryIO) -> tuple[list[MlperfRun], list[str]]:
    """Return the runs of a log, and sentences about lines of no run. Raises NotAnMlperfLogError if it has none."""
    runs: list[MlperfRun] = []
    unreadable: list[tuple[int, str]] = []
    begin = log.read(4096)
    log.seek(0)
    for line, item in _items(log):
        if isinstance(item, str):
            unreadable.append((line, item))
        elif isinstance(item, re.Match):
            if runs:
                runs[-1].step_ms[int(item[1])] = float(item[2])
        elif not runs or not runs[-1].add(line, item):
            runs.append(MlperfRun(line=line, started_ms=item["time_ms"]))
            runs[-1].add(line, item)
    if not runs:
        raise NotAnMlperfLogError(_describe(begin, unreadable))
    also = f", and {counted(len(unreadable) - 1, 'more line')}" if len(unreadable) > 1 else ""
    notes = [f"line {line} is left out{also}: {reason}" for line, reason in unreadable[:1]]
    return [run.end() for run in runs], notes


def _items(log: BinaryIO) -> Iterator[tuple[int, dict[str, Any] | re.Match[str] | str]]:
    """Yield events, lines of iterations, and the reason for an event that can't be parsed, each with its line."""
    mark, iteration = MARK.encode(), ITERATION.encode()
    for line, raw in enumerate(log, 1):
        if mark in raw:
            for part in raw.decode("utf-8", "replace").split(MARK)[1:]:
                yield line, _event(part[:_LONGEST].lstrip())
        elif iteration in raw and (step := _ITERATION.search(f" {raw.decode('utf-8', 'replace')}")):
            yield line, step


def _event(text: str) -> dict[str, Any] | str:
    try:
        row, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return f"{MARK} is cut short" if text.startswith("{") else f"{MARK} has no JSON object"
    if not isinstance(row, dict) or not isinstance(row.get("key"), str):
        return f"{MARK} has no key"
    return row if (_whole(row.get("time_ms")) or 10**14) < 10**14 else f"{MARK} has no time_ms"


def _describe(begin: bytes, unreadable: list[tuple[int, str]]) -> str:
    """Describe a file that is no log of MLPerf, as a predicate."""
    if not begin:
        return "is empty"
    if begin.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00")):
        return "is compressed: decompress it first"
    if b"\0" in begin:
        return "is a binary file, not the text of a log"
    for line, reason in unreadable:
        return f"has {counted(len(unreadable), 'line')} with {MARK}, and none can be read: in line {line}, {reason}"
    return f"has no line with {MARK}: it is no log of an MLPerf benchmark, or the job stopped before its first event"


def _whole(value: object) -> int | None:
    """Return a value if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15 else None
