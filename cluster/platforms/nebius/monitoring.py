"""Metrics of a cluster in Kubernetes: the charts of Nebius's recipe collect them. Rules and dashboards are those of the
other platforms, as far as their metrics exist. Pure functions.

The metrics that this program's own exporter has on machines are recorded from Soperator's, with the same names.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.monitoring.alerts import Alert, alerts_for, read, rules
from cluster.monitoring.dashboards import DASHBOARDS, Dashboard, grafana_dashboard
from cluster.monitoring.files import GPU_FIELDS, alertmanager_config, secret_placeholder
from cluster.platforms.nebius.names import ALERTMANAGER, MONITORING_NAMESPACE
from cluster.roster import nodeset_gpu
from scripts.node.interface import lookback_seconds
from scripts.node.slurm.job_reasons import FOR_NODES, OUT_OF_SERVICE

SECRET = "hpc-alerts"  # noqa: S105 - the name of a Secret
"""Secret of MONITORING_NAMESPACE with the secrets of alert receivers, by the name of the setting without `hpc:`."""
ENDPOINTS = ("nodes", "scheduler")
"""Endpoints of slurmctld that are read. A read of another one ends slurmctld before 25.11.5 if a partition was deleted
whose jobs ended a short time ago (SchedMD/slurm, c5737a17); 4.1 has 25.11.3. Jobs come from Soperator's exporter."""
_SCHEDULER = (
    *"schedule_cycle_last schedule_queue_len bf_cycle_last agent_queue_size slurmdbd_queue_size".split(),
    *(f"sdiag_jobs_{state}" for state in "submitted started completed failed".split()),
)
_NODE = (
    *"boot_time_seconds cpu_seconds_total disk_read_bytes_total disk_written_bytes_total".split(),
    *"filesystem_avail_bytes filesystem_files filesystem_files_free filesystem_readonly filesystem_size_bytes".split(),
    *"load1 time_seconds".split(),
    *"infiniband_port_data_transmitted_bytes_total memory_MemAvailable_bytes memory_MemTotal_bytes".split(),
    *"infiniband_port_data_received_bytes_total network_receive_bytes_total vmstat_oom_kill".split(),
    "network_transmit_bytes_total",
)
EXPORTED = frozenset(
    (
        # slurmctld, src/plugins/metrics/openmetrics at slurm-25-11-3-1.
        *(f"slurm_nodes{state}" for state in ("", "_alloc", "_mixed", "_idle", "_down", "_drained")),
        *(f"slurm_node_{what}" for what in ("cpus", "cpus_alloc", "memory_bytes", "memory_alloc_bytes")),
        *(f"slurm_{name}" for name in _SCHEDULER),
        # Soperator's exporter, internal/exporter/collector.go at 4.1.7.
        *("slurm_node_info", "slurm_job_info"),
        # node_exporter with the chart's collectors; kube-state-metrics; the exporters of the stack itself.
        *(f"node_{name}" for name in _NODE),
        *("kube_pod_container_status_ready", "up", "ALERTS", "alertmanager_notifications_failed_total"),
        # dcgm-exporter, whose fields are ours.
        *(name for name, _, _ in GPU_FIELDS),
    )
)
"""The collected metrics, of those that rules and panels use."""
_MOUNTS = '{fstype="virtiofs",mountpoint=~"/mnt/(jail|jail-submount-.+|controller-spool|accounting)"}'
"""Shared file systems on Kubernetes' nodes (helm/slurm-cluster-storage)."""


def _waits(reasons: Iterable[str]) -> str:
    """Return the series of the jobs that wait for reasons with these beginnings, whose blanks may be underscores."""
    words = "|".join(reason.replace(" ", ".") for reason in reasons)
    return f'slurm_job_info{{job_state="PENDING",job_state_reason=~"({words})(,.*)?"}}'


_WAIT = _waits(FOR_NODES)
_HELD = 'slurm_job_info{job_state="PENDING",job_state_reason=~"(?i).*(held|hold).*"'


def _as(label: str, expression: str, source: str) -> str:
    """Return an expression with a copy of the label `source` under our name of it."""
    return f'label_replace({expression}, "{label}", "$1", "{source}", "(.+)")'


def _jobs(state: str) -> str:
    return f'slurm_job_info{{job_state="{state.upper()}"}}'


def _unavailable() -> str:
    """Return the expression of the nodes that take no jobs, by state, from Soperator's exporter; without nodes that are
    powered down."""
    states = {
        "down": 'slurm_node_info{state_base="DOWN",is_unavailable="true",state_is_maintenance!="true"}',
        "drained": 'slurm_node_info{state_is_drain="true",state_base!="DOWN",state_is_powered_down="",'
        'state_is_powering_down=""}',
    }
    parts = (
        f'label_replace(max by (node) ({_as("node", series, "node_name")}), "state", "{state}", "", "")'
        for state, series in states.items()
    )
    return f"({' or '.join(parts)})"


def recording_rules(config: ClusterConfig, interval: int) -> dict[str, str]:
    """Return the recorded expressions by name, each after those that it uses. MetricsQL."""
    out, kept = _unavailable(), f"{lookback_seconds(interval)}s"
    running = _as("user", _as("hpc_job", _jobs("running"), "job_id"), "user_name")
    records = {
        "hpc_slurmctld_up": "count(slurm_nodes) > bool 0 or vector(0)",
        "hpc_slurmdbd_up": f'min(kube_pod_container_status_ready{{namespace="{config.name}",'
        'container=~"accounting|mariadb"}) or vector(0)',
        # The start is the time of its first record.
        "hpc_node_unavailable_since": f"last_over_time(hpc_node_unavailable_since[{kept}]) and on (node, state) {out} "
        f"or time() * {out}",
        "hpc_node_unavailable_seconds": f"time() - hpc_node_unavailable_since and on (node, state) {out}",
        **{f"slurm_jobs_{state}": f"count({_jobs(state)}) or vector(0)" for state in ("running", "pending")},
        "slurm_jobs_hold": f"count({_HELD}}}) or vector(0)",
        "hpc_jobs_held": f'count({_HELD},job_state_reason!="JobHeldUser"}}) or vector(0)',
        "hpc_jobs_waiting": f"count({_WAIT}) or vector(0)",
        "hpc_partition_jobs_waiting": f"count by (partition) ({_as('partition', _WAIT, 'slurm_partition')})",
        "hpc_partition_jobs_blocked": "count by (partition) "
        f"({_as('partition', _waits(OUT_OF_SERVICE), 'slurm_partition')}) or 0 * hpc_partition_jobs_waiting",
        # Of the whole cluster, because Soperator's labels do not include a node's partitions.
        "hpc_partition_nodes_free": "0 * hpc_partition_jobs_waiting + on () group_left () max(slurm_nodes_idle)",
        "hpc_partition_oldest_waiting_seconds": "max by (partition) "
        f'(time() - label_value({_as("partition", _WAIT, "slurm_partition")}, "submit_time"))',
        "slurm_partition_jobs_running": "count by (partition) "
        f"({_as('partition', _jobs('running'), 'slurm_partition')})",
        **{
            f"slurm_user_jobs_{state}": f"count by (username) ({_as('username', _jobs(state), 'user_name')}) "
            f"or 0 * count by (username) ({_as('username', 'slurm_job_info', 'user_name')})"
            for state in ("running", "pending")
        },
        "hpc_job_gpus": 'count by (hpc_job) (DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}) * on (hpc_job) group_left (user) '
        f"max by (hpc_job, user) ({running})",
        **{
            f"hpc_shared_filesystem_{name}": f"max by (mountpoint) (node_filesystem_{source}{_MOUNTS})"
            for name, source in (
                ("size_bytes", "size_bytes"), ("free_bytes", "avail_bytes"), ("readonly", "readonly"),
                ("files", "files"), ("files_free", "files_free"),
            )
        },
    }  # fmt: skip
    gpus = {name: gpu.count for name, section in config.nodesets.items() if (gpu := nodeset_gpu(config, section))}
    if gpus:
        records["slurm_node_gpus"] = " or ".join(
            f'0 * slurm_node_cpus{{node=~"{name}-[0-9]+"}} + {count}' for name, count in gpus.items()
        )
        allocated = _as("node", 'DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}', "instance")
        records["slurm_node_gpus_alloc"] = f"count by (node) ({allocated}) or 0 * max by (node) (slurm_node_gpus)"
    return records


def metrics(config: ClusterConfig) -> frozenset[str]:
    """Return all metrics that rules and panels may use."""
    return EXPORTED | recording_rules(config, 0).keys()


_WORD = re.compile(r"\b[a-zA-Z_]\w*\b(?!\s*\()")
_NO_METRICS = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^]]*\]|\b(?:by|on|ignoring|without|group_left|group_right)\s*\([^)]*\)')
_KEYWORDS = frozenset(("and", "or", "unless", "bool", "offset", "by", "on", "group_left", "group_right"))


def metrics_of(expression: str) -> set[str]:
    """Return the metrics that an expression uses."""
    text = re.sub(r"\{[^}]*\}", " ", _NO_METRICS.sub(" ", expression))
    return set(_WORD.findall(text)) - _KEYWORDS


_RUN = "./hpc run STACK -- "
_STATUS = """
    ClockSkew FileSystemFull GpuMetricsMissing OutOfMemory
""".split()
_HELPS = {
    **dict.fromkeys(_STATUS, "./hpc status STACK"),
    "AccountingQueueLong": "./hpc logs STACK slurmdbd",
    "MonitoringDown": f"kubectl get pods --namespace={MONITORING_NAMESPACE}",
    "NotificationsFailing": f"kubectl logs --namespace={MONITORING_NAMESPACE} {ALERTMANAGER}-0",
}
"""The command that helps, by alert, for pods without systemd on hosts that Nebius runs."""


OWN_ALERTS = tuple(read(Path(__file__).with_name("alerts.yml")))
"""Alerts of conditions that machines report as findings: pods have no exporter of this program."""


def alerts(config: ClusterConfig) -> Iterator[Alert]:
    """Yield the alerts whose metrics exist."""
    existing = metrics(config)
    for alert in (*OWN_ALERTS, *alerts_for(config)):
        if metrics_of(alert.expression) <= existing:
            # MetricsQL's own functions count the first value of a series as a change.
            expression = re.sub(r"\b(changes|increase)\(", r"\1_prometheus(", alert.expression)
            todo = _HELPS.get(alert.name, alert.todo.replace("./hpc ssh STACK controller -- ", _RUN))
            yield replace(alert, expression=expression, todo=todo)


def dashboards(config: ClusterConfig) -> Iterator[Dashboard]:
    """Yield the dashboards, with the panels whose metrics exist."""
    existing = metrics(config)
    for dashboard in DASHBOARDS:
        panels = (
            replace(panel, queries=tuple(query for query in panel.queries if metrics_of(query[0]) <= existing))
            for panel in dashboard.panels
        )
        if kept := tuple(panel for panel in panels if panel.queries):
            yield replace(dashboard, panels=kept)


def files(config: ClusterConfig) -> dict[str, str]:
    """Return Grafana's dashboards as JSON, by the name of their ConfigMap; none without `monitoring`."""
    if config.monitoring is None:
        return {}
    interval = config.monitoring.interval_seconds
    return {
        f"{config.name}-{dashboard.name}": json.dumps(
            grafana_dashboard(dashboard, config.name, "VictoriaMetrics", interval), separators=(",", ":")
        )
        for dashboard in dashboards(config)
    }


OPTIONAL = "scrape_interval scrape_timeout slurm_endpoints dcgm_fields dcgm_target dcgm_series".split()
"""Values of charts that every cluster has; they are left out without `monitoring`."""
_META = "__meta_kubernetes_"
_MORE_FIELDS = (
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Clock of the memory (MHz)"),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Share of time with a transfer (%)"),
    ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "Transfers over NVLinks"),
)
"""Fields of Soperator's own dashboards, besides those that every platform has."""


def values(config: ClusterConfig, stack: str) -> dict[str, Any]:
    """Return the values for the templates of charts; none without `monitoring`. `stack` is the name for commands."""
    monitoring = config.monitoring
    if monitoring is None:
        return {}
    records = [
        {"record": name, "expr": text} for name, text in recording_rules(config, monitoring.interval_seconds).items()
    ]
    group = {"interval": f"{monitoring.interval_seconds}s"}
    secrets = {
        secret_placeholder(name): f"/etc/vm/secrets/{SECRET}/{name.removeprefix('hpc:')}"
        for name in monitoring.receivers.secrets
    }
    return {
        "scrape_interval": f"{monitoring.interval_seconds}s",
        "scrape_timeout": f"{min(monitoring.interval_seconds, 28)}s",
        "retention": f"{monitoring.retention_days}d",
        "metrics_disk": f"{monitoring.disk_gb}Gi",
        "rule_groups": [
            {"name": "hpc-records", **group, "rules": records},
            *({**row, **group} for row in rules(monitoring.interval_seconds, alerts(config), stack=stack)["groups"]),
        ],
        "alertmanager": _with_files(alertmanager_config(monitoring.receivers), secrets),
        "alert_secrets": [SECRET] if secrets else [],
        "dcgm_fields": "".join(f"{', '.join(field)}\n" for field in (*GPU_FIELDS, *_MORE_FIELDS)),
        "dcgm_target": [
            {"targetLabel": "job", "replacement": "gpu"},
            {"sourceLabels": [f"{_META}pod_node_name"], "targetLabel": "instance"},
            {"targetLabel": "app_kubernetes_io_name", "replacement": "dcgm-exporter"},
            {"sourceLabels": [f"{_META}node_label_slurm_nebius_ai_nodeset"], "targetLabel": "slurm_nodeset"},
            {"sourceLabels": [f"{_META}node_label_slurm_nebius_ai_nodeset_name"], "targetLabel": "slurm_nodeset_name"},
        ],
        "dcgm_series": [
            # The Slurm node is named after the pod that has the GPU.
            {"sourceLabels": ["exported_pod"], "regex": "(.+)", "targetLabel": "instance"},
            {"action": "labeldrop", "regex": "UUID|pci_bus_id|DCGM_FI_.*|nvidia_com_gpu.*|prometheus"},
        ],
        "slurm_endpoints": list(ENDPOINTS),
    }


def _with_files(part: Any, secrets: dict[str, str]) -> Any:  # noqa: ANN401 - any YAML
    """Return Alertmanager's configuration with files in place of secrets, for which it has keys of their own."""
    if isinstance(part, list):
        return [_with_files(member, secrets) for member in part]
    if not isinstance(part, dict):
        return part
    result: dict[str, Any] = {}
    for key, value in part.items():
        if isinstance(value, str) and value in secrets:
            result[f"{key}_file"] = secrets[value]
        else:
            result[key] = _with_files(value, secrets)
    return result
