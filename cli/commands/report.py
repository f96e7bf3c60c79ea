"""`./hpc report`."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from cli import console, observers, options
from cli.cluster.cluster import Cluster, connect
from cli.cluster.observation import observe
from cli.commands import usage
from cli.commands.installation import program_version
from cli.display import status_screen
from cli.display.report_page import Report, Status, Unread, render, unread
from cli.errors import CliError
from cli.interrupts import exit_on_termination
from cli.stack import stack_config
from cluster.capability import Capability
from cluster.observe.moment import date_expression, machine_time
from cluster.observe.status_findings import findings
from cluster.platforms.observer import Observer
from cluster.platforms.observers import observer_of
from scripts.hostfiles import write_atomically

MARK = '<meta name="generator" content="hpc">'
"""An element in the head of every page, by which this program recognizes its own files."""
_HEAD_BYTES = 2000
"""Bytes at the beginning of a page in which this program writes its mark."""
_COMMON_TABLES = {"NODES": "nodes", "PARTITION": "partitions", "JOB": "queue"}
"""Names of the tables that every platform has, by their first heading."""


def report(
    stack: options.Stack,
    *,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="The page. Default: STACK-report.html.")
    ] = None,
    since: Annotated[str, Option("--since", metavar="TIME", help="Histories from then on.")] = "28d",
    force: Annotated[bool, Option("--force", help="Replace a file that is no report.")] = False,
) -> None:
    """Write one page about the cluster that can be sent and printed: one HTML file, without scripts.

    What the cluster is, what `status` finds, alerts that fire, usage, reliability with the history of health checks,
    versions. Nothing is changed. Parts that can't be read are named in the page. The page has names of users, jobs and
    machines.
    """
    begin = options.read_time("--since", since, date_expression)
    path = output or Path(f"{stack}-report.html")
    try:
        _require_report(path, force=force)
    except OSError as error:
        raise CliError(f"can't write {path}: {error.strerror or error}.") from None
    contents = _read_report(connect(stack), since, begin)
    page = render(contents)
    try:
        write_atomically(path, page)
    except OSError as error:
        raise CliError(f"can't write {path}: {error.strerror or error}.") from None
    for part, why in unread(contents).items():
        console.note(f"{part} could not be read: {why}")
    console.line(f"Wrote {path} ({len(page.encode()) / 1000:.0f} kB)")


def _require_report(path: Path, *, force: bool) -> None:
    """Raise CliError if something else than a report is at a path, unless it is a file and `force` is set."""
    if path.exists() and not path.is_file():
        raise CliError(f"--output {path}: it is no file.")
    if path.exists() and not force and path.stat().st_size:
        with path.open("rb") as file:
            if MARK.encode() not in file.read(_HEAD_BYTES):
                raise CliError(f"{path} is no report. To do: name another file with --output, or add --force.")


def _read_report(cluster: Cluster, since: str, begin: str) -> Report:
    """Read all parts at the same time."""
    values = cluster.outputs
    observer = observer_of(values)
    about: Mapping[str, Any] = values.get("platform") or {}
    capabilities: Sequence[str] = about.get("capabilities", [capability.value for capability in Capability])
    parts: dict[str, tuple[Capability, Callable[[], Any]]] = {
        "status": (Capability.STATUS, lambda: _status(cluster, observer)),
        "usage": (Capability.USAGE, lambda: usage.read_usage(cluster, machine_time(since), machine_time("now"))),
        "reliability": (Capability.USAGE, lambda: usage.read_faults(cluster, begin, "now")),
    }

    def read(part: str) -> Any:  # noqa: ANN401
        needed, call = parts[part]
        if needed.value not in capabilities:
            return Unread(f"The platform, {about.get('title')}, has no capability {needed.value}.", missing=False)
        try:
            return call()
        except CliError as error:
            return Unread("; ".join(line.strip() for line in str(error).splitlines()))

    with exit_on_termination(), ThreadPoolExecutor(max_workers=len(parts)) as pool:
        contents = dict(zip(parts, pool.map(read, parts), strict=True))
    return Report(
        stack=cluster.stack,
        name=cluster.name,
        platform=str(about.get("title") or "an unknown platform"),
        version=program_version(),
        written=time.time(),
        since=since,
        config=stack_config.applied(values),
        **contents,
    )


def _status(cluster: Cluster, observer: Observer | None) -> Status:
    now = time.time()
    if observer:
        with observers.open_access(cluster) as access:
            status = observer.status(access)
        tables = {_COMMON_TABLES.get(rows[0][0], rows[0][0]): rows for rows in observers.tables(status, now)}
        return Status(observation=status.seen, findings=status.findings, tables=tables)
    seen = observe(cluster)
    return Status(observation=seen, findings=findings(seen), tables=status_screen.tables(seen, now))
