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
from cli.cluster.cluster import Cluster, connect
from cli.cluster.jobs import Jobs
from cli.cluster.observation import observe
from cli.cluster.scheduler import Scheduler
from cli.commands import health, usage
from cli.commands.installation import program_version
from cli.commands.jobs import mlperf_report
from cli.display import status_screen
from cli.display.report_page import Benchmark, Health, Report, Status, Unread, render, unread
from cli.errors import CliError
from cli.interrupts import exit_on_termination
from cluster.config.cluster import ClusterConfig
from cluster.jobs.nccl import LOGS, RUN_NAME
from cluster.load import parse_output
from cluster.observe.health_check_results import findings as health_findings
from cluster.observe.moment import date_expression, machine_time
from cluster.observe.status_findings import findings
from cluster.platforms.capability import Capability
from cluster.platforms.observer import Observer, observer_of
from cluster.report.html import MARK
from cluster.report.mlperf_report import MlperfReport
from cluster.report.nccl_compare import Entry
from cluster.report.nccl_log import NotALogError, read_text
from cluster.report.nccl_result import check
from hostfiles import write_atomically

_NCCL_RUNS, _MLPERF_RUNS = 40, 10
"""Numbers of the newest runs whose logs are read."""
_NCCL_LOG_BYTES = 400_000
"""Bytes that are read of a log of nccl-tests: one of all sizes has 30,000."""
_HEAD_BYTES = 2000
"""Bytes at the beginning of a page in which this program writes its mark."""
_RUN_ROW = re.compile(r"([0-9]{1,12})\|([a-z_][a-z0-9_-]*)\|([0-9]{1,12})\|([A-Za-z0-9_-]+)")
_COMMON_TABLES = {"NODES": "nodes", "PARTITION": "partitions", "JOB": "queue"}
"""Names of the tables that every platform has, by their first heading."""
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
    reasons: dict[str, list[str]] = defaultdict(list)
    for part, why in unread(contents).items():
        reasons[why].append(part)
    for why, parts in reasons.items():
        console.note(f"{', '.join(parts)} could not be read: {why}")
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
    config = parse_output(values["config"]) if values.get("config") else None
    observer = observer_of(values)
    about: Mapping[str, Any] = values.get("platform") or {}
    capabilities: Sequence[str] = about.get("capabilities", [capability.value for capability in Capability])
    parts: dict[str, tuple[Capability, Callable[[], Any]]] = {
        "status": (Capability.STATUS, lambda: _status(cluster, observer)),
        "health": (Capability.NODES, lambda: _health(cluster, config, observer)),
        "usage": (Capability.USAGE, lambda: usage.read_usage(cluster, machine_time(since), machine_time("now"))),
        "reliability": (Capability.USAGE, lambda: usage.read_faults(cluster, begin, "now")),
        "nccl": (Capability.RUN, lambda: _nccl(cluster, runs.result())),
        "mlperf": (Capability.RUN, lambda: _mlperf(cluster, runs.result())),
    }
    with exit_on_termination(), ThreadPoolExecutor(max_workers=len(parts) + 1) as pool:
        runs = pool.submit(_runs, Scheduler(cluster), begin)
        futures = {
            name: pool.submit(_read_part, read)
            for name, (needed, read) in parts.items()
            if needed.value in capabilities
        }
        contents = {name: future.result() for name, future in futures.items()}
    for name, (needed, _) in parts.items():
        if name not in contents:
            why = f"The platform, {about.get('title')}, does not have the capability {needed.value}."
            contents[name] = Unread(why, missing=False)
    return Report(
        stack=cluster.stack,
        name=cluster.name,
        platform=str(about.get("title") or "an unknown platform"),
        version=program_version(),
        written=time.time(),
        since=since,
        config=config,
        **contents,
    )


def _read_part(read: Callable[[], T]) -> T | Unread:
    try:
        return read()
    except CliError as error:
        return Unread("; ".join(line.strip() for line in str(error).splitlines()))


def _status(cluster: Cluster, observer: Observer | None) -> Status:
    now = time.time()
    if observer:
        with observers.open_access(cluster) as access:
            status = observer.status(access)
        tables = {_COMMON_TABLES.get(rows[0][0], rows[0][0]): rows for rows in observers.tables(status, now)}
        others = [rows for name, rows in tables.items() if name not in _COMMON_TABLES.values()]
        return Status(observation=status.seen, findings=status.findings, tables=tables, others=others)
    observation = observe(cluster)
    return Status(
        observation=observation, findings=findings(observation), tables=status_screen.tables(observation, now)
    )


def _health(cluster: Cluster, config: ClusterConfig | None, observer: Observer | None) -> Health | Unread:
    if observer:
        with observers.open_access(cluster) as access:
            checks = observer.health(access)
        tables = [rows for rows in observers.tables(checks, time.time()) if rows[0][0] not in _COMMON_TABLES]
        return Health(tables=tables, findings=checks.findings)
    if config is None or config.slurm.health is None:
        return Unread("The stack has no health checks.", missing=False)
    # The last results of nodes whose machines are off are of machines that no longer exist.
    nodes = [node for node in Scheduler(cluster).nodes().values() if not node.asleep and not node.booting]
    results = health.read_results(cluster, nodes, config.slurm.health.interval)
    return Health(tables=[health.table(results)], findings=health_findings(cluster.stack, results))


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
    """Return the jobs of `./hpc nccl run` and `mlperf run`, which have their own names, the newest first."""
    names = f"\\|({re.escape(RUN_NAME)}|mlperf-(train|gpt3)_[A-Za-z0-9_-]+)$"
    line = (
        f"rows=$(SLURM_TIME_FORMAT=%s sacct --allusers --allocations --noheader --parsable2 --endtime=now "
        f'--starttime="$(date --date="{begin}" +%Y-%m-%dT%H:%M:%S)" --format=JobIDRaw,User,Start,JobName) || exit; '
        f"printf '%s\\n' \"$rows\" | grep -E {shlex.quote(names)} | tail -n 500"
    )
    rows = [_RUN_ROW.fullmatch(row) for row in scheduler.run(line, seconds=600).splitlines()]
    runs = [_Run(job=row[1], user=row[2], started=float(row[3]), name=row[4]) for row in rows if row]
    return sorted(runs, key=lambda run: -run.started)


def _nccl(cluster: Cluster, runs: Sequence[_Run]) -> list[Benchmark]:
    """Read the logs of runs of nccl-tests: those of each user in one command, which runs as that user."""
    by_user: dict[str, list[_Run]] = defaultdict(list)
    for run in [run for run in runs if run.name == RUN_NAME][:_NCCL_RUNS]:
        by_user[run.user].append(run)
    mark = secrets.token_hex(12)
    benchmarks: list[Benchmark] = []
    for user, own in by_user.items():
        numbers = " ".join(run.job for run in own)
        line = f"for job in {numbers}; do head -c {_NCCL_LOG_BYTES} -- ~/{LOGS}/$job.log 2>&1; echo; echo {mark}; done"
        try:
            texts = Jobs(cluster, user).run(line, seconds=300).split(f"{mark}\n")
        except CliError as error:
            benchmarks += [run.with_result(Unread(str(error))) for run in own]
        else:
            benchmarks += [run.with_result(_nccl_result(run, text)) for run, text in zip(own, texts, strict=False)]
    return benchmarks


def _nccl_result(run: _Run, text: str) -> Entry | Unread:
    try:
        log = read_text(text, f"{run.job}.log")
    except NotALogError as error:
        return Unread(f"its log has no result: {error.finding.given or error.finding.what}")
    return Entry(log, check(log))


def _mlperf(cluster: Cluster, runs: Sequence[_Run]) -> list[Benchmark]:
    def result(run: _Run) -> MlperfReport | Unread:
        jobs = Jobs(cluster, run.user)
        try:
            path = mlperf_report.find_log(jobs, run.job, "")
            with mlperf_report.fetched_log(jobs, path) as file:
                return mlperf_report.of_log(file, path, "")
        except CliError as error:
            return Unread(str(error))

    newest = [run for run in runs if run.name != RUN_NAME][:_MLPERF_RUNS]
    return [run.with_result(result(run)) for run in newest]
