"""Reports of MLPerf logs: times of training steps, compared with the published time of the set-up."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, BinaryIO

from cluster.catalog.mlperf import DIFFUSION_CONFIGS, LOG_STEPS, QUALITY, STABLE_DIFFUSION, TARGETS, TrainingTarget
from cluster.findings import suggest
from cluster.printable import one_line
from cluster.report.mlperf_log import MlperfRun, read
from cluster.report.plot import Curve

_RULE = "----------+---------------+-------------------"
_NAME_IT = f"name it: -g {'|'.join(target.setup for target in TARGETS)}"


class UnknownSetupError(ValueError):
    """There is no target of that name. The message lists the names."""


def find_target(setup: str) -> TrainingTarget:
    """Return the target of a set-up. Raises UnknownSetupError."""
    target = next((target for target in TARGETS if target.setup.lower() == setup.lower()), None)
    if target is None:
        names = [target.setup for target in TARGETS]
        todo = suggest(setup, names, "leave -g out: then the log decides")
        raise UnknownSetupError(f"no time is published for {setup!r}. There are: {', '.join(names)}. To do: {todo}")
    return target


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """A run, compared with the published time of its set-up."""

    run: MlperfRun
    target: TrainingTarget | None
    steps: int = LOG_STEPS
    """Training steps that `seconds` are for: those of most intervals; with a target, LOG_STEPS."""
    notes: tuple[str, ...]
    """Sentences about the log, and assumptions of the comparison."""

    @property
    def result(self) -> str:
        """`pass` or `fail`, `none` without a target, `empty` without intervals."""
        if self.average is None or self.target is None:
            return "empty" if self.average is None else "none"
        return "pass" if self.average <= self.target.seconds else "fail"

    @property
    def seconds(self) -> list[float]:
        """Seconds of each interval, for `steps` steps."""
        return [round(self.steps * row.ms / 1000 / (row.last - row.first), 3) for row in self.run.intervals]

    @property
    def average(self) -> float | None:
        """Average seconds for `steps` steps, over all steps of the intervals; None without intervals."""
        steps = sum(row.last - row.first for row in self.run.intervals)
        return self.steps * sum(row.ms for row in self.run.intervals) / 1000 / steps if steps else None

    @property
    def time_to_train(self) -> int | None:
        """Seconds from `run_start` until the model had the benchmark's quality; None if the log does not show it."""
        return max((row.seconds for row in self.run.trained() if row.seconds is not None), default=None)

    @property
    def started(self) -> str:
        """Time of its first event, in UTC."""
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=self.run.started_ms)
        return moment.strftime("%Y-%m-%d %H:%M:%S UTC")

    def lines(self) -> Iterator[str]:
        """Yield the table, and lines about quality and end of the run."""
        run = self.run
        if self.average is None:
            yield " no training steps"
        else:
            yield " interval |     steps     |     duration     "
            yield _RULE
            for number, (first, last, ms) in enumerate(run.intervals, 1):
                yield f" {number:8d} | {first:>6}-{last:<6} | {ms / 1000:6.2f}s ({ms}ms)"
            yield _RULE
            against = ""
            if self.target:
                sign = "<=" if self.result == "pass" else ">"
                against = f" {sign} {self.target.seconds:.2f}s (target for {self.target.setup} GPU)"
            yield f" AVG: {self.average:.2f}s{against}"
            yield f" min: {min(self.seconds):.2f}s"
            yield f" max: {max(self.seconds):.2f}s"
        for evaluation in run.evaluations[-20:]:
            at = f" at step {evaluation.step}" if evaluation.step is not None else ""
            yield f" evaluation{at}: {one_line(evaluation.metric)} {evaluation.value:.4g}"
        if run.seconds is not None or run.status:
            whole = f" in {timedelta(seconds=run.seconds)}" if run.seconds is not None else ""
            yield f" end of the run: {one_line(run.status) or 'run_stop'}{whole}"
        if targets := " and ".join(map(str, QUALITY.get(run.benchmark, ()))):
            if self.time_to_train is not None:
                yield f" time to train: {timedelta(seconds=self.time_to_train)}, until {targets}"
            elif not run.trained() and (run.evaluations or run.seconds is not None or run.status):
                yield f" no time to train: no evaluation has {targets}"

    def document(self) -> dict[str, Any]:
        run = self.run
        return {
            "benchmark": run.benchmark,
            "line": run.line,
            "started": self.started,
            "global_batch_size": run.batch,
            "gpus": run.ranks,
            "unit": "steps",
            "intervals": [interval._asdict() for interval in run.intervals],
            "average_steps": self.steps,
            "average_seconds": self.average and round(self.average, 3),
            "least_seconds": min(self.seconds, default=None),
            "most_seconds": max(self.seconds, default=None),
            "target": self.target and {name: getattr(self.target, name) for name in ("setup", "seconds", "source")},
            "result": self.result,
            "evaluations": [evaluation._asdict() for evaluation in run.evaluations],
            "status": run.status,
            "seconds": run.seconds,
            "time_to_train_seconds": self.time_to_train,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class MlperfReport:
    """The runs of a log."""

    runs: tuple[RunReport, ...]
    log_notes: tuple[str, ...]
    """Sentences about lines of no run."""

    @property
    def result(self) -> str:
        """The result of the last run."""
        return self.runs[-1].result

    def lines(self) -> Iterator[str]:
        for number, report in enumerate(self.runs, 1):
            if len(self.runs) > 1:
                yield from [""] if number > 1 else []
                run = report.run
                yield f"Run {number} of {len(self.runs)}: {run.title}, from line {run.line}, {report.started}"
            yield from report.lines()

    def notes(self) -> list[str]:
        """Return sentences about problems of the log and assumptions of the comparison."""
        of_runs = [(f"run {number}: " if len(self.runs) > 1 else "", run) for number, run in enumerate(self.runs, 1)]
        return [*self.log_notes, *(f"{which}{note}" for which, run in of_runs for note in run.notes)]

    def document(self) -> dict[str, Any]:
        runs = [run.document() for run in self.runs]
        return {"result": self.result, "notes": list(self.log_notes), "runs": runs}

    def curves(self) -> tuple[list[Curve], str, str]:
        """Return curves of the time of steps, and the labels of x and y. Runs without intervals have no curve."""
        targets = {run.target.setup: run.target.seconds for run in self.runs if run.target and run.run.intervals}
        per = LOG_STEPS if targets else 1
        found: list[Curve] = []
        for number, run in enumerate(self.runs, 1):
            if points := [(last, per * ms / 1000 / (last - first)) for first, last, ms in run.run.intervals]:
                found.append(Curve(f"run {number}" if len(self.runs) > 1 else "this run", points))
        ends = [x for curve in found for x, _ in curve.points]
        for setup, seconds in targets.items():
            level = [(x, seconds) for x in (min(ends), max(ends))]
            found.append(Curve(f"target for {setup}", level, reference=True))
        return found, "training steps", f"seconds for {per} steps" if per > 1 else "seconds for one of the steps"


def read_report(log: BinaryIO, setup: str = "") -> MlperfReport:
    """Read a log and compare its runs with the target `setup`, by default that of the set-up in the log. Raises
    NotAnMlperfLogError and UnknownSetupError."""
    runs, notes = read(log)
    given = find_target(setup) if setup else None
    return MlperfReport(tuple(_compare(run, given) for run in runs), tuple(notes))


def _compare(run: MlperfRun, given: TrainingTarget | None) -> RunReport:
    if not run.intervals:
        return RunReport(run=run, target=None, notes=tuple(run.notes))
    notes = list(run.notes)
    target, reason = _target(run, given)
    sizes = [interval.last - interval.first for interval in run.intervals]
    steps = LOG_STEPS if target else statistics.mode(sizes)
    if set(sizes) != {steps}:
        given_sizes = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        as_target = ", as the target is" if target else ""
        notes.append(f"intervals have {given_sizes} steps: AVG, min and max are for {steps} steps{as_target}")
    if target is None:
        notes.append(reason)
    else:
        gpus = target.nodes * target.gpus
        if run.ranks not in (None, gpus):
            notes.append(f"the log has {run.ranks} GPUs, and {target.setup} has {gpus}")
        if run.batch not in (None, gpus * target.batch):
            batch = gpus * target.batch
            notes.append(f"the log has a global batch size of {run.batch}, and {target.setup} has {batch}")
    return RunReport(run=run, target=target, steps=steps, notes=tuple(notes))


def _target(run: MlperfRun, given: TrainingTarget | None) -> tuple[TrainingTarget | None, str]:
    """Return the target of a run, or the reason why there is none."""
    if run.benchmark not in ("", STABLE_DIFFUSION):
        return None, f"no time is published for {run.title}"
    if given:
        return given, ""
    if not run.benchmark or run.batch is run.ranks is None:
        lacks = "name of its benchmark" if not run.benchmark else "batch size, nor the number of GPUs"
        return None, f"the log does not have the {lacks}; {_NAME_IT}"
    published = {(target.nodes * target.gpus, target.batch): target for target in TARGETS}
    known = {*published, *((config.nodes * config.gpus, config.batch) for config in DIFFUSION_CONFIGS)}
    fitting = [sizes for sizes in known if run.batch in (None, sizes[0] * sizes[1]) and run.ranks in (None, sizes[0])]
    found = [published[sizes] for sizes in fitting if sizes in published]
    what = f"{run.ranks or 'unknown'} GPUs, global batch size {run.batch or 'unknown'}"
    if len(fitting) == 1 and found:
        return found[0], ""
    if not found:
        return None, f"no time is published for this set-up ({what})"
    return None, f"the set-up is not clear from the log ({what}); {_NAME_IT}"
