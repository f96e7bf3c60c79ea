"""The page of `./hpc report`: what `status`, `usage` and `reliability` compute, rendered by report_page.html."""

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from cli.display import accounting, status_screen
from cli.display.status_screen import Table, ago
from cluster.config.cluster import ClusterConfig
from cluster.findings import ClusterFinding
from cluster.observe.observation import ClusterObservation
from cluster.observe.reliability import ReliabilityRecords, Trouble, reliability
from cluster.observe.usage import GROUP_KEYS, UsageRecords
from cluster.observe.usage import table as usage_rows
from cluster.observe.usage import total as usage_total
from cluster.platforms import registry
from cluster.printable import counted, one_line
from cluster.report.palette import stylesheet
from cluster.roster import nodeset_gpu, nodeset_type
from scripts.node.slurm.hostlist import compress

MOST_ROWS = 200
"""Number of rows of a table that are shown."""
_MOST_BARS = 12


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
    """By name, such as nodes or queue; those that only one platform has by their first heading."""


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
    usage: tuple[str, str, UsageRecords] | Unread
    reliability: ReliabilityRecords | Unread


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a section, for the template."""

    kind: str = "text"
    """text, table, bars or finding."""
    text: str = ""
    style: str = ""
    """The class of a text: good, bad or muted."""
    title: str = ""
    rows: Sequence[Sequence[object]] = ()
    """Rows of a table, the first with the headings; or of bars: name, hours and the filled part, if it is known."""
    right: Iterable[int] = ()
    """Columns of numbers."""
    found: ClusterFinding | None = None


def render(report: Report) -> str:
    """Return the page as HTML. All texts are escaped, and invisible characters are written as codes."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else one_line(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A host list may be broken at its commas.
    comma = Markup(",<wbr>")
    environment.filters["breakable"] = lambda cell: escape(one_line(str(cell))).replace(",", comma)
    values = [(part, getattr(report, part[2])) for part in _PARTS]
    sections = [
        (name, title, _missing(value) if isinstance(value, Unread) else blocks(report, value))
        for (name, title, _, blocks), value in values
    ]
    return environment.get_template("report_page.html").render(
        colours=Markup(stylesheet()),  # noqa: S704
        most=MOST_ROWS,
        report=report,
        written=_moment(report.written),
        sentence=_sentence(report),
        unread=", ".join(unread(report)),
        sections=sections,
    )


def unread(report: Report) -> dict[str, str]:
    """Return for each part that could not be read the reason."""
    parts = {source: getattr(report, source) for *_, source, _ in _PARTS}
    return {name: value.why for name, value in parts.items() if isinstance(value, Unread) and value.missing}


def _sentence(report: Report) -> str:
    if isinstance(report.status, Unread):
        return f"{report.stack}: the cluster's status is not known."
    return status_screen.sentence(report.status.observation, list(report.status.findings))


def _missing(why: Unread) -> list[Block]:
    return [Block(text=f"Could not be read: {why.why}", style="bad") if why.missing else Block(text=why.why)]


def _moment(time: float) -> str:
    return dt.datetime.fromtimestamp(time, dt.timezone.utc).strftime("%Y-%m-%d\u00a0%H:%M\u00a0UTC")


def _table(title: str, rows: Sequence[Sequence[object]], right: Iterable[int] = ()) -> list[Block]:
    """Return a table; no blocks for one without rows."""
    return [Block(kind="table", title=title, rows=rows, right=right)] if len(rows) > 1 else []


def _findings(report: Report, status: Status) -> list[Block]:
    blocks = [
        Block(
            kind="finding",
            title=f"{compress(found.where)}: {found.id}"
            + (f", for {ago(report.written - found.since)}" if found.since else ""),
            found=found,
        )
        for found in status.findings
    ]
    return blocks or [Block(text="Nothing to look at.", style="good")]


def _cluster(report: Report, status: Status) -> list[Block]:
    blocks = _machines(report.config) if report.config else []
    for name, rows in status.tables.items():
        if name not in _ELSEWHERE:
            blocks += _table(_TITLES.get(name, name.capitalize()), rows)
    return blocks


_ELSEWHERE = ("queue", "alerts", "daemons", "versions")
_TITLES = {
    "nodes": "Nodes by state",
    "storage": "File systems",
    "actions": "Last actions of the reconcile loop",
    "CHECK": "Checks of the operator",
    "CLUSTER": "The operator's cluster",
}
"""Titles of tables by name; that of another is its name."""


def _machines(config: ClusterConfig) -> list[Block]:
    """Return the machine types of a cluster with its network and the file systems that its platform lists."""
    places = registry.get(config.platform).places(config)
    rows: list[tuple[object, ...]] = [("MACHINES", "COUNT", "TYPE", "FABRIC", "LINE RATE")]
    for name, section in (("controller", config.controller), ("login", config.login)):
        rows.append((name, getattr(section, "count", 1), section.machine_type or "", "", ""))
    for name, section in config.nodesets.items():
        kind, gpu = nodeset_type(config, section), nodeset_gpu(config, section)
        gpus = f", {gpu.count} {gpu.type}" if gpu else ""
        rate = f"{kind.line_rate.nics} NICs of {kind.line_rate.gbps} Gbit/s each" if kind.line_rate else ""
        rows.append((name, section.most, f"{kind.name}{gpus}", kind.family.fabric.name if rate else "", rate))
    mounts = [("MOUNT", "SERVER"), *(places.mounts or {}).items()]
    network = f"The network: {places.network}."
    return [*_table("The machines", rows, right=[1]), Block(text=network), *_table("Mounts", mounts)]


def _queue(_: Report, status: Status) -> list[Block]:
    return [Block(text=f"{status_screen.jobs(status.observation)}."), *_table("Jobs", status.tables.get("queue", []))]


def _versions(report: Report, status: Status) -> list[Block]:
    rows = status.tables.get("versions") or [("PROGRAM", "VERSION", "MACHINES")]
    programs = _table("Versions of programs", [*rows, ("hpc", report.version, "wrote this page")])
    return [*programs, *_table("Daemons", status.tables.get("daemons", []))]


def _alerts(report: Report, status: Status) -> list[Block]:
    if report.config is None or report.config.monitoring is None:
        return [Block(text="The stack has no monitoring.")]
    machine = status.observation.monitoring
    if machine.part("alerts") is None:
        return _missing(Unread(machine.error("alerts") or machine.why or f"{machine.name} did not report them"))
    rows = _table("Alerts that fire", status.tables.get("alerts", []))
    return rows or [Block(text="No alert fires.", style="good")]


def _troubles(facts: ReliabilityRecords) -> list[Block]:
    """Return the history of failed checks and warnings by kind."""
    groups: dict[tuple[str, str], list[Trouble]] = defaultdict(list)
    for trouble in facts.troubles:
        groups[trouble.kind, "failed" if trouble.failed else "warning"].append(trouble)
    rows = [
        (*key, len(group), compress({trouble.node for trouble in group}), _moment(min(times)), _moment(max(times)))
        for key, group in sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        for times in [[trouble.time for trouble in group]]
    ]
    table = _table("History of health checks", [("CHECK", "RESULT", "TIMES", "NODES", "FIRST", "LAST"), *rows], [2])
    return table or [Block(text="No check has failed in the kept history.")]


def _usage(report: Report, usage: tuple[str, str, UsageRecords]) -> list[Block]:
    since, until, read = usage
    total = usage_total(read.records)
    if not read.records:
        return [Block(text=f"Nothing was used between {since} and {until}, the controller's time.")]
    unit, hours, busy = (
        ("GPU", "gpu_hours", "gpu_utilization") if total.gpu_seconds else ("CPU", "cpu_hours", "cpu_efficiency")
    )
    rows = usage_rows(read.records, ["user"])[:_MOST_BARS]
    held = f"{total.gpu_hours:,.1f} GPU hours and {total.cpu_hours:,.1f} CPU hours of {counted(total.jobs, 'job')}."
    blocks = [
        Block(text=f"From {since} to {until}, the controller's time: {held}"),
        Block(
            kind="bars",
            title=f"{unit} hours that users held",
            rows=[(row.keys[0], getattr(row, hours), getattr(row, busy)) for row in rows],
            text=f"The filled part was busy, where it was measured. At most {_MOST_BARS} users.",
        ),
    ]
    for key in GROUP_KEYS:
        table = accounting.usage_table(usage_rows(read.records, [key]), total, [key])
        blocks += _table(f"By {key}", table, range(1, len(table[0])))
    return [*blocks, *([Block(text=accounting.runaway_note(read, report.stack))] if read.runaways else [])]


def _reliability(_: Report, facts: ReliabilityRecords) -> list[Block]:
    figures = reliability(facts)
    hours, unit = figures["hours"], figures["unit"].upper()
    parts = ("allocated", "nodes_out_by_faults", "nodes_out_otherwise", "not_allocated", "waiting")
    ends = Counter(run.state.partition(" ")[0].lower() for run in facts.runs).most_common()
    return [
        Block(
            kind="bars",
            title=f"{unit} hours of the cluster's {hours['capacity']:,.0f}",
            rows=[(name.replace("_", " "), hours[name], None) for name in parts],
            text="Hours that jobs waited for are beside the cluster's.",
        ),
        *_table("Figures", accounting.reliability_table(figures), [1]),
        *_table("Failures by kind", accounting.failures_table(figures), [1, 2, 3]),
        *(Block(text=line) for line in (*accounting.lemon_lines(figures), *accounting.assumption_lines(figures))),
        *_table("Runs of jobs by their end", [("STATE", "RUNS"), *ends], [1]),
        *_troubles(facts),
    ]


_PARTS: Sequence[tuple[str, str, str, Callable[[Report, Any], Sequence[Block]]]] = (
    ("findings", "Findings", "status", _findings),
    ("cluster", "The cluster", "status", _cluster),
    ("queue", "Queue", "status", _queue),
    ("alerts", "Alerts", "status", _alerts),
    ("usage", "Usage", "usage", _usage),
    ("reliability", "Reliability", "reliability", _reliability),
    ("versions", "Versions", "status", _versions),
)
"""Anchor and title of each section, the field of the report that it needs, and the function that returns its blocks."""
