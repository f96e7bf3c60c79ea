"""Opens the connection through which a platform's observer reads a cluster, and prints its reports and logs."""

import datetime as dt
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from cli import console, options
from cli.access import remote
from cli.access.kubectl import KubeApi, KubernetesOutput
from cli.cluster.cluster import Cluster
from cli.cluster.scheduler import Scheduler
from cli.display import status_screen
from cli.errors import CliError
from cli.interrupts import exit_on_termination
from cluster.observe.logs import LineClock
from cluster.observe.moment import parse_moment
from cluster.platforms.observer import ClusterAccess, ControllerResult, LogRequest, Observer, ReportTable, StatusReport
from scripts.node.slurm.hostlist import compress

_SECONDS = 20.0
"""Default time limit of one call."""
_LOG_SECONDS = 60.0
_LOGS_AT_ONCE = 64
"""Logs that are read at the same time: each is a process of kubectl."""
_OWN_REASON = "hpc: "
"""The beginning of the reasons with which this program drains nodes (scripts/node/slurm/scheduler.py)."""


@contextmanager
def open_access(cluster: Cluster, seconds: float | None = None) -> Generator[ClusterAccess]:
    """Open the connection to a cluster; its kubeconfig is on this machine until the block ends. Raises CliError: this
    machine has no kubectl."""
    limit = seconds or _SECONDS

    def run(line: str) -> ControllerResult:
        done = remote.capture(cluster.controller, cluster.admin_key, line, seconds=limit)
        return ControllerResult(
            reached=done.reached, out=done.out, err=done.err, asked=done.asked, answered=done.answered
        )

    with exit_on_termination(), ExitStack() as files:
        api = KubeApi(files, KubernetesOutput.of(cluster.outputs.get("kubernetes")), limit)
        yield ClusterAccess(
            stack=cluster.stack,
            namespace=api.kubernetes.namespace,
            controller=cluster.controller.name,
            roles={name: target.roles for name, target in cluster.targets.items()},
            pods={name: str(target.row.get("pod") or name) for name, target in cluster.targets.items()},
            kubectl=api.ask,
            run=run,
        )


def print_report(report: StatusReport, *, json: bool) -> int:
    """Print a report, and return the exit code."""
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
    """Return the tables of a report that have rows."""
    common = {name: getattr(status_screen, name) for name in ("nodes", "partitions", "queue", "alerts")}
    every = [
        common[table](report.seen) if isinstance(table, str) else _table_rows(table, now) for table in report.tables
    ]
    return [rows for rows in every if rows]


def _table_rows(table: ReportTable, now: float) -> list[tuple[str, ...]]:
    """Format a table, times as ages; empty if it has no rows."""

    def cell(value: str | float | None) -> str:
        return value if isinstance(value, str) else status_screen.ago(now - value) if value else "-"

    cells = [tuple(map(cell, row)) for row in table.rows]
    rows = [(*row[:-1], status_screen.cut(row[-1], table.widest)) for row in cells]
    return [table.heading, *rows] if rows else []


class LogPrinter:
    """Prints lines of logs in the order of their times, after their machine's name where there are several."""

    def __init__(self, names: list[str], *, reformat: Callable[[str], str] = str) -> None:
        """`reformat` returns a line as it is printed."""
        self._reformat = reformat
        self._clocks = {name: LineClock(name) for name in names}
        width = max(map(len, names))
        self._prefix = {name: f"{name:<{width}} | " if len(names) > 1 else "" for name in names}

    def lines(self, texts: Mapping[str, list[str]]) -> None:
        """Print lines, which are given by machine, in the order of their times."""
        lines = sorted(self._clocks[name].line(text) for name, log in texts.items() for text in log)
        console.lines(f"{self._prefix[line.machine]}{self._reformat(line.text)}" for line in lines)

    def notes(self, texts: Mapping[str, list[str]]) -> None:
        """Print notes, which are given by machine, on standard error."""
        for name, notes in texts.items():
            for text in notes:
                console.note(f"{name}: {text}")


def print_logs(observer: Observer, cluster: Cluster, asked: LogRequest) -> int:
    """Print logs, those of several pods merged by their times, and return the exit code: 1 if none could be read.
    Raises CliError: there is no such log, or the cluster does not answer."""

    def in_utc(text: str) -> str:
        """Return a point in time in RFC 3339, as kubectl takes it. Pods have no time zone, so a time of day is UTC."""
        return parse_moment(text, dt.datetime.now(dt.timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")

    with exit_on_termination(), ExitStack() as files:
        api = KubeApi(files, KubernetesOutput.of(cluster.outputs.get("kubernetes")), _LOG_SECONDS)
        pods = api.ask("get", "pods", "--all-namespaces", "--output=json")
        if pods.code:
            raise CliError(f"the pods of stack {cluster.stack} can't be listed: {pods.why}")
        since = options.read_time("--since", asked.since, in_utc) if asked.since else ""
        try:
            arguments = observer.logs(replace(asked, since=since), pods.items, api.kubernetes.namespace)
        except LookupError as error:
            raise CliError(str(error)) from None
        printer = LogPrinter(list(arguments), reformat=observer.shown)
        if asked.follow:
            commands = {name: api.argv(*words) for name, words in arguments.items()}
            remote.follow_commands(commands, show=printer.lines, note=printer.notes, ends_with_input=False)
            # Following ends by itself only where no log can be followed any more.
            return 1
        with ThreadPoolExecutor(max_workers=_LOGS_AT_ONCE) as pool:
            answers = dict(zip(arguments, pool.map(lambda words: api.ask(*words), arguments.values()), strict=True))
    printer.lines({name: answer.out.splitlines() for name, answer in answers.items()})
    when = f" since {asked.since}" if asked.since else ""
    for name, answer in answers.items():
        if answer.code:
            printer.notes({name: [f"can't be read: {answer.why}"]})
        elif not answer.out and asked.lines != 0:
            printer.notes({name: [f"nothing{when} in its log"]})
    return 0 if any(not answer.code for answer in answers.values()) else 1


def recover(cluster: Cluster, *, quiet: bool) -> bool:
    """Resume the nodes that a failed `up` drained, and return whether that succeeded.

    An `up` drains nodes before it deletes their pods. Once an `up` has succeeded, every node that exists is to stay.
    """
    scheduler = Scheduler(cluster)
    try:
        nodes = [node for name, node in scheduler.nodes().items() if name in cluster.targets]
        drained = [node.name for node in nodes if node.drained and node.reason.startswith(_OWN_REASON)]
        if drained:
            scheduler.resume(drained)
            if not quiet:
                console.line(f"  resumed {compress(drained)}, which an earlier `up` had drained", style="dim")
    except CliError as error:
        console.note(f"The edit of an earlier `up` may still be half done: {error}")
        return False
    return True
