"""Runs the bench, as root: `.venv/bin/python -m tests.bench`."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from cli import console
from cli.interrupts import exit_on_termination
from cli.operation import localhost
from tests.bench import cases, report
from tests.bench.report import Report

FOLDER = Path(__file__).parents[2] / "docs/reference"
PAGE, DATA = FOLDER / "benchmarks.md", FOLDER / "benchmarks.json"


def main(arguments: list[str]) -> int:
    """Measure how fast this program is, by cases that compare two things in turns.

    Makes clusters of its own on this machine, beside any that are up, and removes them at the end, also on Ctrl-C. Give
    it a quiet machine: about ten minutes. The exit code is 1 if a goal is missed.
    """
    by_name = {case.name: case for case in cases.CASES}
    parser = argparse.ArgumentParser("python -m tests.bench", description=main.__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"ask only these cases of {', '.join(by_name)}")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="one round, small clusters: shows that all works")
    mode.add_argument("--write", action="store_true", help="write docs/reference/benchmarks.md, with its data")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in by_name]:
        parser.error(f"there is no case {unknown[0]!r}. There are: {', '.join(by_name)}.")
    earlier = _earlier_report() if given.write and given.names else None
    localhost.prepare()
    with exit_on_termination():
        chosen = [by_name[name] for name in dict.fromkeys(given.names or by_name)]
        measured = cases.run(chosen, quick=given.quick, say=console.note)
    if given.write:
        merged = earlier.merged(measured) if earlier else measured
        DATA.write_text(json.dumps(asdict(merged), indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(report.page(merged), encoding="utf-8")
        console.note(f"Wrote {PAGE.name} and {DATA.name} in {FOLDER}")
    if given.json:
        console.json(asdict(measured))
    else:
        console.table(report.table(measured))
    # One quick round shows only that a case works, not how fast it is.
    return 0 if all(not result.problem if given.quick else result.ok for result in measured.results) else 1


def _earlier_report() -> Report | None:
    """Return the report into which new results are merged, if there is one. Exits if it is of another machine."""
    if not DATA.exists():
        return None
    earlier = Report.from_json(json.loads(DATA.read_bytes()))
    if dict(earlier.machine) != report.description():
        sys.exit(f"{DATA} is of another machine: measure all cases here, without a NAME.")
    return earlier


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
