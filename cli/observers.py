"""Opens the access that a platform's observer reads a cluster through, and prints its reports and logs."""

import datetime as dt
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from cli import console
from cli.access import remote
from cli.access.kubectl import KubeApi, Kubernetes
from cli.cluster.cluster import from_outputs
from cli.cluster.scheduler import Scheduler
from cli.display import status_screen
from cli.errors import CliError
from cli.interrupts import unwound
from cluster.observe.logs import Clock
from cluster.observe.moment import MomentError, at
from cluster.observe.observation import Difference
from cluster.platforms.observer import Access, Asked, Ended, Observer, StatusReport, Table
from scripts.node.slurm.hostlist import compress

SECONDS = 20.0
"""Time limit of one question."""
_LOG_SECONDS = 60.0
_AT_ONCE = 64
"""Logs that are read side by side: each costs a process."""
_OURS = "hpc: "
"""Beginning of the reasons that this program drains nodes with (scripts/node/slurm/scheduler.py)."""


@contextmanager
def opened(stack: str, outputs: Mapping[str, Any], seconds: float | None = None) -> Generator[Access]:
    """The access to a cluster, while its kubeconfig is here. Raises CliError: the stack is not up, or this machine has
    no kubectl."""
    cluster = from_outputs(stack, outputs)

    def run(line: str) -> Ended:
        done = remote.capture(cluster.controller, cluster.admin_key, line, seconds=seconds or SECONDS)
        return Ended(reached=done.reached, out=done.out, err=done.err, asked=done.asked, answered=done.answered)

    with unwound(), ExitStack() as files:
        api = KubeApi(files, Kubernetes.of(outputs.get("kubernetes")), seconds or SECONDS)
        yield Access(
            stack=stack,
            namespace=api.kubernetes.namespace,
            controller=cluster.controller.name,
            roles={name: target.roles for name, target in cluster.targets.items()},
            pods={name: str(target.row.get("pod") or name) for name, target in cluster.targets.items()},
            kubectl=api.ask,
            run=run,
        )


def show(report: StatusReport, *, json: bool) -> int:
    """Print a report; the exit code."""
    if json:
        console.json(report.document)
    else:
        now = time.time()
        status_screen.show_findings(report.seen, report.findings, now)
        for table in tables(report, now):
            console.line()
            console.table(table)
    return 1 if report.findings else 0


def tables(report: StatusReport, now: float) -> list[status_screen.Table]:
    """The tables of a report that have rows."""
    common = {name: getattr(status_screen, name) for name in ("nodes", "partitions", "queue", "alerts")}
    every = [common[one](report.seen) if isinstance(one, str) else _rows(one, now) for one in report.tables]
    return [table for table in every if table]


def _rows(table: Table, now: float) -> list[tuple[str, ...]]:
    """A table as people read it; nothing of one without rows."""

    def cell(value: str | float | None) -> str:
        return value if isinstance(value, str) else status_screen.ago(now - value) if value else "-"

    cells = [tuple(map(cell, row)) for row in table.rows]
    rows = [(*row[:-1], status_screen.cut(row[-1], table.widest)) for row in cells]
    return [table.heading, *rows] if rows else []


def drift(
    observer: Observer, stack: str, outputs: Mapping[str, Any], seconds: float | None
) -> tuple[list[Difference], list[str]]:
    """Compare the cluster with its stack; differences, and texts on what could not be compared. Raises CliError: the
    last `up` did not end well."""
    if "config" not in outputs:
        raise CliError(
            f"stack {stack} has no output of its configuration: its last `up` did not end well. Repeat it: "
            f"./hpc up {stack}"
        )
    with opened(stack, outputs, seconds) as access:
        try:
            return observer.drift(access, outputs["config"])
        except LookupError as error:
            raise CliError(str(error)) from None


class Printer:
    """Prints lines of logs in the order of their times, behind their machine's name where there are several."""

    def __init__(self, names: list[str], *, shown: Callable[[str], str] = str) -> None:
        self._shown = shown
        self._clocks = {name: Clock(name) for name in names}
        width = max(map(len, names))
        self._prefix = {name: f"{name:<{width}} | " if len(names) > 1 else "" for name in names}

    def lines(self, came: Mapping[str, list[str]]) -> None:
        """Print these lines in the order of their times."""
        lines = sorted(self._clocks[name].line(text) for name, texts in came.items() for text in texts)
        console.lines(f"{self._prefix[line.machine]}{self._shown(line.text)}" for line in lines)

    def notes(self, came: Mapping[str, list[str]]) -> None:
        """Print notes on machines on standard error."""
        for name, texts in came.items():
            for text in texts:
                console.note(f"{name}: {text}")


def logs(observer: Observer, stack: str, outputs: Mapping[str, Any], asked: Asked) -> int:
    """Print logs, those of several pods merged by their times; 1 if none could be read. Raises CliError: nothing is
    called so, or the cluster does not answer."""
    from_outputs(stack, outputs)
    with unwound(), ExitStack() as files:
        api = KubeApi(files, Kubernetes.of(outputs.get("kubernetes")), _LOG_SECONDS)
        pods = api.ask("get", "pods", "--all-namespaces", "--output=json")
        if pods.code:
            raise CliError(f"the pods of stack {stack} can't be listed: {pods.why}")
        try:
            words = observer.logs(replace(asked, since=_rfc3339(asked.since)), pods.items, api.kubernetes.namespace)
        except LookupError as error:
            raise CliError(str(error)) from None
        say = Printer(list(words), shown=observer.shown)
        if asked.follow:
            commands = {name: api.argv(*line) for name, line in words.items()}
            remote.follow_commands(commands, show=say.lines, note=say.notes, ends_with_input=False)
            # It ends by itself only where nothing could be followed any more.
            return 1
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            answers = dict(zip(words, pool.map(lambda line: api.ask(*line), words.values()), strict=True))
    say.lines({name: answer.out.splitlines() for name, answer in answers.items()})
    when = f" since {asked.since}" if asked.since else ""
    for name, answer in answers.items():
        if answer.code:
            say.notes({name: [f"can't be read: {answer.why}"]})
        elif not answer.out and asked.lines != 0:
            say.notes({name: [f"nothing{when} in its log"]})
    return 0 if any(not answer.code for answer in answers.values()) else 1


def _rfc3339(since: str) -> str:
    """A moment as kubectl takes it. Pods have no zone of their own, so a time of day is UTC. Raises CliError."""
    if not since:
        return ""
    try:
        return at(since, dt.datetime.now(dt.timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")
    except MomentError as error:
        raise CliError(f"--since: {error}") from None


def recover(stack: str, outputs: Mapping[str, Any], *, quiet: bool) -> bool:
    """Resume the nodes that a failed `up` drained; whether all are in service.

    An `up` drains nodes before their pods go. After one that succeeded, every node that is left is to stay.
    """
    reached = from_outputs(stack, outputs)
    scheduler = Scheduler(reached, stack)
    try:
        nodes = [node for name, node in scheduler.nodes().items() if name in reached.targets]
        ours = [node.name for node in nodes if node.drained and node.reason.startswith(_OURS)]
        if ours:
            scheduler.resume(ours)
            if not quiet:
                console.line(f"  resumed {compress(ours)}, which an earlier `up` had drained", style="dim")
    except CliError as error:
        console.note(f"The edit of an earlier `up` may still be half done: {error}")
        return False
    return True
