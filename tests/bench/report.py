"""Results of the cases, as a table for the screen and as a page for docs/."""

import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

INTRODUCTION = """\
# Benchmarks

Written by `.venv/bin/python -m tests.bench --write`, which measures again on any machine that can rehearse. What is
compared is measured in turns, in one run, and a ratio is the median of its rounds: what slows the machine down slows
both sides.
"""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A quantity that was measured several times."""

    name: str
    values: tuple[float, ...]
    unit: str = "s"

    @property
    def median(self) -> float:
        """The middle value, which one slow round does not move."""
        return statistics.median(self.values)

    @property
    def spread(self) -> str:
        """The least and the greatest value."""
        return f"{quantity(min(self.values), self.unit)} to {quantity(max(self.values), self.unit)}"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A goal of a case: `value` is below `limit`."""

    what: str
    value: float
    limit: float
    unit: str = "s"
    """`s`, or `x` for a ratio."""

    @property
    def met(self) -> bool:
        return self.value < self.limit

    @property
    def cells(self) -> tuple[str, str, str]:
        """The value, its goal and the outcome, for a table."""
        outcome = "met" if self.met else "MISSED"
        return quantity(self.value, self.unit), f"under {quantity(self.limit, self.unit)}", outcome


@dataclass(frozen=True, kw_only=True)
class Result:
    """A case's answer."""

    case: str
    title: str
    series: tuple[Series, ...] = ()
    claims: tuple[Claim, ...] = ()
    seconds: float = 0.0
    """Duration of the whole case."""
    problem: str = ""
    """The reason why there is no answer, if there is none."""

    @property
    def ok(self) -> bool:
        """True if there is an answer, and every claim is met."""
        return not self.problem and all(claim.met for claim in self.claims)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of one run, with its machine and date."""

    machine: Mapping[str, str]
    date: str
    results: tuple[Result, ...] = ()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Report":
        """Return the report in a JSON document."""
        results = []
        for row in document["results"]:
            series = tuple(replace(Series(**found), values=tuple(found["values"])) for found in row["series"])
            claims = tuple(Claim(**claim) for claim in row["claims"])
            results.append(replace(Result(**row), series=series, claims=claims))
        return cls(machine=document["machine"], date=document["date"], results=tuple(results))

    def merged(self, newer: "Report") -> "Report":
        """Return this report with the results of a newer run, in the order of this one."""
        results = {result.case: result for result in (*self.results, *newer.results)}
        return Report(machine=newer.machine, date=newer.date, results=tuple(results.values()))


def ratio(ours: Series, theirs: Series) -> float:
    """Return the median ratio of the rounds, so that a temporary load of the machine affects both sides."""
    return statistics.median(a / b for a, b in zip(ours.values, theirs.values, strict=True))


def table(report: Report) -> list[tuple[str, str, str, str]]:
    """Return the rows of a table: a heading, and each claim and each series in its own row."""
    rows = [("", "MEASURED", "GOAL", "")]
    for result in report.results:
        rows.append((f"{result.case}: {result.title}", "", "", ""))
        rows += [(f"  {claim.what}", *claim.cells) for claim in result.claims]
        for series in result.series:
            rounds = f"{len(series.values)} round{'s' if len(series.values) > 1 else ''}"
            rows.append((f"    {series.name}", quantity(series.median, series.unit), "", f"{series.spread}, {rounds}"))
        rows += [(f"  no answer: {line}", "", "", "") for line in result.problem.splitlines()[:1]]
    return rows


def page(report: Report) -> str:
    """Return docs/reference/benchmarks.md."""
    machine = report.machine
    where = (
        f"Measured on {report.date}: {machine['processor']}, {machine['cores']} cores, {machine['memory']} of memory, "
        f"{machine['kernel']}, {machine['distribution']}, Python {machine['python']}."
    )
    claims: list[tuple[str, ...]] = []
    details: list[str] = []
    for result in report.results:
        claims += [(claim.what, *claim.cells) for claim in result.claims]
        claims += [(result.case, "no answer", "", "failed")] if result.problem else []
        rows = [
            (series.name, quantity(series.median, series.unit), series.spread, str(len(series.values)))
            for series in result.series
        ]
        found = _markdown(("", "median", "least to most", "rounds"), rows)
        problem = [f"No answer: {line}" for line in result.problem.splitlines()[:1]]
        details += [f"\n## {result.title}\n", *(problem or found)]
    parts = [INTRODUCTION, where, "", *_markdown(("", "measured", "goal", ""), claims), *details]
    return "\n".join(parts).rstrip() + "\n"


def _markdown(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (heading, *rows)]
    return [lines[0], "|---" * len(heading) + "|", *lines[1:]]


def quantity(value: float, unit: str) -> str:
    """Return a number with its unit, with its significant digits."""
    if unit == "x":
        return f"{value:.2f} x"
    digits = 0 if value >= 100 else 1 if value >= 1 else 3
    return f"{value:.{digits}f} {unit}"


def description() -> dict[str, str]:
    """Return this machine's processor, memory, kernel, distribution and Python."""
    info = dict(_pairs("/proc/cpuinfo", ":"))
    memory = dict(_pairs("/proc/meminfo", ":")).get("MemTotal", "0 kB").split()[0]
    release = dict(_pairs("/etc/os-release", "="))
    return {
        "processor": info.get("model name", platform.machine()),
        "cores": str(os.cpu_count() or 1),
        "memory": f"{int(memory) / 2**20:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "distribution": release.get("PRETTY_NAME", "unknown").strip('"'),
        "python": platform.python_version(),
    }


def _pairs(path: str, separator: str) -> Iterator[tuple[str, str]]:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, found, value = line.partition(separator)
        if found:
            yield name.strip(), value.strip()
