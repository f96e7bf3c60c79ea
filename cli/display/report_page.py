"""Renders the page of `./hpc report` from the data of `status`, `health`, `usage`, `reliability` and the benchmarks."""

import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from cli.display import accounting, status_screen
from cli.display.status_screen import Table, ago, counted
from cluster.config.cluster import ClusterConfig
from cluster.config.nodesets import Nodeset
from cluster.findings import ClusterFinding
from cluster.observe.nodes import Node
from cluster.observe.observation import ClusterObservation
from cluster.observe.reliability import DAY, Facts, Trouble
from cluster.observe.reliability import reliability as reliability_figures
from cluster.observe.usage import GroupKey, UsageRecords
from cluster.observe.usage import table as usage_rows
from cluster.observe.usage import total as usage_total
from cluster.platforms import registry
from cluster.report import svg
from cluster.report.html import Html, Section, element, page, paragraph, table, text
from cluster.report.mlperf_report import MlperfReport
from cluster.report.nccl_compare import Entry, Folder
from cluster.report.nccl_result import X_LABEL, Y_LABEL, report_curves
from cluster.report.plot import Curve
from cluster.roster import monitoring_machine, node_names, nodeset_gpu, nodeset_type
from scripts.node.slurm.hostlist import compress

MOST_ROWS = 200
"""Number of rows of a table that are shown."""
_MOST_BARS, _MOST_KINDS = 12, 6
T = TypeVar("T")


@dataclass(frozen=True)
class Unread:
    """A part that could not be read or that the stack does not have, with the reason."""

    why: str
    missing: bool = True
    """True if the stack should have it."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """The content of `./hpc status`."""

    observation: ClusterObservation
    findings: Sequence[ClusterFinding]
    tables: Mapping[str, Table]
    """By name: nodes, partitions, queue, actions, alerts, storage, daemons, versions; some may be missing."""
    others: Sequence[Table] = ()
    """Tables that only this platform has."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """The content of `./hpc health`."""

    tables: Sequence[Table]
    findings: Sequence[ClusterFinding]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A run of a benchmark that accounting has, with what its log says, or why there is none."""

    job: str
    user: str
    started: float
    result: Entry | MlperfReport | Unread


@dataclass(frozen=True, kw_only=True)
class Report:
    """The data of the page."""

    stack: str
    name: str
    platform: str
    version: str
    written: float
    since: str
    """The beginning of the histories as the user wrote it, such as 28d."""
    config: ClusterConfig | None
    status: Status | Unread
    health: Health | Unread
    usage: tuple[str, str, UsageRecords] | Unread
    reliability: Facts | Unread
    nccl: Sequence[Benchmark] | Unread
    mlperf: Sequence[Benchmark] | Unread

    @cached_property
    def figures(self) -> dict[str, Any]:
        """The figures of reliability; empty if they could not be read."""
        return {} if isinstance(self.reliability, Unread) else reliability_figures(self.reliability)


def render(report: Report) -> str:
    """Return the page as HTML."""
    lead = [
        paragraph(_sentence(report)),
        paragraph(
            f"Cluster {report.name} on {report.platform}; written {_moment(report.written)} by hpc {report.version}. "
            f"Histories cover {_period(report)}.",
            class_="muted",
        ),
    ]
    if missing := unread(report):
        lead.append(paragraph(f"Could not be read: {', '.join(missing)}. The sections say why.", class_="bad"))
    sections: list[Section] = []
    for name, title, source, blocks in _PARTS:
        value = getattr(report, source) if source else None
        sections.append(Section(name, title, [_missing(value)] if isinstance(value, Unread) else blocks(report, value)))
    return page(f"{report.stack}: report", lead, sections)


def _period(report: Report) -> str:
    return f"the {'last' if re.fullmatch('[0-9]+[smhdw]', report.since) else 'time since'} {report.since}"


def unread(report: Report) -> dict[str, str]:
    """Return for each part that could not be read the reason."""
    parts = {source: getattr(report, source) for *_, source, _ in _PARTS if source}
    return {name: value.why for name, value in parts.items() if isinstance(value, Unread) and value.missing}


def _missing(why: Unread) -> Html:
    if not why.missing:
        return paragraph(why.why)
    return paragraph(element("span", "Could not be read: ", class_="bad"), why.why)


def _moment(time: float, *, form: str = "%Y-%m-%d\u00a0%H:%M\u00a0UTC") -> str:
    return dt.datetime.fromtimestamp(time, dt.timezone.utc).strftime(form)


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a sort key by which cpu-9 comes before cpu-10, so that host lists are short."""
    return [(words, int(digits or 0)) for words, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]


def _table(caption: str, rows: Table | Sequence[Sequence[object]], right: Iterable[int] = ()) -> list[Html]:
    """Return a table with its first rows; no blocks for a table without rows."""
    if len(rows) < 2:
        return []
    hidden = len(rows) - 1 - MOST_ROWS
    block = table(caption, rows[: MOST_ROWS + 1], right=set(right))
    return [block, paragraph(f"and {hidden} more rows", class_="muted")] if hidden > 0 else [block]


def _sentence(report: Report) -> Html:
    if isinstance(report.status, Unread):
        return text(f"{report.stack}: the cluster's status is not known.")
    words = status_screen.sentence(report.status.observation, list(report.status.findings))
    return element("span", words, class_="bad" if report.status.findings else "good")


def _finding_blocks(findings: Iterable[ClusterFinding], now: float) -> list[Html]:
    return [
        element(
            "div",
            element(
                "h3",
                f"{compress(finding.where)}: {finding.id}",
                f", for {ago(now - finding.since)}" if finding.since else "",
            ),
            paragraph(f"{finding.what}."),
            paragraph(element("code", finding.todo)),
            *([paragraph(finding.note)] if finding.note else []),
            class_="finding",
        )
        for finding in findings
    ]


def _findings(report: Report, status: Status) -> list[Html]:
    if not status.findings:
        return [paragraph("Nothing to look at.", class_="good")]
    return _finding_blocks(status.findings, report.written)


# -- the cluster -------------------------------------------------------------------------------------------------------


def _cluster(report: Report, _: None) -> list[Html]:
    status = report.status if isinstance(report.status, Status) else None
    blocks: list[Html] = []
    if report.config:
        columns = _columns(report.config, status)
        blocks += svg.cluster(
            "cluster",
            f"The machines of {report.name}",
            columns,
            networks=_networks(report.config, columns),
            mounts=_mounts(report.config, columns, status),
            partitions=[
                svg.Link(
                    name=f"{name}{' (default)' if partition.default else ''}",
                    detail=f"time limit {partition.max_time}",
                    on=partition.nodesets,
                )
                for name, partition in report.config.partitions.items()
            ],
        )
        if (hidden := len(columns) - svg.MOST_COLUMNS) > 0:
            blocks.append(paragraph(f"{counted(hidden, 'nodeset')} more are not drawn.", class_="muted"))
    else:
        blocks.append(paragraph("The stack has no output of its configuration: its last up did not end well."))
    if status:
        for name, caption in (
            ("nodes", "Nodes by state"),
            ("partitions", "Partitions"),
            ("storage", "File systems"),
            ("actions", "Last actions of the reconcile loop"),
        ):
            blocks += _table(caption, status.tables.get(name, []))
        for rows in status.others:
            blocks += _platform_table(rows)
    elif isinstance(report.status, Unread):
        blocks.append(_missing(report.status))
    return blocks


def _platform_table(rows: Table) -> list[Html]:
    """Return a table that only one platform has. Its caption follows from its first heading."""
    captions = {
        "NODE": "Last results of health checks",
        "CHECK": "Checks of the operator",
        "CLUSTER": "The operator's cluster",
    }
    return _table(captions.get(rows[0][0], rows[0][0].capitalize()), rows)


def _columns(config: ClusterConfig, status: Status | None) -> list[svg.Machines]:
    """Return the controller, the login machines, and the nodesets with the states of their nodes."""
    observed = status.observation.machines if status else ()
    rows: Mapping[str, Any] = (status.observation.slurm("nodes") or {}) if status else {}
    states = {name: _state(Node.of(name, row)) for name, row in rows.items()}

    def machines(role: str) -> dict[str, str]:
        return {machine.name: "idle" if machine.reached else "down" for machine in observed if role in machine.roles}

    columns = [svg.Machines(name="controller", kind=config.controller.machine_type, states=machines("controller"))]
    if login := machines("login"):
        columns.append(svg.Machines(name="login", kind=config.login.machine_type or "", states=login))
    if monitoring := machines("monitoring"):
        machine = monitoring_machine(config)
        kind = machine.machine_type if machine else None
        columns.append(svg.Machines(name="monitoring", kind=kind or "", states=monitoring))
    for name, section in config.nodesets.items():
        gpu = nodeset_gpu(config, section)
        kind = nodeset_type(config, section).name + (f", {gpu.count} {gpu.type}" if gpu else "")
        columns.append(svg.Machines(name=name, kind=kind, states=_node_states(config, name, section, states)))
    return columns


def _node_states(config: ClusterConfig, name: str, section: Nodeset, states: Mapping[str, str]) -> dict[str, str]:
    """Return the states of a nodeset's nodes. Slurm may hide a node whose machine is off."""
    hidden = "off" if states else "unknown"
    names = node_names(config, name)
    return {
        node: states.get(node, hidden if index >= section.static else "unknown") for index, node in enumerate(names)
    }


def _state(node: Node) -> str:
    if node.asleep or node.booting:
        return "off"
    if node.down:
        return "down"
    if node.drained:
        return "drained"
    if not node.fine:
        return "unknown"
    return "idle" if node.states & {"IDLE"} else "busy"


def _networks(config: ClusterConfig, columns: Sequence[svg.Machines]) -> list[svg.Link]:
    """Return the cluster's network, and a link for each fabric of GPUs."""
    network = registry.get(config.platform).places(config).network
    links = [svg.Link(name=network, detail="the cluster's network", on=[column.name for column in columns])]
    fabrics: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, section in config.nodesets.items():
        if rate := nodeset_type(config, section).line_rate:
            speed = f"{rate.nics} NICs of {rate.gbps} Gbit/s each"
            fabrics[nodeset_type(config, section).family.fabric.name, speed].append(name)
    return [*links, *(svg.Link(name=name, detail=speed, on=on) for (name, speed), on in fabrics.items())]


def _mounts(config: ClusterConfig, columns: Sequence[svg.Machines], status: Status | None) -> list[svg.Link]:
    """Return the shared file systems as machines report them. If machines do not, the platform lists them, for all
    machines but the controller."""
    if mounts := registry.get(config.platform).places(config).mounts:
        names = [column.name for column in columns[1:]]
        return [svg.Link(name=path, detail=server, on=names) for path, server in mounts.items()]
    column_of = {name: column.name for column in columns for name in column.states}
    on: dict[str, list[str]] = defaultdict(list)
    used: dict[str, str] = {}
    for machine in status.observation.machines if status else ():
        for path, disk in machine.disks.items():
            if disk.get("shared") and machine.name in column_of:
                on[path].append(column_of[machine.name])
                if "size" in disk:
                    used[path] = f"{status_screen.bytes_used(disk):.0%} of {status_screen.size(disk['size'])} used"
    return [svg.Link(name=path, detail=used.get(path, "not read"), on=set(names)) for path, names in sorted(on.items())]


def _queue(_: Report, status: Status) -> list[Html]:
    rows = _table("Jobs", status.tables.get("queue", []))
    return [paragraph(f"{status_screen.jobs(status.observation)}."), *rows]


def _versions(report: Report, status: Status) -> list[Html]:
    rows = status.tables.get("versions") or [("PROGRAM", "VERSION", "MACHINES")]
    programs = _table("Versions of programs", [*rows, ("hpc", report.version, "wrote this page")])
    return [*programs, *_table("Daemons", status.tables.get("daemons", []))]


def _alerts(report: Report, status: Status) -> list[Html]:
    if report.config is None or report.config.monitoring is None:
        return [paragraph("The stack has no monitoring.")]
    machine = status.observation.monitoring
    if machine.part("alerts") is None:
        return [_missing(Unread(machine.error("alerts") or machine.why or f"{machine.name} did not report them"))]
    rows = _table("Alerts that fire", status.tables.get("alerts", []))
    return rows or [paragraph("No alert fires.", class_="good")]


def _health(report: Report, checked: Health) -> list[Html]:
    status = report.status.findings if isinstance(report.status, Status) else ()
    listed = {(finding.id, finding.where) for finding in status}
    others = [finding for finding in checked.findings if (finding.id, finding.where) not in listed]
    blocks = [block for rows in checked.tables for block in _platform_table(rows)]
    blocks += _finding_blocks(others, report.written)
    if isinstance(report.reliability, Unread):
        return [*blocks, *([_missing(report.reliability)] if report.reliability.missing else [])]
    return [*blocks, *_troubles(report.reliability)]


def _troubles(facts: Facts) -> list[Html]:
    """Return the history of failed checks and warnings by kind."""
    groups: dict[tuple[str, bool], list[Trouble]] = defaultdict(list)
    for trouble in facts.troubles:
        groups[trouble.kind, trouble.failed].append(trouble)
    rows = [
        (
            kind,
            "failed" if failed else "warning",
            str(len(troubles)),
            compress(sorted({trouble.node for trouble in troubles}, key=_natural)),
            _moment(min(trouble.time for trouble in troubles)),
            _moment(max(trouble.time for trouble in troubles)),
        )
        for (kind, failed), troubles in sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    ]
    head = ("CHECK", "RESULT", "TIMES", "NODES", "FIRST", "LAST")
    if not rows:
        return [paragraph("No check has failed in the kept history.")]
    return _table("History of health checks", [head, *rows], right={2})


# -- benchmarks --------------------------------------------------------------------------------------------------------


def _benchmarks(runs: Sequence[Benchmark], kind: type[T]) -> list[tuple[Benchmark, T]]:
    """Return the runs whose result is of this type, with the result."""
    return [(run, run.result) for run in runs if isinstance(run.result, kind)]


def _unread_runs(runs: Sequence[Benchmark]) -> list[Html]:
    rows = [(run.job, run.user, _moment(run.started), result.why) for run, result in _benchmarks(runs, Unread)]
    return _table("Runs without a result", [("JOB", "USER", "STARTED", "WHY"), *rows])


def _history(name: str, title: str, label: str, points: Iterable[tuple[str, float, float]]) -> list[Html]:
    """Return a chart of results over time, with a curve for each kind that has at least two."""
    by_kind: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for kind, time, value in points:
        by_kind[kind].append((time / DAY, value))
    most = sorted((pair for pair in by_kind.items() if len(pair[1]) > 1), key=lambda pair: -len(pair[1]))
    curves = [Curve(kind, values) for kind, values in most[:_MOST_KINDS]]
    if not curves:
        return []
    days = [x for curve in curves for x, _ in curve.points]
    first, last = min(days), max(days)
    ticks = {float(day): _moment(day * DAY, form="%Y-%m-%d") for day in range(int(first), int(last) + 2)}
    if last - first < 3:
        positions = [first + (last - first) * number / 4 for number in range(5)]
        ticks = {day: _moment(day * DAY, form="%m-%d %H:%M") for day in positions}
    return [element("h3", title), svg.chart(name, title, curves, x_label="date (UTC)", y_label=label, x_ticks=ticks)]


def _nccl(report: Report, benchmarks: Sequence[Benchmark]) -> list[Html]:
    runs = sorted(_benchmarks(benchmarks, Entry), key=lambda pair: -pair[0].started)
    unread_runs = _unread_runs(benchmarks)
    if not runs:
        return [paragraph(f"No result in {_period(report)}: ./hpc nccl run {report.stack} measures."), *unread_runs]
    rows = [
        (
            run.job,
            run.user,
            _moment(run.started),
            entry.kind,
            entry.result.outcome.value,
            f"{entry.busbw:.1f}",
            compress(sorted(entry.result.run.hosts, key=_natural)),
        )
        for run, entry in runs
    ]
    head = ("JOB", "USER", "STARTED", "TEST", "RESULT", "GB/S", "NODES")
    latest = {entry.result.subject.kind: (run, entry) for run, entry in reversed(runs)}
    charts: list[Html] = []
    for number, (run, entry) in enumerate(list(latest.values())[:_MOST_KINDS], 1):
        curves, ticks = report_curves(entry.result)
        if any(len(curve.points) > 1 for curve in curves):
            title = f"{entry.kind}: the last run, job {run.job}, {entry.result.outcome.value}"
            axes = {"x_label": X_LABEL, "y_label": Y_LABEL, "x_ticks": ticks}
            charts += [element("h3", title), svg.chart(f"nccl-{number}", title, curves, x_log=True, **axes)]
    charts += _history(
        "nccl-history",
        "NCCL over time",
        "busbw at large sizes, GB/s",
        ((entry.kind, run.started, entry.busbw) for run, entry in runs),
    )
    findings = Folder(tuple(entry for _, entry in runs), ()).findings()
    slow = [paragraph(f"{finding.what}.", class_="bad") for finding in findings]
    return [*slow, *charts, *_table("NCCL tests, the newest first", [head, *rows], right={5}), *unread_runs]


def _mlperf(report: Report, benchmarks: Sequence[Benchmark]) -> list[Html]:
    runs = sorted(_benchmarks(benchmarks, MlperfReport), key=lambda pair: -pair[0].started)
    unread_runs = _unread_runs(benchmarks)
    if not runs:
        return [paragraph(f"No result in {_period(report)}: ./hpc mlperf run {report.stack} measures."), *unread_runs]
    rows: list[tuple[str, ...]] = [("JOB", "USER", "STARTED", "BENCHMARK", "RESULT", "AVERAGE, S", "TARGET, S")]
    points: list[tuple[str, float, float]] = []
    for run, training in runs:
        last, title = training.comparisons[-1], training.log.runs[-1].title
        target = last.target if last else None
        average = f"{last.average:.2f}" if last else "-"
        result = training.result if training.result != "empty" else "no training steps"
        goal = f"{target.seconds:.2f} ({target.setup})" if target else "-"
        rows.append((run.job, run.user, _moment(run.started), title, result, average, goal))
        points += [(f"{title}{f', {target.setup}' if target else ''}", run.started, last.average)] if last else []
    charts: list[Html] = []
    curves, x_label, y_label = runs[0][1].curves()
    if curves:
        title = f"The last run, job {runs[0][0].job}"
        charts += [
            element("h3", title),
            svg.chart("mlperf-last", title, curves, x_label=x_label, y_label=y_label),
        ]
    charts += _history("mlperf-history", "MLPerf over time", "seconds of an interval, on average", points)
    return [*charts, *_table("MLPerf trainings, the newest first", rows, right={5, 6}), *unread_runs]


# -- accounting --------------------------------------------------------------------------------------------------------


def _usage(_: Report, usage: tuple[str, str, UsageRecords]) -> list[Html]:
    since, until, read = usage
    total = usage_total(read.records)
    if not read.records:
        return [paragraph(f"Nothing was used between {since} and {until}, the controller's time.")]
    unit = "GPU" if total.gpu_seconds else "CPU"
    users = usage_rows(read.records, ["user"])
    bars = [
        svg.Bar(name=row.keys[0], value=row.gpu_hours, part=row.gpu_utilization)
        if unit == "GPU"
        else svg.Bar(name=row.keys[0], value=row.cpu_hours, part=row.cpu_efficiency)
        for row in users[:_MOST_BARS]
    ]
    shares = ", of which the filled part was busy" if any(bar.part is not None for bar in bars) else ""
    title = f"{unit} hours that users held"
    limit = f" The first {_MOST_BARS} of {len(users)} users." if len(users) > _MOST_BARS else ""
    blocks = [
        paragraph(
            f"From {since} to {until}, the controller's time: {total.gpu_hours:,.1f} GPU hours and "
            f"{total.cpu_hours:,.1f} CPU hours of {counted(total.jobs, 'job')}."
        ),
        element("h3", title),
        svg.bars("usage-users", title, f"{unit} hours held{shares}.{limit}", bars, unit="h"),
        paragraph(f"{unit} hours held{shares}.{limit}", class_="muted"),
    ]
    keys: tuple[GroupKey, ...] = ("user", "account", "partition")
    for key in keys:
        rows = accounting.usage_table(usage_rows(read.records, [key]), total, [key])
        body = [*rows[: MOST_ROWS + 1], rows[-1]] if len(rows) > MOST_ROWS + 2 else rows
        blocks += _table(f"By {key}", body, right=range(1, len(rows[0])))
    return [*blocks, *([paragraph(accounting.runaway_note(read))] if read.runaways else [])]


_HOURS = (
    ("allocated", "held by jobs"),
    ("nodes_out_by_faults", "nodes out by faults"),
    ("nodes_out_otherwise", "nodes out otherwise"),
    ("not_allocated", "free"),
)
"""Keys and names of the parts of the capacity."""


def _efficiency(report: Report, _: Facts) -> list[Html]:
    figures = report.figures
    unit, hours, ettr = figures["unit"].upper(), figures["hours"], figures["ettr"]["all"]
    blocks = [
        paragraph(f"ETTR (productive time of jobs as a share of the time from eligible to the end): {ettr:.1%}.")
        if ettr is not None
        else paragraph("No job ran.")
    ]
    if not isinstance(report.usage, Unread):
        total = usage_total(report.usage[2].records)
        for what, share in (("processor", total.cpu_efficiency), ("GPU", total.gpu_utilization)):
            if share is not None:
                blocks.append(paragraph(f"Of the {what} time that jobs held, {share:.0%} was busy."))
    if hours["capacity"]:
        bars = [svg.Bar(name=words, value=hours[key]) for key, words in _HOURS]
        bars += [svg.Bar(name="waiting in the queue", value=hours["waiting"])]
        title = f"{unit} hours of the cluster's {svg.format_number(hours['capacity'])}"
        description = f"What became of {unit} hours; hours that jobs waited for are beside them."
        blocks += [element("h3", title), svg.bars("hours", title, description, bars, unit="h")]
    return blocks


def _reliability(report: Report, facts: Facts) -> list[Html]:
    figures = report.figures
    blocks = _table("Figures", accounting.reliability_table(figures), right={1})
    blocks += _table("Failures by kind", accounting.failures_table(figures), right={1, 2, 3})
    blocks += [paragraph(line) for line in (*accounting.lemon_lines(figures), *accounting.assumption_lines(figures))]
    counts = Counter(run.state.partition(" ")[0].lower() for run in facts.runs).most_common()
    rows = [(state, str(number)) for state, number in counts]
    return [*blocks, *_table("Runs of jobs by their end", [("STATE", "RUNS"), *rows], right={1})]


_PARTS: Sequence[tuple[str, str, str, Callable[[Report, Any], Sequence[Html]]]] = (
    ("findings", "Findings", "status", _findings),
    ("cluster", "The cluster", "", _cluster),
    ("queue", "Queue", "status", _queue),
    ("health", "Health", "health", _health),
    ("alerts", "Alerts", "status", _alerts),
    ("nccl", "NCCL", "nccl", _nccl),
    ("mlperf", "MLPerf", "mlperf", _mlperf),
    ("usage", "Usage", "usage", _usage),
    ("efficiency", "Efficiency", "reliability", _efficiency),
    ("reliability", "Reliability", "reliability", _reliability),
    ("versions", "Versions", "status", _versions),
)
"""Anchor and title of each section, the field of the report that it needs, and the function that returns its blocks."""
