"""The page of `./hpc report`: pure, from what the commands `status`, `health`, `usage`, `reliability` ... have read."""

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
from cluster.config.machines import Nodeset
from cluster.findings import ClusterFinding
from cluster.observe import reliability as measured
from cluster.observe import usage as used
from cluster.observe.nodes import Node
from cluster.observe.observation import ClusterObservation
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
"""Rows of a table: of longer ones, the first."""
_MOST_BARS, _MOST_KINDS = 12, 6
T = TypeVar("T")


@dataclass(frozen=True)
class Unread:
    """A part that could not be read, and why; or that the stack does not have."""

    why: str
    missing: bool = True
    """True if it should be there."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """What `./hpc status` shows."""

    seen: ClusterObservation
    findings: Sequence[ClusterFinding]
    tables: Mapping[str, Table]
    """By name: nodes, partitions, queue, actions, alerts, storage, daemons, versions; those that there are."""
    others: Sequence[Table] = ()
    """Tables of one platform alone."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What `./hpc health` shows."""

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
    """Everything that the page is made of."""

    stack: str
    name: str
    platform: str
    version: str
    written: float
    since: str
    """The beginning of the histories, as it was asked for: 28d."""
    config: ClusterConfig | None
    status: Status | Unread
    health: Health | Unread
    usage: tuple[str, str, used.UsageRecords] | Unread
    reliability: measured.Facts | Unread
    nccl: Sequence[Benchmark] | Unread
    mlperf: Sequence[Benchmark] | Unread

    @cached_property
    def figures(self) -> dict[str, Any]:
        """The figures of reliability, where they could be read."""
        return {} if isinstance(self.reliability, Unread) else measured.reliability(self.reliability)


def render(report: Report) -> str:
    """The page: the same for the same report."""
    lead = [
        paragraph(_sentence(report)),
        paragraph(
            f"Cluster {report.name} on {report.platform}; written {_moment(report.written)} by hpc {report.version}. "
            f"Histories cover {_period(report)}.",
            class_="muted",
        ),
    ]
    if lost := unread(report):
        lead.append(paragraph(f"Could not be read: {', '.join(lost)}. The sections say why.", class_="bad"))
    sections: list[Section] = []
    for name, title, source, blocks in _PARTS:
        value = getattr(report, source) if source else None
        sections.append(Section(name, title, [_missing(value)] if isinstance(value, Unread) else blocks(report, value)))
    return page(f"{report.stack}: report", lead, sections)


def _period(report: Report) -> str:
    return f"the {'last' if re.fullmatch('[0-9]+[smhdw]', report.since) else 'time since'} {report.since}"


def unread(report: Report) -> dict[str, str]:
    """Parts that could not be read, and why."""
    found = {source: getattr(report, source) for *_, source, _ in _PARTS if source}
    return {name: value.why for name, value in found.items() if isinstance(value, Unread) and value.missing}


def _missing(why: Unread) -> Html:
    if not why.missing:
        return paragraph(why.why)
    return paragraph(element("span", "Could not be read: ", class_="bad"), why.why)


def _moment(time: float, *, form: str = "%Y-%m-%d\u00a0%H:%M\u00a0UTC") -> str:
    return dt.datetime.fromtimestamp(time, dt.timezone.utc).strftime(form)


def _natural(name: str) -> list[tuple[str, int]]:
    """cpu-9 before cpu-10, so that host lists are short."""
    return [(words, int(digits or 0)) for words, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]


def _shown(caption: str, rows: Table | Sequence[Sequence[object]], right: Iterable[int] = ()) -> list[Html]:
    """A table, cut where it is long; nothing of one without rows."""
    if len(rows) < 2:
        return []
    left_out = len(rows) - 1 - MOST_ROWS
    drawn = table(caption, rows[: MOST_ROWS + 1], right=set(right))
    return [drawn, paragraph(f"and {left_out} more rows", class_="muted")] if left_out > 0 else [drawn]


def _sentence(report: Report) -> Html:
    if isinstance(report.status, Unread):
        return text(f"{report.stack}: the cluster's status is not known.")
    words = status_screen.sentence(report.status.seen, list(report.status.findings))
    return element("span", words, class_="bad" if report.status.findings else "good")


def _found(findings: Iterable[ClusterFinding], now: float) -> list[Html]:
    return [
        element(
            "div",
            element("h3", f"{compress(one.where)}: {one.id}", f", for {ago(now - one.since)}" if one.since else ""),
            paragraph(f"{one.what}."),
            paragraph(element("code", one.todo)),
            *([paragraph(one.note)] if one.note else []),
            class_="finding",
        )
        for one in findings
    ]


def _findings(report: Report, status: Status) -> list[Html]:
    if not status.findings:
        return [paragraph("Nothing to look at.", class_="good")]
    return _found(status.findings, report.written)


# -- the cluster -------------------------------------------------------------------------------------------------------


def _cluster(report: Report, _: None) -> list[Html]:
    status = report.status if isinstance(report.status, Status) else None
    found: list[Html] = []
    if report.config:
        columns = _columns(report.config, status)
        found += svg.cluster(
            "cluster",
            f"The machines of {report.name}",
            columns,
            networks=_networks(report.config, columns),
            mounts=_mounts(report.config, columns, status),
            partitions=[
                svg.Link(
                    name=f"{name}{' (default)' if one.default else ''}",
                    detail=f"time limit {one.max_time}",
                    on=one.nodesets,
                )
                for name, one in report.config.partitions.items()
            ],
        )
        if (more := len(columns) - svg.MOST_COLUMNS) > 0:
            found.append(paragraph(f"{counted(more, 'nodeset')} more are not drawn.", class_="muted"))
    else:
        found.append(paragraph("The stack has no output of its configuration: its last up did not end well."))
    if status:
        for name, caption in (
            ("nodes", "Nodes by state"),
            ("partitions", "Partitions"),
            ("storage", "File systems"),
            ("actions", "Last actions of the reconcile loop"),
        ):
            found += _shown(caption, status.tables.get(name, []))
        for rows in status.others:
            found += _shown(_CAPTIONS.get(rows[0][0], rows[0][0].capitalize()), rows)
    elif isinstance(report.status, Unread):
        found.append(_missing(report.status))
    return found


def _columns(config: ClusterConfig, status: Status | None) -> list[svg.Machines]:
    """The controller, login machines, and nodesets with the states of their nodes."""
    reached = {one.name: "idle" if one.reached else "down" for one in status.seen.machines} if status else {}
    rows: Mapping[str, Any] = (status.seen.slurm("nodes") or {}) if status else {}
    states = {name: _state(Node.of(name, row)) for name, row in rows.items()}
    roles = {one.name: one.roles for one in status.seen.machines} if status else {}

    def machines(role: str) -> dict[str, str]:
        return {name: reached[name] for name, there in roles.items() if role in there}

    found = [svg.Machines(name="controller", kind=config.controller.machine_type, states=machines("controller"))]
    if login := machines("login"):
        found.append(svg.Machines(name="login", kind=config.login.machine_type or "", states=login))
    if own := machines("monitoring"):
        section = monitoring_machine(config)
        kind = section.machine_type if section else None
        found.append(svg.Machines(name="monitoring", kind=kind or "", states=own))
    for name, section in config.nodesets.items():
        found.append(svg.Machines(name=name, kind=_kind(config, section), states=_of(config, name, section, states)))
    return found


def _of(config: ClusterConfig, name: str, section: Nodeset, states: Mapping[str, str]) -> dict[str, str]:
    """The states of a nodeset's nodes; Slurm may hide one whose machine is off."""
    hidden = "off" if states else "unknown"
    names = node_names(config, name)
    return {node: states.get(node, hidden if at >= section.static else "unknown") for at, node in enumerate(names)}


def _kind(config: ClusterConfig, section: Nodeset) -> str:
    gpu = nodeset_gpu(config, section)
    return nodeset_type(config, section).name + (f", {gpu.count} {gpu.type}" if gpu else "")


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
    """The cluster's network, and one line for each fabric of GPUs."""
    network = registry.get(config.platform).places(config).network
    found = [svg.Link(name=network, detail="the cluster's network", on=[one.name for one in columns])]
    fabrics: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, section in config.nodesets.items():
        if rate := nodeset_type(config, section).line_rate:
            speed = f"{rate.nics} NICs of {rate.gbps} Gbit/s each"
            fabrics[nodeset_type(config, section).family.fabric.name, speed].append(name)
    return [*found, *(svg.Link(name=name, detail=speed, on=on) for (name, speed), on in fabrics.items())]


def _mounts(config: ClusterConfig, columns: Sequence[svg.Machines], status: Status | None) -> list[svg.Link]:
    """File systems that machines share: as they were found mounted, or where machines do not report it as the platform
    has them, on all but the controller."""
    if given := registry.get(config.platform).places(config).mounts:
        return [svg.Link(name=path, detail=what, on=[one.name for one in columns[1:]]) for path, what in given.items()]
    column = {name: one.name for one in columns for name in one.states}
    on: dict[str, list[str]] = defaultdict(list)
    full: dict[str, str] = {}
    for machine in status.seen.machines if status else ():
        for path, disk in machine.disks.items():
            if disk.get("shared") and machine.name in column:
                on[path].append(column[machine.name])
                if "size" in disk:
                    full[path] = f"{status_screen.bytes_used(disk):.0%} of {status_screen.size(disk['size'])} used"
    return [svg.Link(name=path, detail=full.get(path, "not read"), on=set(names)) for path, names in sorted(on.items())]


def _queue(_: Report, status: Status) -> list[Html]:
    rows = _shown("Jobs", status.tables.get("queue", []))
    return [paragraph(f"{status_screen.jobs(status.seen)}."), *rows]


def _versions(report: Report, status: Status) -> list[Html]:
    rows = status.tables.get("versions") or [("PROGRAM", "VERSION", "MACHINES")]
    found = _shown("Versions of programs", [*rows, ("hpc", report.version, "wrote this page")])
    return [*found, *_shown("Daemons", status.tables.get("daemons", []))]


def _alerts(report: Report, status: Status) -> list[Html]:
    if report.config is None or report.config.monitoring is None:
        return [paragraph("The stack has no monitoring.")]
    there = status.seen.monitoring
    if there.part("alerts") is None:
        return [_missing(Unread(there.error("alerts") or there.why or f"{there.name} did not report them"))]
    rows = _shown("Alerts that fire", status.tables.get("alerts", []))
    return rows or [paragraph("No alert fires.", class_="good")]


def _health(report: Report, checked: Health) -> list[Html]:
    shown = {(one.id, one.where) for one in report.status.findings} if isinstance(report.status, Status) else set()
    found = [
        part for rows in checked.tables for part in _shown(_CAPTIONS.get(rows[0][0], rows[0][0].capitalize()), rows)
    ]
    found += _found([one for one in checked.findings if (one.id, one.where) not in shown], report.written)
    if isinstance(report.reliability, Unread):
        return [*found, *([_missing(report.reliability)] if report.reliability.missing else [])]
    return [*found, *_troubles(report.reliability)]


_CAPTIONS = {
    "NODE": "Last results of health checks",
    "CHECK": "Checks of the operator",
    "CLUSTER": "The operator's cluster",
}


def _troubles(facts: measured.Facts) -> list[Html]:
    """The kept history: failed checks and warnings by kind."""
    groups: dict[tuple[str, bool], list[measured.Trouble]] = defaultdict(list)
    for one in facts.troubles:
        groups[one.kind, one.failed].append(one)
    rows = [
        (
            kind,
            "failed" if failed else "warning",
            str(len(there)),
            compress(sorted({one.node for one in there}, key=_natural)),
            _moment(min(one.time for one in there)),
            _moment(max(one.time for one in there)),
        )
        for (kind, failed), there in sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    ]
    head = ("CHECK", "RESULT", "TIMES", "NODES", "FIRST", "LAST")
    if not rows:
        return [paragraph("No check has failed in the kept history.")]
    return _shown("History of health checks", [head, *rows], right={2})


# -- benchmarks --------------------------------------------------------------------------------------------------------


def _benchmarks(runs: Sequence[Benchmark], kind: type[T]) -> list[tuple[Benchmark, T]]:
    return [(one, one.result) for one in runs if isinstance(one.result, kind)]


def _unread_runs(runs: Sequence[Benchmark]) -> list[Html]:
    rows = [(run.job, run.user, _moment(run.started), lost.why) for run, lost in _benchmarks(runs, Unread)]
    return _shown("Runs without a result", [("JOB", "USER", "STARTED", "WHY"), *rows])


def _history(name: str, title: str, label: str, points: Iterable[tuple[str, float, float]]) -> list[Html]:
    """Results over time: a curve for each kind that has two."""
    by_kind: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for kind, time, value in points:
        by_kind[kind].append((time / measured.DAY, value))
    most = sorted((pair for pair in by_kind.items() if len(pair[1]) > 1), key=lambda pair: -len(pair[1]))
    curves = [Curve(kind, there) for kind, there in most[:_MOST_KINDS]]
    if not curves:
        return []
    days = [x for curve in curves for x, _ in curve.points]
    first, last = min(days), max(days)
    ticks = {float(day): _moment(day * measured.DAY, form="%Y-%m-%d") for day in range(int(first), int(last) + 2)}
    if last - first < 3:
        places = [first + (last - first) * at / 4 for at in range(5)]
        ticks = {at: _moment(at * measured.DAY, form="%m-%d %H:%M") for at in places}
    return [element("h3", title), svg.chart(name, title, curves, x_label="date (UTC)", y_label=label, x_ticks=ticks)]


def _nccl(report: Report, given: Sequence[Benchmark]) -> list[Html]:
    runs = sorted(_benchmarks(given, Entry), key=lambda pair: -pair[0].started)
    lost = _unread_runs(given)
    if not runs:
        return [paragraph(f"No result in {_period(report)}: ./hpc nccl run {report.stack} measures."), *lost]
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
    found: list[Html] = []
    for number, (run, entry) in enumerate(list(latest.values())[:_MOST_KINDS], 1):
        curves, ticks = report_curves(entry.result)
        if any(len(curve.points) > 1 for curve in curves):
            title = f"{entry.kind}: the last run, job {run.job}, {entry.result.outcome.value}"
            parts = {"x_label": X_LABEL, "y_label": Y_LABEL, "x_ticks": ticks}
            found += [element("h3", title), svg.chart(f"nccl-{number}", title, curves, x_log=True, **parts)]
    over = _history(
        "nccl-history",
        "NCCL over time",
        "busbw at large sizes, GB/s",
        ((entry.kind, run.started, entry.busbw) for run, entry in runs),
    )
    slow = [paragraph(f"{one.what}.", class_="bad") for one in Folder(tuple(e for _, e in runs), ()).findings()]
    return [*slow, *found, *over, *_shown("NCCL tests, the newest first", [head, *rows], right={5}), *lost]


def _mlperf(report: Report, given: Sequence[Benchmark]) -> list[Html]:
    runs = sorted(_benchmarks(given, MlperfReport), key=lambda pair: -pair[0].started)
    lost = _unread_runs(given)
    if not runs:
        return [paragraph(f"No result in {_period(report)}: ./hpc mlperf run {report.stack} measures."), *lost]
    rows: list[tuple[str, ...]] = [("JOB", "USER", "STARTED", "BENCHMARK", "RESULT", "AVERAGE, S", "TARGET, S")]
    points: list[tuple[str, float, float]] = []
    for run, found in runs:
        last, title = found.comparisons[-1], found.log.runs[-1].title
        target = last.target if last else None
        average = f"{last.average:.2f}" if last else "-"
        result = found.result if found.result != "empty" else "no training steps"
        goal = f"{target.seconds:.2f} ({target.setup})" if target else "-"
        rows.append((run.job, run.user, _moment(run.started), title, result, average, goal))
        points += [(f"{title}{f', {target.setup}' if target else ''}", run.started, last.average)] if last else []
    over = _history("mlperf-history", "MLPerf over time", "seconds of an interval, on average", points)
    curves, x_label, y_label = runs[0][1].curves()
    title = f"The last run, job {runs[0][0].job}"
    drawn = [svg.chart("mlperf-last", title, curves, x_label=x_label, y_label=y_label)] if curves else []
    return [
        *([element("h3", title)] if drawn else []),
        *drawn,
        *over,
        *_shown("MLPerf trainings, the newest first", rows, right={5, 6}),
        *lost,
    ]


# -- accounting --------------------------------------------------------------------------------------------------------


def _usage(_: Report, given: tuple[str, str, used.UsageRecords]) -> list[Html]:
    since, until, read = given
    total = used.total(read.records)
    if not read.records:
        return [paragraph(f"Nothing was used between {since} and {until}, the controller's time.")]
    unit = "GPU" if total.gpu_seconds else "CPU"
    users = used.table(read.records, ["user"])
    bars = [
        svg.Bar(name=row.keys[0], value=row.gpu_hours, part=row.gpu_utilization)
        if unit == "GPU"
        else svg.Bar(name=row.keys[0], value=row.cpu_hours, part=row.cpu_efficiency)
        for row in users[:_MOST_BARS]
    ]
    shares = ", of which the filled part was busy" if any(bar.part is not None for bar in bars) else ""
    title = f"{unit} hours that users held"
    more = f" The first {_MOST_BARS} of {len(users)} users." if len(users) > _MOST_BARS else ""
    found = [
        paragraph(
            f"From {since} to {until}, the controller's time: {total.gpu_hours:,.1f} GPU hours and "
            f"{total.cpu_hours:,.1f} CPU hours of {counted(total.jobs, 'job')}."
        ),
        element("h3", title),
        svg.bars("usage-users", title, f"{unit} hours held{shares}.{more}", bars, unit="h"),
        paragraph(f"{unit} hours held{shares}.{more}", class_="muted"),
    ]
    keys: tuple[used.GroupKey, ...] = ("user", "account", "partition")
    for key in keys:
        rows = accounting.usage_table(used.table(read.records, [key]), total, [key])
        body = [*rows[: MOST_ROWS + 1], rows[-1]] if len(rows) > MOST_ROWS + 2 else rows
        found += _shown(f"By {key}", body, right=range(1, len(rows[0])))
    return [*found, *([paragraph(accounting.runaway_note(read))] if read.runaways else [])]


_HOURS = (
    ("allocated", "held by jobs"),
    ("nodes_out_by_faults", "nodes out by faults"),
    ("nodes_out_otherwise", "nodes out otherwise"),
    ("not_allocated", "free"),
)
"""What becomes of the capacity."""


def _efficiency(report: Report, _: measured.Facts) -> list[Html]:
    figures = report.figures
    unit, hours, ettr = figures["unit"].upper(), figures["hours"], figures["ettr"]["all"]
    found = [
        paragraph(f"ETTR (productive time of jobs as a share of the time from eligible to the end): {ettr:.1%}.")
        if ettr is not None
        else paragraph("No job ran.")
    ]
    if not isinstance(report.usage, Unread):
        total = used.total(report.usage[2].records)
        for what, share in (("processor", total.cpu_efficiency), ("GPU", total.gpu_utilization)):
            if share is not None:
                found.append(paragraph(f"Of the {what} time that jobs held, {share:.0%} was busy."))
    if hours["capacity"]:
        bars = [svg.Bar(name=words, value=hours[key]) for key, words in _HOURS]
        bars += [svg.Bar(name="waiting in the queue", value=hours["waiting"])]
        title = f"{unit} hours of the cluster's {svg.format_number(hours['capacity'])}"
        description = f"What became of {unit} hours; hours that jobs waited for are beside them."
        found += [element("h3", title), svg.bars("hours", title, description, bars, unit="h")]
    return found


def _reliability(report: Report, facts: measured.Facts) -> list[Html]:
    figures = report.figures
    found = _shown("Figures", accounting.reliability_table(figures), right={1})
    found += _shown("Failures by kind", accounting.failures_table(figures), right={1, 2, 3})
    found += [paragraph(line) for line in (*accounting.lemon_lines(figures), *accounting.assumption_lines(figures))]
    return [*found, *_states(facts)]


def _states(facts: measured.Facts) -> list[Html]:
    """Return a table of the states in which runs of jobs ended."""
    counts = Counter(run.state.partition(" ")[0].lower() for run in facts.runs).most_common()
    rows = [(state, str(number)) for state, number in counts]
    return _shown("Runs of jobs by their end", [("STATE", "RUNS"), *rows], right={1})


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
"""Anchor and title of each section, the field of the report that it needs, and what makes its blocks."""
