"""`./hpc report`."""

import re
import secrets
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from typer import Option

from cli import console, observers, options
from cli.cluster.cluster import Cluster, from_outputs
from cli.cluster.jobs import Jobs
from cli.cluster.observation import ask
from cli.cluster.scheduler import Scheduler
from cli.commands import health, reliability, usage
from cli.commands.installation import program_version
from cli.commands.jobs import mlperf_report
from cli.display import status_screen
from cli.display.report_page import Benchmark, Health, Report, Status, Unread, render, unread
from cli.errors import CliError
from cli.interrupts import unwound
from cli.stack import outputs
from cluster.config.cluster import ClusterConfig
from cluster.jobs.nccl import LOGS, RUN_NAME
from cluster.load import parse_output
from cluster.observe.health.check_results import findings as health_findings
from cluster.observe.health.findings import findings
from cluster.observe.moment import MomentError, expression, on_machine
from cluster.platforms.capability import Capability
from cluster.platforms.observer import Observer, observer_of
from cluster.report.html import MARK
from cluster.report.mlperf_report import MlperfReport
from cluster.report.nccl.compare import Entry
from cluster.report.nccl.log import NotALogError, read_text
from cluster.report.nccl.result import check
from hostfiles import write_atomically

_MOST_NCCL, _MOST_MLPERF = 40, 10
"""The newest runs, whose logs are read."""
_LARGEST = 400_000
"""Bytes of a log of nccl-tests: one of all sizes has 30,000."""
_HEAD = 2000
"""Bytes of a file in which a page of this program has its mark."""
_RUN = re.compile(r"([0-9]{1,12})\|([a-z_][a-z0-9_-]*)\|([0-9]{1,12})\|([A-Za-z0-9_-]+)")
_NAMES = {"NODES": "nodes", "PARTITION": "partitions", "JOB": "queue"}
"""Tables that every platform has, by their first heading."""
T = TypeVar("T")


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

    What the cluster is, what `status` finds, health and its history, alerts that fire, results of NCCL and MLPerf,
    usage, efficiency, reliability, versions. Nothing is changed. Parts that can't be read are named in the page. The
    page has names of users, jobs and machines.
    """
    try:
        begin = expression(since)
    except MomentError as error:
        raise CliError(f"--since: {error}") from None
    path = output or Path(f"{stack}-report.html")
    _check_file(path, force=force)
    values = outputs.read(stack, show_secrets=True)
    cluster = from_outputs(stack, values)
    found = _read(stack, values, cluster, since, begin)
    page = render(found)
    try:
        write_atomically(path, page)
    except OSError as error:
        raise CliError(f"can't write {path}: {error.strerror or error}.") from None
    reasons: dict[str, list[str]] = defaultdict(list)
    for part, why in unread(found).items():
        reasons[why].append(part)
    for why, parts in reasons.items():
        console.note(f"{', '.join(parts)} could not be read: {why}")
    console.line(f"Wrote {path} ({len(page.encode()) / 1000:.0f} kB)")


def _check_file(path: Path, *, force: bool) -> None:
    """Raises CliError: something else than a page of this program is there, or no file can be."""
    try:
        if path.exists() and not path.is_file():
            raise CliError(f"--output {path}: it is no file.")
        if path.exists() and not force and path.stat().st_size:
            with path.open("rb") as file:
                if MARK.encode() not in file.read(_HEAD):
                    raise CliError(f"{path} is no report. To do: name another file with --output, or add --force.")
    except OSError as error:
        raise CliError(f"can't write {path}: {error.strerror or error}.") from None


def _read(stack: str, values: Mapping[str, Any], cluster: Cluster, since: str, begin: str) -> Report:
    """Read all parts side by side."""
    config = parse_output(values["config"]) if values.get("config") else None
    observer = observer_of(values)
    about: Mapping[str, Any] = values.get("platform") or {}
    there: Sequence[str] = about.get("capabilities", [one.value for one in Capability])
    parts: dict[str, tuple[Capability, Callable[[], Any]]] = {
        "status": (Capability.STATUS, lambda: _status(stack, values, observer)),
        "health": (Capability.NODES, lambda: _health(stack, values, cluster, config, observer)),
        "usage": (Capability.USAGE, lambda: usage.read(cluster, stack, on_machine(since), on_machine("now"))),
        "reliability": (Capability.USAGE, lambda: reliability.read(cluster, stack, begin, "now")),
        "nccl": (Capability.RUN, lambda: _nccl(cluster, stack, runs.result())),
        "mlperf": (Capability.RUN, lambda: _mlperf(cluster, stack, runs.result())),
    }
    with unwound(), ThreadPoolExecutor(max_workers=len(parts) + 1) as pool:
        runs = pool.submit(_runs, Scheduler(cluster, stack), begin)
        asked = {name: pool.submit(_tried, read) for name, (needed, read) in parts.items() if needed.value in there}
        found = {name: future.result() for name, future in asked.items()}
    for name, (needed, _) in parts.items():
        if name not in found:
            why = f"The platform, {about.get('title')}, does not have the capability {needed.value}."
            found[name] = Unread(why, missing=False)
    return Report(
        stack=stack,
        name=cluster.name,
        platform=str(about.get("title") or "an unknown platform"),
        version=program_version(),
        written=time.time(),
        since=since,
        config=config,
        **found,
    )


def _tried(read: Callable[[], T]) -> T | Unread:
    try:
        return read()
    except CliError as error:
        return Unread("; ".join(line.strip() for line in str(error).splitlines()))


def _status(stack: str, values: Mapping[str, Any], observer: Observer | None) -> Status:
    now = time.time()
    if observer:
        with observers.opened(stack, values) as access:
            found = observer.status(access)
        tables = {_NAMES.get(rows[0][0], rows[0][0]): rows for rows in observers.tables(found, now)}
        others = [rows for name, rows in tables.items() if name not in _NAMES.values()]
        return Status(seen=found.seen, findings=found.findings, tables=tables, others=others)
    seen = ask(stack, values)
    return Status(seen=seen, findings=findings(seen), tables=status_screen.tables(seen, now))


def _health(
    stack: str, values: Mapping[str, Any], cluster: Cluster, config: ClusterConfig | None, observer: Observer | None
) -> Health | Unread:
    if observer:
        with observers.opened(stack, values) as access:
            found = observer.health(access)
        tables = [rows for rows in observers.tables(found, time.time()) if rows[0][0] not in _NAMES]
        return Health(tables=tables, findings=found.findings)
    if config is None or config.slurm.health is None:
        return Unread("The stack has no health checks.", missing=False)
    # Last results of machines that are off are of machines that are gone.
    nodes = [one for one in Scheduler(cluster, stack).nodes().values() if not one.asleep and not one.booting]
    results = health.read(cluster, nodes, config.slurm.health.interval)
    return Health(tables=[health.table(results)], findings=health_findings(stack, results))


# -- benchmarks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A job of a benchmark that has begun."""

    job: str
    user: str
    started: float
    name: str

    def with_result(self, result: Entry | MlperfReport | Unread) -> Benchmark:
        return Benchmark(job=self.job, user=self.user, started=self.started, result=result)


def _runs(scheduler: Scheduler, begin: str) -> list[_Run]:
    """Jobs of `./hpc nccl run` and `mlperf run`, by their names, the newest first."""
    names = f"\\|({re.escape(RUN_NAME)}|mlperf-(train|gpt3)_[A-Za-z0-9_-]+)$"
    line = (
        f"rows=$(SLURM_TIME_FORMAT=%s sacct --allusers --allocations --noheader --parsable2 --endtime=now "
        f'--starttime="$(date --date="{begin}" +%Y-%m-%dT%H:%M:%S)" --format=JobIDRaw,User,Start,JobName) || exit; '
        f"printf '%s\\n' \"$rows\" | grep -E {shlex.quote(names)} | tail -n 500"
    )
    found = [_RUN.fullmatch(row) for row in scheduler.ask(line, seconds=600).splitlines()]
    runs = [_Run(job=one[1], user=one[2], started=float(one[3]), name=one[4]) for one in found if one]
    return sorted(runs, key=lambda run: -run.started)


def _nccl(cluster: Cluster, stack: str, runs: Sequence[_Run]) -> list[Benchmark]:
    """Each user's logs are read at once, by that user."""
    wanted = [run for run in runs if run.name == RUN_NAME][:_MOST_NCCL]
    by_user: dict[str, list[_Run]] = defaultdict(list)
    for run in wanted:
        by_user[run.user].append(run)
    return [one for user, theirs in by_user.items() for one in _nccl_of(Jobs(cluster, stack, user), theirs)]


def _nccl_of(jobs: Jobs, runs: Sequence[_Run]) -> list[Benchmark]:
    mark = secrets.token_hex(12)
    numbers = " ".join(run.job for run in runs)
    line = f"for job in {numbers}; do head -c {_LARGEST} -- ~/{LOGS}/$job.log 2>&1; echo; echo {mark}; done"
    try:
        texts = jobs.run(line, seconds=300).split(f"{mark}\n")
    except CliError as error:
        return [run.with_result(Unread(str(error))) for run in runs]
    return [run.with_result(_nccl_result(run, text)) for run, text in zip(runs, texts, strict=False)]


def _nccl_result(run: _Run, text: str) -> Entry | Unread:
    try:
        log = read_text(text, f"{run.job}.log")
    except NotALogError as error:
        return Unread(f"its log has no result: {error.finding.given or error.finding.what}")
    return Entry(log, check(log))


def _mlperf(cluster: Cluster, stack: str, runs: Sequence[_Run]) -> list[Benchmark]:
    wanted = [run for run in runs if run.name != RUN_NAME][:_MOST_MLPERF]
    return [run.with_result(_mlperf_result(Jobs(cluster, stack, run.user), run)) for run in wanted]


def _mlperf_result(jobs: Jobs, run: _Run) -> MlperfReport | Unread:
    try:
        path = mlperf_report.find_log(jobs, run.job, "")
        with mlperf_report.fetched_log(jobs, path) as file:
            return mlperf_report.of_log(file, path, "")
    except CliError as error:
        return Unread(str(error))
