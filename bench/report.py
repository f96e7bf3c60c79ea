"""The answers as text: a table for the screen, a page for docs/."""

from collections.abc import Sequence

from bench.result import Claim, Report, Result, Series

INTRODUCTION = """\
# Benchmarks

Written by `./hpc bench --write`; `./hpc bench` measures again, on any machine that can rehearse. What is compared is
measured in turns, in one run, and a ratio is the median of its rounds: what slows the machine down slows both sides.
"""


def table(report: Report) -> list[str]:
    """Every claim and every series on a line of its own, in columns."""
    rows = [("", "MEASURED", "GOAL", ""), *(row for result in report.results for row in _rows(result))]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _rows(result: Result) -> list[tuple[str, str, str, str]]:
    rows = [(f"{result.case}: {result.title}", "", "", "")]
    rows += [
        (f"  {claim.what}", quantity(claim.value, claim.unit), _goal(claim), _verdict(claim)) for claim in result.claims
    ]
    rows += [(f"    {one.name}", quantity(one.median, one.unit), "", _spread(one)) for one in result.series]
    rows += [(f"  no answer: {line}", "", "", "") for line in result.problem.splitlines()[:1]]
    return rows


def page(report: Report, plot: str) -> str:
    """docs/reference/benchmarks.md; `plot` is the picture's name beside it."""
    machine = report.machine
    where = (
        f"Measured on {report.date}: {machine['processor']}, {machine['cores']} cores, {machine['memory']} of memory, "
        f"{machine['kernel']}, {machine['distribution']}, Python {machine['python']}."
    )
    parts = [INTRODUCTION, where, f"\n![Results]({plot})\n", *_claims(report.results)]
    for result in report.results:
        parts += [f"\n## {result.title}\n", *_details(result)]
    return "\n".join(parts).rstrip() + "\n"


def _claims(results: Sequence[Result]) -> list[str]:
    lines = ["| | measured | goal | |", "|---|---|---|---|"]
    for result in results:
        for claim in result.claims:
            cells = (claim.what, quantity(claim.value, claim.unit), _goal(claim), _verdict(claim))
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


def _verdict(claim: Claim) -> str:
    return "met" if claim.met else "MISSED"


def _spread(one: Series) -> str:
    rounds = f"{len(one.values)} round{'s' if len(one.values) > 1 else ''}"
    return f"{quantity(one.low, one.unit)} to {quantity(one.high, one.unit)}, {rounds}"
