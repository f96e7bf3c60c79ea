"""Answers of the cases, and how they are shown: a table for the screen, a page for docs/."""

import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

INTRODUCTION = """\
# Benchmarks

Written by `./hpc bench --write`; `./hpc bench` measures again, on any machine that can rehearse. What is compared is
measured in turns, in one run, and a ratio is the median of its rounds: what slows the machine down slows both sides.
"""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One thing measured several times."""

    name: str
    values: tuple[float, ...]
    unit: str = "s"
    at: float | None = None
    """Where on the x axis, if the series is a point of a curve."""

    @property
    def median(self) -> float:
        """The middle value, which one slow round does not move."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The least value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The greatest value."""
        return max(self.values)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a case holds us to: that `value` stays below `limit`."""

    what: str
    value: float
    limit: float
    unit: str = "s"
    """`s`, or `x` for a ratio."""

    @property
    def met(self) -> bool:
        """Whether it is so."""
        return self.value < self.limit


@dataclass(frozen=True, kw_only=True)
class Result:
    """A case's answer."""

    case: str
    title: str
    series: tuple[Series, ...] = ()
    claims: tuple[Claim, ...] = ()
    seconds: float = 0.0
    """What the whole case took."""
    problem: str = ""
    """Why there is no answer, if there is none."""

    @property
    def ok(self) -> bool:
        """Whether there is an answer, and every claim is met."""
        return not self.problem and all(claim.met for claim in self.claims)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The answers of one run, and where they were found."""

    machine: Mapping[str, str]
    date: str
    results: Sequence[Result] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Report":
        """The opposite of `to_json`, after a trip through a file."""
        results = [
            Result(
                **{
                    **row,
                    "series": tuple(Series(**{**one, "values": tuple(one["values"])}) for one in row["series"]),
                    "claims": tuple(Claim(**claim) for claim in row["claims"]),
                }
            )
            for row in document["results"]
        ]
        return cls(machine=document["machine"], date=document["date"], results=tuple(results))

    def merged(self, newer: "Report") -> "Report":
        """This report with the answers of a newer run in the place of its own, in this one's order."""
        there = {result.case: result for result in newer.results}
        kept = [there.pop(result.case, result) for result in self.results]
        return Report(machine=newer.machine, date=newer.date, results=(*kept, *there.values()))


def ratio(ours: Series, theirs: Series) -> float:
    """The median of ours to theirs, round by round, so that what slows the machine down for a while slows both."""
    return statistics.median(a / b for a, b in zip(ours.values, theirs.values, strict=True))


def table(report: Report) -> list[str]:
    """Every claim and every series on a line of its own, in columns."""
    rows = [("", "MEASURED", "GOAL", ""), *(row for result in report.results for row in _rows(result))]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _rows(result: Result) -> list[tuple[str, str, str, str]]:
    rows = [(f"{result.case}: {result.title}", "", "", "")]
    rows += [
        (f"  {claim.what}", quantity(claim.value, claim.unit), _goal(claim), _outcome(claim)) for claim in result.claims
    ]
    rows += [(f"    {one.name}", quantity(one.median, one.unit), "", _spread(one)) for one in result.series]
    rows += [(f"  no answer: {line}", "", "", "") for line in result.problem.splitlines()[:1]]
    return rows


def page(report: Report) -> str:
    """docs/reference/benchmarks.md."""
    machine = report.machine
    where = (
        f"Measured on {report.date}: {machine['processor']}, {machine['cores']} cores, {machine['memory']} of memory, "
        f"{machine['kernel']}, {machine['distribution']}, Python {machine['python']}."
    )
    parts = [INTRODUCTION, where, "", *_claims(report.results)]
    for result in report.results:
        parts += [f"\n## {result.title}\n", *_details(result)]
    return "\n".join(parts).rstrip() + "\n"


def _claims(results: Sequence[Result]) -> list[str]:
    lines = ["| | measured | goal | |", "|---|---|---|---|"]
    for result in results:
        for claim in result.claims:
            cells = (claim.what, quantity(claim.value, claim.unit), _goal(claim), _outcome(claim))
            lines.append(f"| {' | '.join(cells)} |")
        if result.problem:
            lines.append(f"| {result.case} | no answer | | failed |")
    return lines


def _details(result: Result) -> list[str]:
    if result.problem:
        return [f"No answer: {result.problem.splitlines()[0]}"]
    lines = ["| | median | least to most | rounds |", "|---|---|---|---|"]
    for one in result.series:
        least = f"{quantity(one.low, one.unit)} to {quantity(one.high, one.unit)}"
        lines.append(f"| {one.name} | {quantity(one.median, one.unit)} | {least} | {len(one.values)} |")
    return lines


def quantity(value: float, unit: str) -> str:
    """A number with its unit, with as many digits as mean something."""
    if unit == "x":
        return f"{value:.2f} x"
    digits = 0 if value >= 100 else 1 if value >= 1 else 3
    return f"{value:.{digits}f} {unit}"


def _goal(claim: Claim) -> str:
    return f"under {quantity(claim.limit, claim.unit)}"


def _outcome(claim: Claim) -> str:
    return "met" if claim.met else "MISSED"


def _spread(one: Series) -> str:
    rounds = f"{len(one.values)} round{'s' if len(one.values) > 1 else ''}"
    return f"{quantity(one.low, one.unit)} to {quantity(one.high, one.unit)}, {rounds}"


def description() -> dict[str, str]:
    """Processor, memory, kernel, distribution and Python."""
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


def load() -> float:
    """Processes that want a core, averaged over the last minute."""
    return os.getloadavg()[0]


def _pairs(path: str, separator: str) -> Iterator[tuple[str, str]]:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, found, value = line.partition(separator)
        if found:
            yield name.strip(), value.strip()
