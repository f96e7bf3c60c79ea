"""Output of the quickcheck: progress, a table of nodes and checks, then what failed, was skipped or not checked."""

import time
from dataclasses import asdict
from typing import Any

from rich.status import Status
from typing_extensions import Self

from cli import console
from cluster.jobs.quickcheck import FAIL, PASS, SKIP, CheckReport, CheckResult, NotChecked
from cluster.printable import one_line
from scripts.node.slurm.hostlist import compress

_ORDER = ("hello", "home", "shared", "memory", "gpus", "confined", "container", "nccl", "accounting")
"""Order of the table's columns."""
_LINES = 20
"""Last lines of a failing node's output that are printed."""
_PIPE_SECONDS = 5.0
"""Between two lines of progress in a pipe."""


class Progress:
    """Shows on standard error what is done now: on a terminal one line, in a pipe a line for each change that lasts."""

    def __init__(self, *, quiet: bool = False) -> None:
        """`quiet`: show nothing but on a terminal."""
        self._quiet, self._began, self._last = quiet, time.monotonic(), 0.0
        self._status: Status | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._began

    def show(self, text: str) -> None:
        """Replace the line."""
        text = one_line(text)
        if self._status:
            self._status.update(f"{text} ({self.elapsed:.0f} s)")
        elif not self._quiet and self.elapsed - self._last > _PIPE_SECONDS:
            self._last = self.elapsed
            console.note(text)

    def __enter__(self) -> Self:
        if console.stderr().is_terminal:
            self._status = console.stderr().status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()


def print_report(report: CheckReport, *, stack: str, user: str, seconds: float) -> None:
    """Print the report on standard output."""
    of_nodes = [result for result in report.results if result.node]
    checks = sorted({node_result.check for node_result in of_nodes}, key=_ORDER.index)
    rows: dict[str, dict[str, CheckResult]] = {}
    for node_result in of_nodes:
        rows.setdefault(node_result.node, {})[node_result.check] = node_result
    if rows:
        table = [("NODE", "PARTITION", *(check.upper() for check in checks))]
        for node, found in rows.items():
            partition = next(iter(found.values())).partition
            table.append((node, partition, *(_word(found.get(check)) for check in checks)))
        console.table(table)
    for result in report.results:
        if not result.node:
            where = f" (partition {result.partition})" if result.partition else ""
            console.line(f"{result.check}{where}: {_word(result)}{f', {result.text}' if result.text else ''}")
    _print_failures([result for result in report.results if result.status == FAIL], stack)
    _print_skipped([node_result for node_result in of_nodes if node_result.status == SKIP])
    _print_not_checked(report.not_checked, stack)
    console.line()
    counts = {word: sum(result.status == word for result in report.results) for word in (PASS, FAIL, SKIP)}
    text = f"{counts[PASS]} passed, {counts[FAIL]} failed, {counts[SKIP]} skipped"
    missing = len(report.not_checked)
    text += f", {missing} node{'s' if missing > 1 else ''} not checked" if missing else ""
    console.line(f"{text}, in {seconds:.1f} s, as {user}", style="bold")


def _word(result: CheckResult | None) -> str:
    return "-" if result is None else "FAIL" if result.status == FAIL else result.status


def _print_failures(results: list[CheckResult], stack: str) -> None:
    """Print failures; of those that are the same, with the output of the first node."""
    alike: dict[tuple[str, str, str], list[CheckResult]] = {}
    for result in results:
        alike.setdefault((result.check, result.text, "" if result.node else result.partition), []).append(result)
    for (check, text, partition), found in alike.items():
        first, nodes = found[0], [result.node for result in found if result.node]
        console.line()
        console.line(f"{compress(nodes) or partition or 'cluster'}: {check} failed: {text}", style="bold")
        lines = first.output.splitlines()
        if lines and len(nodes) > 1:
            console.line(f"  output of {first.node} (--json has those of all nodes):")
        for line in lines[-_LINES:]:
            console.line(f"  | {line}")
        if len(lines) > _LINES:
            console.line(f"  (the last {_LINES} of {len(lines)} lines)")
        if first.todo:
            console.line(f"  to do: {first.todo.replace('STACK', stack)}")


def _print_skipped(results: list[CheckResult]) -> None:
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in results:
        reasons.setdefault((result.check, result.text), []).append(result.node)
    if reasons:
        console.line()
    for (check, text), nodes in reasons.items():
        console.line(f"skipped: {check} on {compress(nodes)}: {text}")


def _print_not_checked(missing: tuple[NotChecked, ...], stack: str) -> None:
    if missing:
        console.line()
    for row in missing:
        todo = f" To do: {row.todo.replace('STACK', stack)}." if row.todo else ""
        console.line(f"not checked: {row.node} ({row.partition}): {row.why}.{todo}")


def report_document(report: CheckReport, *, user: str, seconds: float) -> dict[str, Any]:
    """The report for programs."""
    return {
        "passed": report.passed,
        "user": user,
        "seconds": round(seconds, 2),
        "results": [asdict(result) for result in report.results],
        "not_checked": [asdict(row) for row in report.not_checked],
    }
