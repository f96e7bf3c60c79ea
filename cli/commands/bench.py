"""`./hpc bench`."""

import json as jsonlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from bench import cases, report
from bench.report import Report
from cli import console, options
from cli.errors import CliError
from cli.interrupts import exit_on_termination
from cli.operation import localhost
from cli.stack import project

_PAGE, _DATA = "benchmarks.md", "benchmarks.json"


def bench(
    names: Annotated[
        list[str] | None, Argument(metavar="[NAME...]", help="Ask only these cases; all if left out.")
    ] = None,
    *,
    quick: Annotated[bool, Option("--quick", help="One round, small clusters: shows that all works.")] = False,
    json: options.Json = False,
    write: Annotated[bool, Option("--write", help="Write docs/reference/benchmarks.md, with its data.")] = False,
) -> None:
    """Measure how fast this program is, by cases that compare two things in turns.

    Makes clusters of its own on this machine, beside any that are up, and removes them at the end, also on Ctrl-C. Give
    it a quiet machine: about ten minutes. The exit code is 1 if a goal is missed.
    """
    by_name = {case.name: case for case in cases.CASES}
    if unknown := [name for name in names or () if name not in by_name]:
        raise CliError(f"there is no case {unknown[0]!r}. There are: {', '.join(by_name)}.")
    if quick and write:
        raise CliError("--quick measures too little to be written down: leave out one of --quick and --write.")
    chosen = [by_name[name] for name in dict.fromkeys(names or by_name)]
    folder = project.ROOT / "docs" / "reference"
    earlier = _earlier_report(folder / _DATA) if write and names else None
    localhost.prepare()
    with exit_on_termination():
        measured = cases.run(chosen, quick=quick, say=console.note)
    if write:
        merged = earlier.merged(measured) if earlier else measured
        (folder / _DATA).write_text(jsonlib.dumps(asdict(merged), indent=1) + "\n", encoding="utf-8")
        (folder / _PAGE).write_text(report.page(merged), encoding="utf-8")
        console.note(f"Wrote {_PAGE} and {_DATA} in {folder}")
    if json:
        console.json(asdict(measured))
    else:
        console.table(report.table(measured))
    # One quick round shows only that a case works, not how fast it is.
    if not all(not result.problem if quick else result.ok for result in measured.results):
        raise Exit(1)


def _earlier_report(file: Path) -> Report | None:
    """Return the report into which new results are merged, if there is one. Raises CliError: it is of another
    machine."""
    if not file.exists():
        return None
    earlier = Report.from_json(jsonlib.loads(file.read_bytes()))
    if dict(earlier.machine) != report.description():
        raise CliError(f"{file} is of another machine: measure all cases here, without a NAME.")
    return earlier
