"""The report of a log of nccl-tests: as text, as a document for programs, and as curves."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from cluster.findings import Finding, Level
from cluster.report.nccl_result import NcclResult, ReportOptions, Subject, describe_run
from cluster.report.nccl_run import Measure, NcclLog, ProgramRun, format_size
from cluster.report.plot import Curve

X_LABEL, Y_LABEL = "message size", "bus bandwidth (busbw), GB/s"
_HEADING = ("size", "time us", "algbw", "busbw", "#wrong", "time us", "algbw", "busbw", "#wrong")
_FACTS = ("machine_type", "gpu", "nodes", "ranks", "collective", "network_only")
_MARKS = {True: "met: ", False: "not met: ", None: ""}


def report_lines(log: NcclLog, result: NcclResult, given: ReportOptions | None = None) -> list[str]:
    """Return the report as text: a table for each run, the result with its reasons, and the findings."""
    found: list[str] = []
    for number, run in enumerate(log.runs, 1):
        subject = result.subject if run is result.run else describe_run(run, given)
        place = f"run {number} of {len(log.runs)}, " if len(log.runs) > 1 else ""
        found += [f"{log.name}: {place}{subject or 'unknown'}", *table_of(run, subject), _footer(run), ""]
    found.append(f"Result: {result.outcome.value}")
    found += [f"  {_MARKS[reason.met]}{reason.text}" for reason in result.reasons]
    for finding in result.findings:
        found += ["", *finding_lines(finding)]
    return found


def table_of(run: ProgramRun, subject: Subject) -> list[str]:
    """Return the table of a run: out of place, in place, and the share of the reference if there is one."""
    reference = subject.reference.busbw if subject.reference else {}
    heading = [*_HEADING, *(("reference", "share") if reference else ())]
    rows = [heading]
    for row in run.rows:
        cells = [format_size(row.size), *_cells(row.out_of_place), *_cells(row.in_place)]
        if reference:
            expected, busbw = reference.get(row.size), row.measures[0].busbw
            cells += [f"{expected:.1f}", f"{busbw / expected:.0%}"] if expected else ["", ""]
        rows.append(cells)
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(heading))]
    drawn = ["  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) for cells in rows]
    half = sum(widths[1:5]) + 6
    above = f"{'':{widths[0]}}  {'out of place':^{half}}  {'in place':^{half}}".rstrip()
    return [above, *(line.rstrip() for line in drawn)] if run.rows else ["no rows"]


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding with its level, and what to do on a second line."""
    level = "note" if finding.level is Level.INFO else finding.level.value
    return [f"{level}: {finding.what}. [{finding.id}, {finding.where}]", f"  to do: {finding.todo}"]


def report_curves(result: NcclResult, others: Iterable[Curve] = ()) -> tuple[list[Curve], dict[float, str]]:
    """Return the curves of a run (out of place), of others and of the reference, and texts for their sizes."""
    run, reference = result.run, result.subject.reference
    curves = [Curve("this run", list(run.curve().items())), *others]
    if reference and reference.busbw:
        curves.append(Curve("reference", list(reference.busbw.items()), reference=True))
    sizes = {x for curve in curves for x, _ in curve.points}
    return curves, {size: format_size(int(size)) for size in sorted(sizes)}


def report_document(log: NcclLog, result: NcclResult) -> dict[str, Any]:
    """Return the report for JSON. Numbers that are not finite are null."""
    subject, reference = result.subject, result.subject.reference
    shown = ("id", "level", "where", "what", "todo")
    return {
        "file": log.name,
        "result": result.outcome.value,
        "reasons": [asdict(reason) for reason in result.reasons],
        "findings": [{name: getattr(finding, name) for name in shown} for finding in result.findings],
        **{name: getattr(subject, name) for name in _FACTS},
        "hosts": list(result.run.hosts),
        "reference": {str(size): busbw for size, busbw in reference.busbw.items()} if reference else None,
        "last": next(number for number, run in enumerate(log.runs) if run is result.run),
        "runs": [_document(run) for run in log.runs],
    }


def _document(run: ProgramRun) -> dict[str, Any]:
    rows = [
        asdict(row) | {"out_of_place": _half(row.out_of_place), "in_place": _half(row.in_place)} for row in run.rows
    ]
    return {
        **{name: getattr(run, name) for name in ("line", "program", "facts", "complete")},
        "out_of_bounds": run.out_of_bounds if run.checked else None,
        "average": _finite(run.average),
        "rows": rows,
    }


def _half(measure: Measure | None) -> dict[str, float | int | None] | None:
    return {name: _finite(value) for name, value in measure._asdict().items()} if measure else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _cells(measure: Measure | None) -> tuple[str, ...]:
    if measure is None:
        return ("", "", "", "")
    wrong = "N/A" if measure.wrong is None else str(measure.wrong)
    return (f"{measure.time_us:.1f}", f"{measure.algbw:.2f}", f"{measure.busbw:.2f}", wrong)


def _footer(run: ProgramRun) -> str:
    if run.average is None:
        return "no footer"
    bounds = "results not checked" if not run.checked else f"{run.out_of_bounds or 0} values out of bounds"
    return f"average busbw of all rows: {run.average:g} GB/s, {bounds}"
