"""A result as lines of text, as a document for programs, and as curves."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from cluster.findings import Finding, Level
from cluster.report.nccl.result import Given, NcclResult, Subject, subject_of
from cluster.report.nccl.run import Measure, NcclLog, Run, text_of
from cluster.report.plot import Curve

X_LABEL, Y_LABEL = "message size", "bus bandwidth (busbw), GB/s"
_HEADING = ("size", "time us", "algbw", "busbw", "#wrong", "time us", "algbw", "busbw", "#wrong")
_MARKS = {True: "met: ", False: "not met: ", None: ""}


def lines_of(log: NcclLog, result: NcclResult, given: Given | None = None) -> list[str]:
    """Every run as a table, then the result with its reasons, and the findings."""
    found: list[str] = []
    for number, run in enumerate(log.runs, 1):
        subject = result.subject if run is result.run else subject_of(run, given)
        place = f"run {number} of {len(log.runs)}, " if len(log.runs) > 1 else ""
        found += [f"{log.name}: {place}{subject or 'unknown'}", *table_of(run, subject), _footer(run), ""]
    found.append(f"Result: {result.outcome.value}")
    found += [f"  {_MARKS[reason.met]}{reason.text}" for reason in result.reasons]
    for finding in result.findings:
        found += ["", *lines_of_finding(finding)]
    return found


def table_of(run: Run, subject: Subject) -> list[str]:
    """Rows in columns: out of place and in place, and the share of the reference where there is one."""
    reference = subject.reference.busbw if subject.reference else {}
    heading = [*_HEADING, *(("reference", "share") if reference else ())]
    rows = [heading]
    for row in run.rows:
        cells = [text_of(row.size), *_cells(row.out_of_place), *_cells(row.in_place)]
        if reference:
            expected, busbw = reference.get(row.size), row.measures[0].busbw
            cells += [f"{expected:.1f}", f"{busbw / expected:.0%}"] if expected else ["", ""]
        rows.append(cells)
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(heading))]
    drawn = ["  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) for cells in rows]
    half = sum(widths[1:5]) + 6
    above = f"{'':{widths[0]}}  {'out of place':^{half}}  {'in place':^{half}}".rstrip()
    return [above, *(line.rstrip() for line in drawn)] if run.rows else ["no rows"]


def lines_of_finding(finding: Finding) -> list[str]:
    """A finding with its level, and what to do in a line of its own."""
    level = "note" if finding.level is Level.INFO else finding.level.value
    return [f"{level}: {finding.what}. [{finding.id}, {finding.where}]", f"  to do: {finding.todo}"]


def curves_of(result: NcclResult, others: Iterable[Curve] = ()) -> tuple[list[Curve], dict[float, str]]:
    """Curves of a run (out of place), of others and of the reference, and texts for their sizes."""
    run, reference = result.run, result.subject.reference
    curves = [Curve("this run", list(run.curve().items())), *others]
    if reference and reference.busbw:
        curves.append(Curve("reference", list(reference.busbw.items()), reference=True))
    sizes = {x for curve in curves for x, _ in curve.points}
    return curves, {size: text_of(int(size)) for size in sorted(sizes)}


def document_of(log: NcclLog, result: NcclResult) -> dict[str, Any]:
    """Return all of it for programs; numbers that are not finite are null."""
    subject, reference = result.subject, result.subject.reference
    return {
        "file": log.name,
        "result": result.outcome.value,
        "reasons": [{"text": reason.text, "met": reason.met, "source": reason.source} for reason in result.reasons],
        "findings": [
            {
                "id": finding.id,
                "level": finding.level.value,
                "where": finding.where,
                "what": finding.what,
                "todo": finding.todo,
            }
            for finding in result.findings
        ],
        "machine_type": subject.machine_type,
        "gpu": subject.gpu,
        "nodes": subject.nodes,
        "hosts": list(result.run.hosts),
        "ranks": subject.ranks,
        "collective": subject.collective,
        "network_only": subject.network_only,
        "reference": {str(size): busbw for size, busbw in reference.busbw.items()} if reference else None,
        "last": next(number for number, run in enumerate(log.runs) if run is result.run),
        "runs": [_document(run) for run in log.runs],
    }


def _document(run: Run) -> dict[str, Any]:
    return {
        "line": run.line,
        "program": run.program,
        "facts": dict(run.facts),
        "complete": run.complete,
        "average": _finite(run.average),
        "out_of_bounds": run.out_of_bounds,
        "rows": [
            {
                **{name: getattr(row, name) for name in ("size", "count", "type", "redop", "root")},
                "out_of_place": _half(row.out_of_place),
                "in_place": _half(row.in_place),
            }
            for row in run.rows
        ],
    }


def _half(measure: Measure | None) -> dict[str, float | int | None] | None:
    return {name: _finite(value) for name, value in measure._asdict().items()} if measure else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _cells(measure: Measure | None) -> Sequence[str]:
    if measure is None:
        return ("", "", "", "")
    wrong = "N/A" if measure.wrong is None else str(measure.wrong)
    return (f"{measure.time_us:.1f}", f"{measure.algbw:.2f}", f"{measure.busbw:.2f}", wrong)


def _footer(run: Run) -> str:
    if run.average is None:
        return "no footer"
    bounds = "" if run.out_of_bounds is None else f", {run.out_of_bounds} values out of bounds"
    return f"average busbw of all rows: {run.average:g} GB/s{bounds}"
