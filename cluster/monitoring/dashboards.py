"""Dashboards: the table of panels, and from it Grafana's files and the page of `./hpc dashboard`. Pure functions.

Queries use variables of Grafana: `$nodes` and `$job` are regular expressions for machines and for the id of the job on
GPUs; `$__rate_interval` is at least four times the interval of collection, which each query has
as its `interval` (Min step; grafana/grafana, pull request 84063).
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from cluster.report import palette
from scripts.node.interface import PROMETHEUS_PORT
from scripts.node.judge.kinds import WATCHDOG_ALERT

Kind = Literal["lines", "bars", "value"]
"""Curves over time; current values by label; one current value."""

SHARE, BYTES, RATE, SECONDS, CELSIUS, WATT = "share", "bytes", "bytes/s", "seconds", "°C", "watts"
"""Units. Any other unit is the noun that is counted, such as `jobs`."""
GRAFANA_UNITS = {SHARE: "percentunit", BYTES: "bytes", RATE: "Bps", SECONDS: "s", CELSIUS: "celsius", WATT: "watt"}

GPUS = "nodes with GPUs, and Slurm 26.05 or one before 25.11"
DCGM = "nodes with GPUs and dcgm-exporter"
ELASTIC = "elastic nodesets"
FABRIC = "InfiniBand or RoCE"
IMAGE = "an image that the stack bakes"
PEOPLE = "jobs, and no `PrivateData` in slurm.conf"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel of a dashboard."""

    title: str
    kind: Kind = "lines"
    unit: str
    queries: tuple[tuple[str, str], ...]
    """PromQL, and the name of its series, in which `{{label}}` stands for a label's value."""
    needs: str = ""
    """The part of a cluster that the panel needs for data; empty if every cluster has it."""
    none: str = ""
    """The meaning of no series; empty if it means that there is no data."""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A page of panels."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    of_nodes: bool = False
    """True if the user can select machines ($nodes)."""


def _lines(title: str, unit: str, *queries: tuple[str, str], needs: str = "", none: str = "") -> Panel:
    return Panel(title=title, unit=unit, queries=queries, needs=needs, none=none)


def _bars(title: str, unit: str, query: str, legend: str, *, needs: str = "", none: str = "") -> Panel:
    return Panel(title=title, kind="bars", unit=unit, queries=((query, legend),), needs=needs, none=none)


def _value(title: str, unit: str, query: str, *, needs: str = "") -> Panel:
    return Panel(title=title, kind="value", unit=unit, queries=((query, title),), needs=needs)


def _spread(expression: str) -> tuple[tuple[str, str], ...]:
    """Return queries of maximum, median and minimum over machines."""
    return (
        (f"max({expression})", "greatest"),
        (f"quantile(0.5, {expression})", "median"),
        (f"min({expression})", "least"),
    )


_CHOSEN = 'instance=~"$nodes"'
_BUSY = f'1 - avg by (instance) (rate(node_cpu_seconds_total{{mode="idle",{_CHOSEN}}}[$__rate_interval]))'
_MEMORY = f"1 - node_memory_MemAvailable_bytes{{{_CHOSEN}}} / node_memory_MemTotal_bytes{{{_CHOSEN}}}"
_LOCAL = 'fstype!~"tmpfs|ramfs|squashfs|fuse.*|nfs.*|lustre|virtiofs"'
_FULL = f"1 - node_filesystem_avail_bytes{{{_LOCAL}}} / (node_filesystem_size_bytes{{{_LOCAL}}} > 0)"
_MINE = f'{_CHOSEN},hpc_job=~"$job"'
_SHARED_FULL = "1 - hpc_shared_filesystem_free_bytes / (hpc_shared_filesystem_size_bytes > 0)"


def _sum(metric: str, *, by: str = "") -> str:
    """Return the rate of a counter, summed over its devices."""
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{_CHOSEN}}}[$__rate_interval]))"


def _gpu(name: str, chosen: str = _CHOSEN) -> str:
    """Return a metric of DCGM by GPU. A GPU has a series for each job on it."""
    return f"max by (instance, gpu) (DCGM_FI_{name}{{{chosen}}})"


def _gpu_memory(chosen: str = _CHOSEN) -> str:
    used = _gpu("DEV_FB_USED", chosen)
    return f"{used} / ({used} + {_gpu('DEV_FB_FREE', chosen)})"


def _throttled(name: str) -> str:
    return f"max(rate(DCGM_FI_DEV_{name}_VIOLATION{{{_CHOSEN}}}[$__rate_interval])) / 1e9"


_FIRING = f'ALERTS{{alertstate="firing",alertname!="{WATCHDOG_ALERT}"}}'
_OVERVIEW = (
    _value("Alerts that fire", "alerts", f"count({_FIRING}) or vector(0)"),
    _value("Nodes down or drained", "nodes", "count(hpc_node_unavailable_seconds) or vector(0)"),
    _value("Machines that do not answer", "machines", 'count(up{job="node",elastic="no"} == 0) or vector(0)'),
    _value("Jobs that run", "jobs", "max(slurm_jobs_running)"),
    _value("Jobs that wait for nodes", "jobs", "max(hpc_jobs_waiting)"),
    _value("CPUs allocated", SHARE, "sum(slurm_node_cpus_alloc) / sum(slurm_node_cpus)"),
    _lines(
        "Nodes by state",
        "nodes",
        ("max(slurm_nodes_alloc)", "allocated"),
        ("max(slurm_nodes_mixed)", "mixed"),
        ("max(slurm_nodes_idle)", "idle"),
        ("max(slurm_nodes_down)", "down"),
        ("max(slurm_nodes_drained)", "drained"),
    ),
    _lines(
        "Jobs",
        "jobs",
        ("max(slurm_jobs_running)", "running"),
        ("max(slurm_jobs_pending)", "pending"),
    ),
    _lines(
        "Allocated",
        SHARE,
        ("sum(slurm_node_cpus_alloc) / sum(slurm_node_cpus)", "CPUs"),
        ("sum(slurm_node_gpus_alloc) / sum(slurm_node_gpus)", "GPUs"),
        ("sum(slurm_node_memory_alloc_bytes) / sum(slurm_node_memory_bytes)", "memory"),
    ),
    _lines("CPUs in use on nodes", SHARE, *_spread(_BUSY.replace(_CHOSEN, 'role="node"'))),
    _bars(
        "Alerts",
        "alerts",
        f"count by (alertname, severity, actor) ({_FIRING})",
        "{{alertname}} ({{severity}}, {{actor}})",
        none="No alert fires.",
    ),
)
_QUEUE = (
    _lines("Jobs that wait for nodes", "jobs", ("max by (partition) (hpc_partition_jobs_waiting)", "{{partition}}")),
    _lines(
        "Longest time that a job has waited for nodes",
        SECONDS,
        ("max by (partition) (hpc_partition_oldest_waiting_seconds)", "{{partition}}"),
    ),
    _lines("Jobs that run", "jobs", ("max by (partition) (slurm_partition_jobs_running)", "{{partition}}")),
    _lines(
        "Jobs that do not start",
        "jobs",
        ("max(slurm_jobs_pending)", "pending"),
        ("max(hpc_jobs_waiting)", "wait for nodes"),
        ("max(slurm_jobs_hold)", "held"),
        ("max(hpc_jobs_held)", "held by Slurm or an operator"),
    ),
    _lines(
        "Jobs an hour",
        "jobs/h",
        ("max(rate(slurm_sdiag_jobs_submitted[$__rate_interval])) * 3600", "submitted"),
        ("max(rate(slurm_sdiag_jobs_started[$__rate_interval])) * 3600", "started"),
        ("max(rate(slurm_sdiag_jobs_completed[$__rate_interval])) * 3600", "completed"),
        ("max(rate(slurm_sdiag_jobs_failed[$__rate_interval])) * 3600", "failed"),
    ),
    _lines(
        "Last pass of the scheduler",
        SECONDS,
        ("max(slurm_schedule_cycle_last) / 1e6", "main"),
        ("max(slurm_bf_cycle_last) / 1e6", "backfill"),
    ),
    _lines(
        "Queues of slurmctld",
        "entries",
        ("max(slurm_schedule_queue_len)", "jobs for the scheduler"),
        ("max(slurm_agent_queue_size)", "messages to nodes"),
        ("max(slurm_slurmdbd_queue_size)", "records for slurmdbd"),
    ),
    _lines("Answer of slurmctld", SECONDS, ("max(hpc_slurmctld_ping_seconds)", "ping")),
)
_NODES = (
    _bars("CPUs in use by machine", SHARE, _BUSY, "{{instance}}"),
    _bars("Memory in use by machine", SHARE, _MEMORY, "{{instance}}"),
    _lines("CPUs in use", SHARE, *_spread(_BUSY)),
    _lines("Memory in use", SHARE, *_spread(_MEMORY)),
    _lines("Load of one minute", "processes", *_spread(f"node_load1{{{_CHOSEN}}}")),
    _lines(
        "Network",
        RATE,
        (_sum("node_network_receive_bytes_total"), "received"),
        (_sum("node_network_transmit_bytes_total"), "sent"),
    ),
    _lines(
        "Fabric",
        RATE,
        (_sum("node_infiniband_port_data_received_bytes_total"), "received"),
        (_sum("node_infiniband_port_data_transmitted_bytes_total"), "sent"),
        needs=FABRIC,
    ),
    _lines(
        "Disks",
        RATE,
        (_sum("node_disk_read_bytes_total"), "read"),
        (_sum("node_disk_written_bytes_total"), "written"),
    ),
    _bars(
        "Out of service since",
        SECONDS,
        "max by (node, state) (hpc_node_unavailable_seconds)",
        "{{node}} ({{state}})",
        none="No node is down or drained.",
    ),
    _bars("Since the last boot", SECONDS, f"time() - node_boot_time_seconds{{{_CHOSEN}}}", "{{instance}}"),
)
_ONE_GPU = "{{instance}} GPU {{gpu}}"
_GPUS = (
    _bars("GPUs allocated by node", "GPUs", "max by (node) (slurm_node_gpus_alloc)", "{{node}}", needs=GPUS),
    _bars(
        "A kernel runs, by node", SHARE, f"avg by (instance) ({_gpu('DEV_GPU_UTIL')}) / 100", "{{instance}}", needs=DCGM
    ),
    _lines(
        "GPUs",
        "GPUs",
        ("sum(slurm_node_gpus)", "all"),
        ("sum(slurm_node_gpus_alloc)", "allocated"),
        needs=GPUS,
    ),
    _lines("A kernel runs", SHARE, *_spread(f"{_gpu('DEV_GPU_UTIL')} / 100"), needs=DCGM),
    _lines("Tensor cores are active", SHARE, *_spread(_gpu("PROF_PIPE_TENSOR_ACTIVE")), needs=DCGM),
    _lines("GPU memory in use", SHARE, *_spread(_gpu_memory()), needs=DCGM),
    _lines("Temperature", CELSIUS, *_spread(_gpu("DEV_GPU_TEMP")), needs=DCGM),
    _lines("Power", WATT, (f"sum({_gpu('DEV_POWER_USAGE')})", "all GPUs"), needs=DCGM),
    _lines(
        "Time with a lower clock",
        SHARE,
        (_throttled("THERMAL"), "heat, hottest GPU"),
        (_throttled("POWER"), "power, hungriest GPU"),
        needs=DCGM,
    ),
    _bars(
        "Last Xid",
        "(number)",
        f"{_gpu('DEV_XID_ERRORS')} > 0",
        _ONE_GPU,
        needs=DCGM,
        none="No GPU has reported an Xid.",
    ),
)
_JOB = (
    _lines("CPUs in use", SHARE, (_BUSY, "{{instance}}")),
    _lines("Memory in use", SHARE, (_MEMORY, "{{instance}}")),
    _lines("GPUs: a kernel runs", SHARE, (f"{_gpu('DEV_GPU_UTIL', _MINE)} / 100", _ONE_GPU), needs=DCGM),
    _lines("GPUs: tensor cores are active", SHARE, (_gpu("PROF_PIPE_TENSOR_ACTIVE", _MINE), _ONE_GPU), needs=DCGM),
    _lines("GPU memory in use", SHARE, (_gpu_memory(_MINE), _ONE_GPU), needs=DCGM),
    _lines(
        "Power of GPUs", WATT, (f"sum by (instance) ({_gpu('DEV_POWER_USAGE', _MINE)})", "{{instance}}"), needs=DCGM
    ),
    _lines("Network, received", RATE, (_sum("node_network_receive_bytes_total", by="instance"), "{{instance}}")),
    _lines("Network, sent", RATE, (_sum("node_network_transmit_bytes_total", by="instance"), "{{instance}}")),
    _lines(
        "Fabric, received",
        RATE,
        (_sum("node_infiniband_port_data_received_bytes_total", by="instance"), "{{instance}}"),
        needs=FABRIC,
    ),
    _lines(
        "Fabric, sent",
        RATE,
        (_sum("node_infiniband_port_data_transmitted_bytes_total", by="instance"), "{{instance}}"),
        needs=FABRIC,
    ),
    _lines("Disks, read", RATE, (_sum("node_disk_read_bytes_total", by="instance"), "{{instance}}")),
    _lines("Disks, written", RATE, (_sum("node_disk_written_bytes_total", by="instance"), "{{instance}}")),
    _lines(
        "Fullest local file system",
        SHARE,
        (f"max by (instance) ({_FULL.replace(_LOCAL, f'{_LOCAL},{_CHOSEN}')})", "{{instance}}"),
    ),
    _lines(
        "Answer of shared file systems, on the controller",
        SECONDS,
        ("hpc_shared_filesystem_answer_seconds", "{{mountpoint}}"),
    ),
)
_PEOPLE = (
    *(
        _bars(
            f"{state.capitalize()} jobs by {word}",
            "jobs",
            f"topk(20, max by ({label}) (slurm_{name}_jobs_{state}) > 0)",
            f"{{{{{label}}}}}",
            needs=PEOPLE,
            none=f"No job is {state}.",
        )
        for name, label, word in (("user", "username", "user"), ("account", "account", "account"))
        for state in ("running", "pending")
    ),
    *(
        _lines(
            f"Running and pending jobs by {word}",
            "jobs",
            (f"topk(8, max by ({label}) (slurm_{name}_jobs_running + slurm_{name}_jobs_pending))", f"{{{{{label}}}}}"),
            needs=PEOPLE,
        )
        for name, label, word in (("user", "username", "user"), ("account", "account", "account"))
    ),
    _bars(
        "GPUs of running jobs by user",
        "GPUs",
        "topk(20, sum by (user) (hpc_job_gpus))",
        "{{user}}",
        needs=GPUS,
        none="No job has GPUs.",
    ),
)
_FILE_SYSTEMS = (
    _bars("Shared file systems: in use now", SHARE, _SHARED_FULL, "{{mountpoint}}"),
    _bars(
        "Mounted and written to by the controller",
        "(1 is yes)",
        "hpc_shared_filesystem_mounted * on (mountpoint) (1 - hpc_shared_filesystem_readonly)",
        "{{mountpoint}}",
    ),
    _lines("Shared file systems: in use", SHARE, (_SHARED_FULL, "{{mountpoint}}")),
    _lines("Shared file systems: free", BYTES, ("hpc_shared_filesystem_free_bytes", "{{mountpoint}}")),
    _lines("Shared file systems: answer", SECONDS, ("hpc_shared_filesystem_answer_seconds", "{{mountpoint}}")),
    _bars(
        "Fullest local file system of each machine: in use",
        SHARE,
        f"topk(20, topk by (instance) (1, {_FULL}))",
        "{{instance}} {{mountpoint}}",
    ),
)
_HEALTH = (
    _lines(
        "Failed checks", "checks", ("sum by (kind) (hpc_health_checks_failed) > 0", "{{kind}}"), none="No check fails."
    ),
    _bars(
        "Failed checks now",
        "checks",
        "max by (node, kind) (hpc_health_check_failed)",
        "{{node}}: {{kind}}",
        none="No check fails.",
    ),
    _lines("Oldest check of a node", SECONDS, ("max(hpc_health_age_seconds)", "age"), none="No node was checked yet."),
    _lines("Machines by their set-up", "machines", ("max by (state) (hpc_machines)", "{{state}}")),
    _lines(
        "Daemons answer",
        "(1 is yes)",
        ("max(hpc_slurmctld_up)", "slurmctld"),
        ("max(hpc_slurmdbd_up)", "slurmdbd"),
        ("max(hpc_munge_works)", "munged"),
    ),
    _lines(
        "Clocks: difference from the controller",
        SECONDS,
        ("max(abs(timestamp(node_time_seconds) - node_time_seconds))", "greatest"),
    ),
    _lines(
        "Repairs: held and out of capacity",
        "kinds",
        ("max(hpc_reconcile_brakes)", "brakes"),
        ("max(hpc_reconcile_cooling)", "capacity that is refused"),
        needs=ELASTIC,
    ),
    _bars(
        "Repairs: recent actions",
        "actions",
        "max by (action) (hpc_reconcile_recent_actions)",
        "{{action}}",
        needs=ELASTIC,
    ),
    _value("Age of the image", SECONDS, "max(hpc_image_age_seconds)", needs=IMAGE),
    _lines(
        "Collectors that work",
        "collectors",
        ("sum(hpc_collector_success)", "working"),
        ("count(hpc_collector_success)", "all"),
    ),
)

DASHBOARDS = (
    Dashboard(name="overview", title="Overview", panels=_OVERVIEW),
    Dashboard(name="queue", title="Queue", panels=_QUEUE),
    Dashboard(name="nodes", title="Nodes", panels=_NODES, of_nodes=True),
    Dashboard(name="gpus", title="GPUs", panels=_GPUS, of_nodes=True),
    Dashboard(name="job", title="Job", panels=_JOB, of_nodes=True),
    Dashboard(name="people", title="Users and accounts", panels=_PEOPLE),
    Dashboard(name="file-systems", title="File systems", panels=_FILE_SYSTEMS),
    Dashboard(name="health", title="Health and repairs", panels=_HEALTH),
)


def grafana_files(
    cluster: str, interval: int, dashboards: Iterable[Dashboard] = DASHBOARDS
) -> dict[str, dict[str, Any]]:
    """Return files for /etc/grafana by their path in it: dashboards for Grafana 10 and later, and the provisioning of
    dashboards and data source. `interval` is in seconds."""
    source = {
        "name": cluster,
        "uid": f"hpc-{cluster}"[:40],
        "type": "prometheus",
        "url": f"http://127.0.0.1:{PROMETHEUS_PORT}",
    }
    provider = {"name": cluster, "folder": cluster, "options": {"path": f"/etc/grafana/dashboards/{cluster}"}}
    return {
        f"provisioning/datasources/hpc-{cluster}.yaml": {
            "apiVersion": 1,
            "datasources": [{**source, "access": "proxy", "jsonData": {"httpMethod": "POST"}}],
        },
        f"provisioning/dashboards/hpc-{cluster}.yaml": {"apiVersion": 1, "providers": [{**provider, "type": "file"}]},
        **{
            f"dashboards/{cluster}/{dashboard.name}.json": grafana_dashboard(
                dashboard, cluster, source["uid"], interval
            )
            for dashboard in dashboards
        },
    }


def grafana_dashboard(dashboard: Dashboard, cluster: str, source: str, interval: int) -> dict[str, Any]:
    """Return a dashboard of Grafana; `source` is the uid of its data source, `interval` the seconds between two
    collections."""
    panels: list[dict[str, Any]] = []
    x = y = row_height = 0
    for number, panel in enumerate(dashboard.panels, 1):
        width, height = (4, 4) if panel.kind == "value" else (12, 8)
        if x + width > 24 or (x and height != row_height):
            x, y = 0, y + row_height
        panels.append(
            {"id": number, "gridPos": {"x": x, "y": y, "w": width, "h": height}, **_panel(panel, source, interval)}
        )
        x, row_height = x + width, height
    return {
        "uid": f"hpc-{dashboard.name}-{cluster}"[:40],
        "title": f"{cluster}: {dashboard.title}",
        "tags": ["slurm", cluster],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                *([_nodes(source)] if dashboard.of_nodes else []),
                *([_JOB_NUMBER] if dashboard.name == "job" else []),
            ]
        },
        "panels": panels,
    }


_TYPES: dict[Kind, tuple[str, dict[str, Any]]] = {
    "lines": (
        "timeseries",
        {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    ),
    "bars": ("bargauge", {"orientation": "horizontal", "displayMode": "basic"}),
    "value": ("stat", {"colorMode": "none", "graphMode": "none", "textMode": "value"}),
}
"""Grafana's type and options of each kind."""


def _panel(panel: Panel, source: str, interval: int) -> dict[str, Any]:
    kind, options = _TYPES[panel.kind]
    instant = panel.kind != "lines"
    reduced = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}} if instant else {}
    targets = [
        {
            "refId": chr(65 + at),
            "expr": expression,
            "legendFormat": legend,
            "interval": f"{interval}s",
            "instant": instant,
            "range": not instant,
        }
        for at, (expression, legend) in enumerate(panel.queries)
    ]
    unit = GRAFANA_UNITS.get(panel.unit, "short")
    limits = {"min": 0, **({"max": 1} if panel.unit == SHARE else {})}
    axis = {} if instant or panel.unit in GRAFANA_UNITS else {"custom": {"axisLabel": panel.unit}}
    return {
        "type": kind,
        "title": panel.title,
        "description": f"Has data with: {panel.needs}." if panel.needs else "",
        "datasource": {"type": "prometheus", "uid": source},
        "targets": targets,
        "options": {**options, **reduced},
        "fieldConfig": {
            "defaults": {"unit": unit, "noValue": panel.none or "no data", **limits, **axis},
            "overrides": [],
        },
    }


_JOB_NUMBER = {
    "name": "job",
    "label": "Job on GPUs",
    "type": "textbox",
    "query": ".*",
    "current": {"selected": True, "text": ".*", "value": ".*"},
}
"""The variable `$job`."""


def _nodes(source: str) -> dict[str, Any]:
    """The variable `$nodes`."""
    return {
        "name": "nodes",
        "label": "Machines",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": source},
        "query": {"query": 'label_values(up{job="node"}, instance)', "refId": "nodes"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


# -- the page of `./hpc dashboard` -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DashboardPage:
    """An HTML document with its HTTP headers."""

    text: str
    headers: Mapping[str, str]


def page(
    cluster: str, stack: str, interval_seconds: int, dashboards: Iterable[Dashboard] = DASHBOARDS
) -> DashboardPage:
    """Return the page of a cluster, one document without references to others.

    Its script requests the panels' data from Prometheus' API below the page's path, which must end with a slash.
    """
    data = {
        "cluster": cluster,
        "stack": stack,
        "interval": interval_seconds,
        "dashboards": [asdict(dashboard) for dashboard in dashboards],
        "colours": len(palette.SERIES),
        "dashes": palette.DASHES,
    }
    style, script = palette.stylesheet() + _read("dashboard.css"), _read("dashboard.js")
    # No name may end the script element or begin a comment in it.
    table = json.dumps(data).replace("<", "\\u003c")
    text = _read("dashboard.html")
    for mark, content in (("@STYLE@", style), ("@TABLE@", table), ("@SCRIPT@", script)):
        text = text.replace(mark, content)
    # The script sets widths of bars. The policy does not count that as inline style.
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return DashboardPage(text, {"Content-Security-Policy": policy})


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
