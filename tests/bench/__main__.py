"""Measures, and prints a page of the results: `.venv/bin/python -m tests.bench`, as root."""

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cli import console
from cli.interrupts import exit_on_termination
from cli.operation import localhost
from components.local.host import network
from tests.bench.cases import CASES, Case
from tests.bench.clusters import ROOT, Bench, Goal

PLACE = Path("/var/tmp/hpc-bench")  # noqa: S108 - root's own folder on a disk, which overlay mounts need
PAGE = ROOT / "docs/reference/benchmarks.md"
HEAD = """\
# Benchmarks

Written by `.venv/bin/python -m tests.bench --write`, which measures again on any machine that can rehearse. What is
compared is measured in turns, in one run, and a ratio is the median of its rounds: what slows the machine down slows
both sides.
"""


class Result(NamedTuple):
    """The answer of a case, or the problem that left it without one."""

    case: Case
    series: dict[str, list[float]]
    goals: list[Goal]
    problem: str = ""


def measure(cases: Sequence[Case], *, quick: bool, say: Callable[[str], None]) -> Iterator[Result]:
    """Yield the results of the cases. One that fails is reported, and the next runs. All is below a root that is
    removed at the end."""
    with network.own_root(PLACE, "bench") as root:
        for case in cases:
            say(f"{case.title} ...")
            began, problem, series, goals = time.monotonic(), "", {}, []
            try:
                series, goals = case.run(Bench(root, quick=quick))
            except Exception as error:  # noqa: BLE001 - the other cases run whatever went wrong
                problem = str(error) or type(error).__name__
            for name in network.stacks(root):
                network.sweep(root, name)
            say(f"  {problem or 'done'}, {time.monotonic() - began:.0f} s")
            yield Result(case, series, goals, problem)


def page(results: Sequence[Result]) -> str:
    """Return docs/reference/benchmarks.md."""
    goals: list[Sequence[str]] = []
    parts: list[str] = []
    for result in results:
        unit, short = result.case.unit, result.problem.partition("\n")[0]
        goals += [[goal.what, quantity(goal.value, goal.unit), f"under {quantity(goal.limit, goal.unit)}", goal.outcome]
                  for goal in result.goals]  # fmt: skip
        rows = [
            [name, quantity(statistics.median(values), unit),
             f"{quantity(min(values), unit)} to {quantity(max(values), unit)}", str(len(values))]
            for name, values in result.series.items()
        ]  # fmt: skip
        table = markdown(["", "median", "least to most", "rounds"], rows)
        parts.append(f"## {result.case.title}\n\n{f'No answer: {short}' if short else table}")
    head = f"{HEAD}\nMeasured on {time.strftime('%Y-%m-%d')}: {machine()}."
    return "\n\n".join([head, markdown(["", "measured", "goal", ""], goals), *parts]) + "\n"


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (heading, *rows)]
    return "\n".join([lines[0], "|---" * len(heading) + "|", *lines[1:]])


def quantity(value: float, unit: str) -> str:
    """Return a number with its unit, with its significant digits."""
    digits = 2 if unit == "x" else 0 if value >= 100 else 1 if value >= 1 else 3
    return f"{value:.{digits}f} {unit}"


def machine() -> str:
    """Return this machine's processor, memory, kernel, distribution and Python."""
    files = "".join(Path(path).read_text() for path in ("/proc/cpuinfo", "/proc/meminfo")).splitlines()
    rows = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in files)}
    memory = int(rows["MemTotal"].split()[0]) / 2**20
    return (
        f"{rows.get('model name', platform.machine())}, {os.cpu_count()} cores, {memory:.0f} GiB of memory, "
        f"{platform.system()} {platform.release()}, {platform.freedesktop_os_release()['PRETTY_NAME']}, "
        f"Python {platform.python_version()}"
    )


def main(arguments: list[str]) -> int:
    """Measure by cases that compare two things in turns, and print the results.

    Makes clusters of its own on this machine, beside any that are up, and removes them at the end, also on Ctrl-C. Give
    it a quiet machine: about ten minutes. The exit code is 1 if a goal is missed.
    """
    parser = argparse.ArgumentParser("python -m tests.bench", description=main.__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"ask only these cases of {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="one round, small clusters: shows that all works")
    parser.add_argument("--write", action="store_true", help="write docs/reference/benchmarks.md, of all cases")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}. There are: {', '.join(CASES)}.")
    if given.write and (given.quick or given.names):
        parser.error("--write needs full rounds of all cases: leave out --quick and each NAME.")
    localhost.prepare()
    with exit_on_termination():
        chosen = [CASES[name] for name in given.names or CASES]
        results = list(measure(chosen, quick=given.quick, say=console.note))
    if given.write:
        PAGE.write_text(page(results), encoding="utf-8")
    console.line(page(results))
    # One quick round shows only that a case works, not how fast it is.
    met = given.quick or all(goal.met for result in results for goal in result.goals)
    return 0 if met and not any(result.problem for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
