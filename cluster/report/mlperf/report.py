"""The report of a log: tables, a document for programs, curves for a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from cluster.catalog.mlperf import LOG_STEPS
from cluster.report.mlperf.compare import Comparison, compare
from cluster.report.mlperf.read import Log, read
from cluster.report.mlperf.run import Run
from cluster.report.mlperf.table import heading, more, started, table
from cluster.report.plot import Curve

_MOST_POINTS = 1000


@dataclass(frozen=True)
class Report:
    """A log, and what each of its runs is compared with."""

    log: Log
    comparisons: tuple[Comparison | None, ...]
    """One for each run; None for one without an interval."""

    @property
    def result(self) -> str:
        """Of the last run: `pass`, `fail`, `none` without a target, `empty` without an interval."""
        last = self.comparisons[-1]
        return "empty" if last is None else last.result or "none"

    def lines(self) -> list[str]:
        """The report as text."""
        found: list[str] = []
        for number, (run, one) in enumerate(zip(self.log.runs, self.comparisons, strict=True), 1):
            if len(self.log.runs) > 1:
                found += ([""] if number > 1 else []) + [heading(run, number, len(self.log.runs))]
            found += [*(table(one, run.unit) if one else [" no training steps"]), *more(run)]
        return found

    def notes(self) -> list[str]:
        """Sentences on what is wrong with the log, and on what the comparison rests."""
        found = list(self.log.notes)
        for number, (run, one) in enumerate(zip(self.log.runs, self.comparisons, strict=True), 1):
            which = f"run {number}: " if len(self.log.runs) > 1 else ""
            found += [f"{which}{note}" for note in (*run.notes, *(one.notes if one else ()))]
        return found

    def document(self) -> dict[str, Any]:
        """The report as a document for programs."""
        pairs = zip(self.log.runs, self.comparisons, strict=True)
        return {"result": self.result, "notes": list(self.log.notes), "runs": [_run(*pair) for pair in pairs]}

    def curves(self) -> tuple[list[Curve], str, str]:
        """Curves of the time of steps, and the labels of x and y. Runs without an interval have none."""
        targets = {one.target.setup: one.target for one in self.comparisons if one and one.target}
        per = LOG_STEPS if targets else 1
        found: list[Curve] = []
        for number, one in enumerate(self.comparisons, 1):
            if one:
                every = -(-len(one.intervals) // _MOST_POINTS)
                points = [(it.last, per * it.ms / 1000 / (it.last - it.first)) for it in one.intervals[::every]]
                found.append(Curve(f"run {number}" if len(self.comparisons) > 1 else "this run", points))
        ends = [x for curve in found for x, _ in curve.points]
        for target in targets.values():
            level = [(x, target.seconds) for x in (min(ends), max(ends))]
            found.append(Curve(f"target for {target.setup}", level, reference=True))
        unit = self.log.runs[-1].unit
        return found, f"training {unit}", f"seconds for {per} {unit}" if per > 1 else f"seconds for one of the {unit}"


def make(log: BinaryIO, setup: str = "") -> Report:
    """Report a log. `setup`: the name of a target. Raises NoLog and UnknownSetup."""
    found = read(log)
    return Report(found, tuple(compare(run, setup) for run in found.runs))


def _run(run: Run, found: Comparison | None) -> dict[str, Any]:
    return {
        "benchmark": run.benchmark, "line": run.line, "started": started(run),
        "global_batch_size": run.batch, "gpus": run.ranks, "unit": run.unit,
        "intervals": _intervals(found) if found else [],
        "average_seconds": round(found.average, 3) if found else None,
        "least_seconds": found.least if found else None,
        "most_seconds": found.most if found else None,
        "target": {"setup": found.target.setup, "seconds": found.target.seconds, "source": found.target.source}
        if found and found.target else None,
        "result": (found.result or "none") if found else "empty",
        "evaluations": [
            {"step": one.step, "epoch": one.epoch, "metric": one.metric, "value": one.value} for one in run.evaluations
        ],
        "throughput": list(run.throughput), "status": run.status, "seconds": run.seconds,
        "notes": [*run.notes, *(found.notes if found else ())],
    }  # fmt: skip


def _intervals(found: Comparison) -> Sequence[dict[str, float]]:
    return [{"first": one.first, "last": one.last, "ms": one.ms} for one in found.intervals]
