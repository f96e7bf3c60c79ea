"""A run as a table, in the form of the recipe's `parselog`: its numbers can be compared line by line."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from cluster.printable import one_line
from cluster.report.mlperf.compare import Comparison
from cluster.report.mlperf.run import Run

_RULE = "----------+---------------+-------------------"


def table(found: Comparison, unit: str) -> Iterator[str]:
    """Lines of the table; `unit` of its intervals."""
    yield f" interval |{unit:^15}|     duration     "
    yield _RULE
    for number, one in enumerate(found.intervals, 1):
        part = f"{_count(one.first):>6}-{_count(one.last):<6}"
        yield f" {number:8d} | {part} | {one.ms / 1000:6.2f}s ({one.ms}ms)"
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


def heading(run: Run, number: int, runs: int) -> str:
    """A line above the table of each of several runs."""
    return f"Run {number} of {runs}: {run.title}, from line {run.line}, {started(run)}"


def started(run: Run) -> str:
    """The time of a run's first event."""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=run.started_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def more(run: Run) -> Iterator[str]:
    """Lines on what else a log has of a run: its quality, its throughput, its end."""
    for one in run.evaluations[-20:]:
        at = f" at step {one.step}" if one.step is not None else ""
        at = f" at epoch {_count(one.epoch)}" if one.epoch is not None else at
        yield f" evaluation{at}: {one_line(one.metric)} {one.value:.4g}"
    if run.throughput:
        mean = sum(run.throughput) / len(run.throughput)
        yield f" throughput: {mean:.0f} a second, on average over {len(run.throughput)} values of the log"
    if run.seconds is not None or run.status:
        whole = f" in {timedelta(seconds=run.seconds)}" if run.seconds is not None else ""
        yield f" end of the run: {one_line(run.status) or 'RESULT'}{whole}"
