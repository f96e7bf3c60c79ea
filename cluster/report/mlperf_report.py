"""Reports of MLPerf logs: times of training steps, compared with the published time of the set-up."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, BinaryIO

from cluster.catalog.mlperf import DIFFUSION_CONFIGS, LOG_STEPS, STABLE_DIFFUSION, TARGETS, Target
from cluster.findings import suggest
from cluster.printable import one_line
from cluster.report.mlperf_log import Interval, MlperfLog, MlperfRun, read
from cluster.report.plot import Curve

_RULE = "----------+---------------+-------------------"
_MOST_POINTS = 1000


class UnknownSetupError(ValueError):
    """There is no target of that name. The message lists the names."""


@dataclass(frozen=True, kw_only=True)
class TargetComparison:
    """Figures of a run, compared with the published time of its set-up."""

    intervals: tuple[Interval, ...]
    average: float
    """Average seconds of an interval; with a target, of LOG_STEPS steps."""
    target: Target | None
    notes: tuple[str, ...]
    """Sentences: the reason why there is no target, and assumptions of the comparison."""

    @property
    def least(self) -> float:
        """Seconds of the shortest interval."""
        return min(interval.ms for interval in self.intervals) / 1000

    @property
    def most(self) -> float:
        """Seconds of the longest interval."""
        return max(interval.ms for interval in self.intervals) / 1000

    @property
    def result(self) -> str:
        """`pass` or `fail`; empty without a target."""
        if self.target is None:
            return ""
        return "pass" if self.average <= self.target.seconds else "fail"


def find_target(setup: str) -> Target:
    """Return the target of a set-up. Raises UnknownSetupError."""
    target = next((target for target in TARGETS if target.setup.lower() == setup.lower()), None)
    if target is None:
        names = [target.setup for target in TARGETS]
        todo = suggest(setup, names, "leave -g out: then the log decides")
        raise UnknownSetupError(f"no time is published for {setup!r}. There are: {', '.join(names)}. To do: {todo}")
    return target


def compare(run: MlperfRun, setup: str = "") -> TargetComparison | None:
    """Compare a run with the target of `setup`, by default the set-up in the log. Returns None for a run without
    intervals. Raises UnknownSetupError."""
    intervals, notes = _intervals(run)
    given = find_target(setup) if setup else None
    if not intervals:
        return None
    target, reason = _target(run, given)
    average = statistics.fmean(interval.ms for interval in intervals) / 1000
    if target is None:
        notes.append(reason)
    else:
        steps = {interval.last - interval.first for interval in intervals}
        if steps != {LOG_STEPS}:
            sizes = f"{min(steps)}" if len(steps) == 1 else f"{min(steps)} to {max(steps)}"
            notes.append(f"intervals have {sizes} steps: AVG is for {LOG_STEPS} steps, as the target is")
            average *= LOG_STEPS / statistics.fmean(interval.last - interval.first for interval in intervals)
        notes += _setup_differences(run, target)
    return TargetComparison(intervals=intervals, average=average, target=target, notes=tuple(notes))


def _intervals(run: MlperfRun) -> tuple[tuple[Interval, ...], list[str]]:
    """Return the intervals of a run, with a note: those of its blocks, or sums of iterations of Megatron-LM, which has
    one block for all of training."""
    if len(run.intervals) > 1 or len(run.step_ms) < 2:
        return tuple(interval for interval in run.intervals if interval.last > interval.first), []
    # It evaluates after every 24576 samples (README.md of GPT-3 in github.com/mlcommons/training).
    size = -(-24576 // run.batch) if run.batch else 10
    groups = [run.step_ms[begin : begin + size] for begin in range(0, len(run.step_ms), size)]
    intervals = tuple(
        Interval(group[0][0] - 1, group[-1][0], max(1, round(sum(ms for _, ms in group)))) for group in groups
    )
    return intervals, [f"intervals are sums of {size} times that Megatron-LM wrote for its iterations"]


def _target(run: MlperfRun, given: Target | None) -> tuple[Target | None, str]:
    """Return the target of a run, or the reason why there is none."""
    if run.benchmark and run.benchmark != STABLE_DIFFUSION:
        return None, f"no time is published for {run.title}"
    if given:
        return given, ""
    name_it = f"name it: -g {'|'.join(target.setup for target in TARGETS)}"
    if not run.benchmark or run.batch is run.ranks is None:
        lacks = "name of its benchmark" if not run.benchmark else "batch size, nor the number of GPUs"
        return None, f"the log does not have the {lacks}; {name_it}"
    published = {(target.nodes * target.gpus, target.batch): target for target in TARGETS}
    known = {*published, *((config.nodes * config.gpus, config.batch) for config in DIFFUSION_CONFIGS)}
    fitting = [
        (gpus, batch)
        for gpus, batch in sorted(known)
        if run.batch in (None, gpus * batch) and run.ranks in (None, gpus)
    ]
    found = [published[sizes] for sizes in fitting if sizes in published]
    what = f"{run.ranks or 'unknown'} GPUs, global batch size {run.batch or 'unknown'}"
    if len(fitting) == 1 and found:
        return found[0], ""
    if not found:
        return None, f"no time is published for this set-up ({what})"
    return None, f"the set-up is not clear from the log ({what}); {name_it}"


def _setup_differences(run: MlperfRun, target: Target) -> Iterable[str]:
    """Yield differences between the set-up in the log and the target's."""
    gpus = target.nodes * target.gpus
    if run.ranks not in (None, gpus):
        yield f"the log has {run.ranks} GPUs, and {target.setup} has {gpus}"
    if run.batch not in (None, gpus * target.batch):
        yield f"the log has a global batch size of {run.batch}, and {target.setup} has {gpus * target.batch}"


def table_lines(found: TargetComparison, unit: str) -> Iterator[str]:
    """Yield the lines of the table; `unit` is that of intervals."""
    yield f" interval |{unit:^15}|     duration     "
    yield _RULE
    for number, interval in enumerate(found.intervals, 1):
        part = f"{_count(interval.first):>6}-{_count(interval.last):<6}"
        yield f" {number:8d} | {part} | {interval.ms / 1000:6.2f}s ({interval.ms}ms)"
    yield _RULE
    against = ""
    if found.target:
        sign = "<=" if found.result == "pass" else ">"
        against = f" {sign} {found.target.seconds:.2f}s (target for {found.target.setup} GPU)"
    yield f" AVG: {found.average:.2f}s{against}"
    yield f" min: {found.least:.2f}s"
    yield f" max: {found.most:.2f}s"


def _count(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def start_time(run: MlperfRun) -> str:
    """Return the time of a run's first event as text."""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=run.started_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def detail_lines(run: MlperfRun) -> Iterator[str]:
    """Yield lines about quality, throughput and end of a run."""
    for evaluation in run.evaluations[-20:]:
        at = f" at step {evaluation.step}" if evaluation.step is not None else ""
        at = f" at epoch {_count(evaluation.epoch)}" if evaluation.epoch is not None else at
        yield f" evaluation{at}: {one_line(evaluation.metric)} {evaluation.value:.4g}"
    if run.throughput:
        mean = sum(run.throughput) / len(run.throughput)
        yield f" throughput: {mean:.0f} a second, on average over {len(run.throughput)} values of the log"
    if run.seconds is not None or run.status:
        whole = f" in {timedelta(seconds=run.seconds)}" if run.seconds is not None else ""
        yield f" end of the run: {one_line(run.status) or 'RESULT'}{whole}"


@dataclass(frozen=True)
class MlperfReport:
    """A log with a comparison for each run."""

    log: MlperfLog
    comparisons: tuple[TargetComparison | None, ...]
    """None for a run without intervals."""

    @property
    def result(self) -> str:
        """The result of the last run: `pass`, `fail`, `none` without a target, `empty` without intervals."""
        last = self.comparisons[-1]
        return "empty" if last is None else last.result or "none"

    def lines(self) -> list[str]:
        found: list[str] = []
        for number, (run, comparison) in enumerate(zip(self.log.runs, self.comparisons, strict=True), 1):
            if len(self.log.runs) > 1:
                which = f"Run {number} of {len(self.log.runs)}"
                found += [""] if number > 1 else []
                found.append(f"{which}: {run.title}, from line {run.line}, {start_time(run)}")
            found += [
                *(table_lines(comparison, run.unit) if comparison else [" no training steps"]),
                *detail_lines(run),
            ]
        return found

    def notes(self) -> list[str]:
        """Return sentences about problems of the log and assumptions of the comparison."""
        found = list(self.log.notes)
        for number, (run, comparison) in enumerate(zip(self.log.runs, self.comparisons, strict=True), 1):
            which = f"run {number}: " if len(self.log.runs) > 1 else ""
            found += [f"{which}{note}" for note in (*run.notes, *(comparison.notes if comparison else ()))]
        return found

    def document(self) -> dict[str, Any]:
        pairs = zip(self.log.runs, self.comparisons, strict=True)
        return {"result": self.result, "notes": list(self.log.notes), "runs": [_run_document(*pair) for pair in pairs]}

    def curves(self) -> tuple[list[Curve], str, str]:
        """Return curves of the time of steps, and the labels of x and y. Runs without intervals have no curve."""
        targets = {
            comparison.target.setup: comparison.target
            for comparison in self.comparisons
            if comparison and comparison.target
        }
        per = LOG_STEPS if targets else 1
        found: list[Curve] = []
        for number, comparison in enumerate(self.comparisons, 1):
            if comparison:
                every = -(-len(comparison.intervals) // _MOST_POINTS)
                points = [(it.last, per * it.ms / 1000 / (it.last - it.first)) for it in comparison.intervals[::every]]
                found.append(Curve(f"run {number}" if len(self.comparisons) > 1 else "this run", points))
        ends = [x for curve in found for x, _ in curve.points]
        for target in targets.values():
            level = [(x, target.seconds) for x in (min(ends), max(ends))]
            found.append(Curve(f"target for {target.setup}", level, reference=True))
        unit = self.log.runs[-1].unit
        return found, f"training {unit}", f"seconds for {per} {unit}" if per > 1 else f"seconds for one of the {unit}"


def read_report(log: BinaryIO, setup: str = "") -> MlperfReport:
    """Read a log and compare its runs with the target `setup`. Raises NotAnMlperfLogError and UnknownSetupError."""
    content = read(log)
    return MlperfReport(content, tuple(compare(run, setup) for run in content.runs))


def _run_document(run: MlperfRun, found: TargetComparison | None) -> dict[str, Any]:
    return {
        "benchmark": run.benchmark,
        "line": run.line,
        "started": start_time(run),
        "global_batch_size": run.batch,
        "gpus": run.ranks,
        "unit": run.unit,
        "intervals": [{name: getattr(row, name) for name in ("first", "last", "ms")} for row in found.intervals]
        if found
        else [],
        "average_seconds": round(found.average, 3) if found else None,
        "least_seconds": found.least if found else None,
        "most_seconds": found.most if found else None,
        "target": {"setup": found.target.setup, "seconds": found.target.seconds, "source": found.target.source}
        if found and found.target
        else None,
        "result": (found.result or "none") if found else "empty",
        "evaluations": [
            {"step": evaluation.step, "epoch": evaluation.epoch, "metric": evaluation.metric, "value": evaluation.value}
            for evaluation in run.evaluations
        ],
        "throughput": list(run.throughput),
        "status": run.status,
        "seconds": run.seconds,
        "notes": [*run.notes, *(found.notes if found else ())],
    }
