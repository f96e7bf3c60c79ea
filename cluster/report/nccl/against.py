"""A run beside earlier ones of the same kind: by size, and over time."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from cluster.findings import Finding, Level
from cluster.report.nccl.curve_findings import LARGE
from cluster.report.nccl.run import Log, Run, text_of
from cluster.report.nccl.subject import Given, Subject, subject_of
from cluster.report.plot import Curve

_CHANGE = 0.05
"""Share by which bandwidth has to differ: runs of the same nodes usually differ by less than 3 % at large sizes."""
_MOST_CURVES = 3


@dataclass(frozen=True)
class Saved:
    """An earlier run."""

    name: str
    run: Run
    subject: Subject
    time: datetime


@dataclass(frozen=True)
class Comparison:
    """A run and those that it is compared with, in order of time."""

    run: Run
    saved: tuple[Saved, ...]
    others: int
    """Logs that were left out: of another kind (Subject.kind), or cut short."""

    def ratios(self) -> dict[int, tuple[float, float]]:
        """Size -> median of the earlier runs in GB/s, and this run as a share of it."""
        earlier = [one.run.curve() for one in self.saved]
        found: dict[int, tuple[float, float]] = {}
        for size, busbw in self.run.curve().items():
            values = [curve[size] for curve in earlier if curve.get(size)]
            if values:
                found[size] = statistics.median(values), busbw / statistics.median(values)
        return found

    def lines(self) -> list[str]:
        """By size, then over time where there is more than one earlier run."""
        if not self.saved:
            return [f"Nothing to compare with: {self.others} logs, none of the same test on the same machines"]
        count = len(self.saved)
        found = [f"Compared with {count} earlier {'run' if count == 1 else 'runs'}{self._left_out()}"]
        found.append(f"{'size':>9}  {'earlier':>8}  {'this run':>8}  {'share':>6}")
        curve = self.run.curve()
        found += [
            f"{text_of(size):>9}  {median:8.2f}  {curve[size]:8.2f}  {share:6.0%}"
            for size, (median, share) in self.ratios().items()
        ]
        if count > 1:
            found += ["", f"{'date':16}  {'at large sizes':>14}  log"]
            found += [f"{one.time:%Y-%m-%d %H:%M}  {level(one.run):10.1f} GB/s  {one.name}" for one in self.saved[-20:]]
        return found

    def finding(self, where: str) -> Finding:
        """The change in words."""
        ratios = {size: share for size, (_, share) in self.ratios().items()}
        large = [share for size, share in ratios.items() if size >= LARGE] or list(ratios.values())
        change = statistics.fmean(large) - 1 if large else 0.0
        if not ratios:
            what, todo = "No earlier run of the same kind", "name a folder with logs of the same test on as many nodes"
        elif change <= -_CHANGE:
            what = (
                f"Slower: {-change:.0%} less bandwidth at large sizes than the median of {len(self.saved)} earlier runs"
            )
            since = _since([(one.name, one.time, level(one.run)) for one in self.saved])
            what += f". {since}" if since else ". The runs before were steady, so something changed since the last one"
            todo = "see what changed then: image, driver, plugin, nodes. Run it on pairs of nodes to see which are slow"
        elif change >= _CHANGE:
            what, todo = f"Faster: {change:.0%} more bandwidth at large sizes than before", "nothing"
        else:
            what, todo = f"No change: {1 + change:.0%} of the median of {len(self.saved)} earlier runs", "nothing"
        level_ = Level.WARNING if ratios and change <= -_CHANGE else Level.INFO
        return Finding(id="nccl-against", level=level_, at=where, what=what, todo=todo)

    def curves(self) -> list[Curve]:
        """The median of the earlier runs, or each where they are few."""
        if len(self.saved) <= _MOST_CURVES:
            return [Curve(one.name, list(one.run.curve().items())) for one in self.saved]
        return [Curve(f"median of {len(self.saved)}", [(size, median) for size, (median, _) in self.ratios().items()])]

    def document(self) -> dict[str, Any]:
        ratios = self.ratios()
        return {
            "runs": [{"file": one.name, "date": one.time.isoformat(), "busbw": level(one.run)} for one in self.saved],
            "left_out": self.others,
            "sizes": {str(size): {"earlier": earlier, "share": share} for size, (earlier, share) in ratios.items()},
        }

    def _left_out(self) -> str:
        return f"; {self.others} logs of other kinds are left out" if self.others else ""


def compare(run: Run, subject: Subject, logs: Sequence[tuple[Log, datetime]], given: Given | None = None) -> Comparison:
    """Compare with those of `logs` that are of the same kind. The date of a log is its header's, else the one given."""
    same: list[Saved] = []
    for log, modified in logs:
        other = log.last
        its = subject_of(other, given)
        if other.complete and other.rows and not other.mixed and its.kind == subject.kind:
            same.append(Saved(log.name, other, its, date_of(other) or modified))
    same.sort(key=lambda one: one.time)
    return Comparison(run, tuple(same), len(logs) - len(same))


def date_of(run: Run) -> datetime | None:
    """When a run began, by its header: UTC."""
    try:
        found = datetime.fromisoformat(run.facts.get("date", "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def level(run: Run) -> float:
    """Average busbw out of place at large sizes, else at all."""
    curve = run.curve()
    return statistics.fmean([busbw for size, busbw in curve.items() if size >= LARGE] or list(curve.values()) or [0.0])


def _since(history: Sequence[tuple[str, datetime, float]]) -> str:
    """The step in a series of runs after which it stayed lower, in words; empty where it was steady."""
    steps: Iterator[tuple[float, int]] = (
        (statistics.fmean(value for *_, value in history[at:]) / statistics.fmean(v for *_, v in history[:at]), at)
        for at in range(1, len(history))
        if any(value for *_, value in history[:at])
    )
    ratio, at = min(steps, default=(1.0, 0))
    if ratio > 1 - _CHANGE:
        return ""
    name, time, _ = history[at]
    return f"It is so since {time:%Y-%m-%d %H:%M} ({name}): from there on {1 - ratio:.0%} less than before"
