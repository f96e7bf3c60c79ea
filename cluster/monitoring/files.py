"""Files and arguments of Prometheus, Alertmanager and the exporters, for scripts/node/monitoring/service.py.

They are valid for the releases on machines: Prometheus 2.31 (Ubuntu 22.04), 2.42 (Debian 12), 2.45 (Ubuntu 24.04),
2.53 (Debian 13).
"""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from cluster import platform_interface
from cluster.config.cluster import ClusterConfig
from cluster.config.monitoring import Monitoring, Receivers
from cluster.monitoring import alerts
from cluster.roster import (
    controller_name,
    elastic_names,
    has_gpus,
    machines,
    monitoring_name,
    nodeset_gpu,
)
from cluster.slurm import paths
from cluster.slurm.slurm_conf import has_own_metrics, private_data
from scripts.node.interface import (
    ALERTMANAGER_PORT,
    GPU_EXPORTER_PORT,
    NODE_EXPORTER_PORT,
    PROMETHEUS_PORT,
    ROLES,
    GpuExporter,
    Role,
    lookback_seconds,
)
from scripts.node.interface import MonitoringInput as Payload
from scripts.node.judge.kinds import WATCHDOG_ALERT

TARGETS, GPU_TARGETS, RULES = "targets/hpc.json", "targets/hpc-gpus.json", "rules/hpc.yml"
ETC = "/etc/prometheus"
UNITS = (
    *"munge slurmd slurmctld slurmdbd slurmrestd mariadb ssh".split(),
    *"hpc-node hpc-watch hpc-reconcile hpc-metrics nvidia-persistenced nvidia-fabricmanager nvidia-dcgm".split(),
)
"""systemd units whose states node_exporter reports."""
COLLECTORS = (
    *"cpu diskstats edac filesystem infiniband loadavg meminfo netdev pressure stat systemd textfile".split(),
    *"time timex uname vmstat".split(),
)
"""Collectors of node_exporter."""
ENDPOINTS = ("nodes", "partitions", "jobs", "scheduler", "jobs-users-accts")
"""Paths of slurmctld's metrics; /metrics itself is an index of them (doc/html/metrics.shtml at slurm-26-05-3-1)."""
_WITHOUT_GPUS = tuple(
    f"slurm_{name}" for name in "nodes node_c node_m jobs partition_j partition_n partition_c user a s bf".split()
)
"""Prefixes of the names of slurmctld's metrics, but for those of GPUs."""
_OTHER_MODES = "iowait|irq|nice|softirq|steal|system|user"
_NO_DISKS = (
    *"autofs binfmt_misc bpf cgroup2? configfs debugfs devpts devtmpfs erofs fuse([.].+)? fusectl hugetlbfs".split(),
    *"iso9660 mqueue nsfs overlay proc procfs pstore rpc_pipefs securityfs selinuxfs squashfs sysfs tracefs".split(),
)
"""Types of file systems without metrics: those that node_exporter leaves out by default, and FUSE, as mounts of users
can have any name and may not answer."""
_NO_MOUNTS = "dev|proc|sys|run/(credentials|host|user)/.+|var/lib/(docker|containers/storage|kubelet)/.+"
"""Mount points without metrics: they exist only while a user is logged in or a container runs."""

GPU_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "Share of time with a kernel on the GPU (%)"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Share of time with the graphics or compute engine active (0 to 1)"),
    ("DCGM_FI_PROF_SM_ACTIVE", "gauge", "Share of cycles with a warp on a multiprocessor (0 to 1)"),
    ("DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "Warps on a multiprocessor as a share of the most (0 to 1)"),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Share of cycles with the tensor pipe active (0 to 1)"),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Share of cycles with the memory interface active (0 to 1)"),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Bytes sent over PCIe in a second"),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Bytes received over PCIe in a second"),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", "Bytes sent over NVLink in a second"),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", "Bytes received over NVLink in a second"),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use (MiB)"),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Memory that is free (MiB)"),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power (W)"),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since the driver was loaded (mJ)"),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of the GPU (C)"),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Temperature of the memory (C)"),
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "Clock of the multiprocessors (MHz)"),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Why clocks are low (bit mask)"),
    ("DCGM_FI_DEV_POWER_VIOLATION", "counter", "Time with lower clocks because of power (ns)"),
    ("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "Time with lower clocks because of heat (ns)"),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Number of the last Xid"),
    ("DCGM_EXP_XID_ERRORS_COUNT", "gauge", "Xids within the last minutes by number"),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected ECC errors since the driver was loaded"),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrectable ECC errors since the driver was loaded"),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped because of uncorrectable errors"),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "Whether a row waits for the next reset to be remapped"),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether a row could not be remapped"),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Repeated transfers over PCIe"),
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter", "Checksum errors of NVLinks"),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "Repeated transfers over NVLinks"),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "Recoveries of NVLinks"),
    ("DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS", "counter", "Errors of NVLinks after forward error correction"),
    ("DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS", "counter", "Symbols that NVLinks received with an error"),
    ("DCGM_FI_DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS", "counter", "Malformed packets on NVLinks"),
    ("DCGM_FI_DEV_NVLINK_COUNT_RX_BUFFER_OVERRUN_ERRORS", "counter", "Packets on NVLinks without room in the buffer"),
    ("DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS", "counter", "Packets that NVLinks received with an error"),
    ("DCGM_FI_DEV_NVLINK_COUNT_RX_GENERAL_ERRORS", "counter", "Packets on NVLinks with another header than expected"),
    ("DCGM_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS", "counter", "Times that NVLinks had too many errors"),
    ("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "counter", "Recoveries of NVLinks that failed"),
)
"""Fields of dcgm-exporter: name, kind for Prometheus, and a help text without a comma.

Names are DCGM's own (dcgmlib/dcgm_fields.h), in the form that DCGM 4.5 and releases before have; later ones keep them
as aliases. DCGM_EXP_XID_ERRORS_COUNT is dcgm-exporter's own, with the label `xid`
(internal/pkg/collector/xid_collector.go at d5e5f510). Those of NVLinks are sums over a GPU's links; up to Hopper it has
the first three, from Blackwell on those with COUNT in the middle (NVIDIA/go-dcgm ec245c09, pkg/dcgm/const_fields.go,
which dcgm-exporter 4.8.2 has; 4.5.0 has the names too). Units are those of DCGM: MiB, W, mJ, degrees Celsius,
nanoseconds.
"""


def node_exporter(config: ClusterConfig) -> str:
    """Return node_exporter's arguments; empty without the section `monitoring`. It may listen on all addresses, as
    machines of other networks can't reach the cluster's network."""
    if config.monitoring is None:
        return ""
    return " ".join(
        (
            f"--web.listen-address=:{NODE_EXPORTER_PORT}",
            "--collector.disable-defaults",
            *(f"--collector.{name}" for name in COLLECTORS),
            "--no-collector.cpu.guest",
            f"--collector.filesystem.fs-types-exclude=^({'|'.join(_NO_DISKS)})$",
            f"--collector.filesystem.mount-points-exclude=^/({_NO_MOUNTS})($|/)",
            "--collector.netdev.device-exclude=^(lo|veth|docker|br-)",
            f"--collector.systemd.unit-include=({'|'.join(UNITS)})[.]service",
            "--collector.textfile.directory=/var/lib/prometheus/node-exporter",
        )
    )


def gpu_exporter(config: ClusterConfig) -> GpuExporter | None:
    """Return arguments and fields of dcgm-exporter; None where the stack has no metrics or no GPUs.

    It uses the host engine that `dcgmi` uses, as profiling fields have one reader at a time. Without --no-hostname it
    would label metrics with that engine's host, localhost.
    """
    if config.monitoring is None or not has_gpus(config):
        return None
    interval = config.monitoring.interval_seconds
    # It keeps the values of ten minutes (internal/pkg/devicewatcher/const.go at d5e5f510).
    xids = min(lookback_seconds(interval), 600)
    return {
        "arguments": f"--address :{GPU_EXPORTER_PORT} --remote-hostengine-info localhost:5555 --no-hostname "
        f"--collect-interval {interval}000 --xid-count-window-size {xids}000",
        "fields": [f"{name}, {kind}, {text}" for name, kind, text in GPU_FIELDS],
    }


def monitoring(config: ClusterConfig, stack: str, role: Role = "controller") -> Payload | None:
    """Return the settings of monitoring for the controller, or for Prometheus' own machine; None without the section
    `monitoring`. `stack` is the name for commands."""
    section = config.monitoring
    if section is None:
        return None
    settings: Payload = {
        "stack": stack,
        "interval_seconds": section.interval_seconds,
        "leave_out": _excluded_metrics(config),
        "idle": alerts.widen(alerts.IDLE_LONG, section.interval_seconds) if has_gpus(config) else "",
    }
    if section.machine:
        settings["prometheus_on"] = monitoring_name(config)
    return {**settings, **_servers(config, section, stack)} if role == server_role(section) else settings


def server_role(section: Monitoring) -> Role:
    """Return the role of the machine that runs Prometheus and Alertmanager."""
    return "monitoring" if section.machine else "controller"


def _servers(config: ClusterConfig, section: Monitoring, stack: str) -> Any:  # noqa: ANN401 - a part of Payload
    """Return the settings of Prometheus and Alertmanager."""
    web = section.web
    found: dict[str, Any] = {
        "prometheus": " ".join(
            (
                "--config.file=/etc/prometheus/prometheus.yml",
                "--storage.tsdb.path=/var/lib/prometheus/metrics2",
                f"--storage.tsdb.retention.time={section.retention_days}d",
                f"--storage.tsdb.retention.size={section.disk_gb}GB",
                f"--query.lookback-delta={lookback_seconds(section.interval_seconds)}s",
                f"--web.listen-address={'' if web else '127.0.0.1'}:{PROMETHEUS_PORT}",
                *((f"--web.config.file={ETC}/web.yml",) if web else ()),
            )
        ),
        "alertmanager": " ".join(
            (
                "--config.file=/etc/prometheus/alertmanager.yml",
                "--storage.path=/var/lib/prometheus/alertmanager",
                f"--web.listen-address=127.0.0.1:{ALERTMANAGER_PORT}",
                "--cluster.listen-address=",
            )
        ),
        "secrets": {secret_placeholder(name): secret_file(name) for name in section.receivers.secrets},
        "files": {name: text.removesuffix("\n").split("\n") for name, text in render(config, section, stack).items()},
    }
    if section.ops_agent:
        lines = _yaml(config, _ops_agent(config, section)).removesuffix("\n").split("\n")
        unit, file = platform_interface.get(config.platform).ops_agent
        found["ops_agent"] = {"unit": unit, "file": file, "lines": lines}
    if web:
        files = {key: secret_file(f"hpc:prometheus{key.capitalize()}") for key in ("password", "certificate")}
        found["web"] = {"user": web.user, "password": files["password"], "certificate": files["certificate"]}
    return found


def _excluded_metrics(config: ClusterConfig) -> list[str]:
    """Return prefixes of metrics that the textfile exporter leaves out: those that slurmctld exports itself, and those
    with private data, as every user can reach node_exporter's port."""
    if has_own_metrics(config):
        # Slurm 25.11 has no metrics of GPUs.
        return ["slurm_"] if config.slurm_version >= "26.05" else list(_WITHOUT_GPUS)
    return ["slurm_user_", "slurm_account_"] if private_data(config) else []


def render(config: ClusterConfig, section: Monitoring, stack: str) -> dict[str, str]:
    """Return the text of each file, by its path below /etc/prometheus."""
    interval, chosen = section.interval_seconds, alerts.alerts_for(config)
    return {
        "prometheus.yml": _yaml(config, _prometheus(config, section)),
        "alertmanager.yml": _yaml(config, alertmanager_config(section.receivers)),
        RULES: _yaml(config, alerts.rules(interval, chosen, stack=stack, machine=server_role(section))),
        TARGETS: _targets(config, NODE_EXPORTER_PORT),
        GPU_TARGETS: _targets(config, GPU_EXPORTER_PORT, gpus_only=True),
    }


def _prometheus(config: ClusterConfig, section: Monitoring) -> dict[str, Any]:
    interval = section.interval_seconds
    local: list[dict[str, Any]] = [
        {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}}]}
        for name, port in (("prometheus", PROMETHEUS_PORT), ("alertmanager", ALERTMANAGER_PORT))
    ]
    if section.web:
        local[0] |= {
            "scheme": "https",
            "basic_auth": {"username": section.web.user, "password_file": f"{ETC}/web.password"},
            # Prometheus collects its own metrics by the loopback address, which a site's certificate does not name.
            "tls_config": {"insecure_skip_verify": True},
        }
    node = {
        **_scrape_machines("node", TARGETS),
        # The mode `idle` is enough to compute usage. All modes of a node with 208 threads are 1,664 series.
        "metric_relabel_configs": [
            {
                "source_labels": ["__name__", "mode"],
                "regex": f"node_cpu_seconds_total;({_OTHER_MODES})",
                "action": "drop",
            }
        ],
        "sample_limit": 200_000,
    }
    gpu = {**_scrape_machines("gpu", GPU_TARGETS), "sample_limit": 20_000}
    return {
        "global": {
            "scrape_interval": f"{interval}s",
            "scrape_timeout": f"{min(interval, 10)}s",
            "evaluation_interval": f"{interval}s",
            "external_labels": {"cluster": config.name},
        },
        "rule_files": ["/etc/prometheus/rules/*.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{ALERTMANAGER_PORT}"]}]}]},
        "scrape_configs": [*local, node, gpu, *(_slurm(config) if has_own_metrics(config) else ())],
    }


OWN_JOBS = ("prometheus", "alertmanager")
"""Scrape jobs of Prometheus' own daemons, which the Ops Agent leaves out."""


def _ops_agent(config: ClusterConfig, section: Monitoring) -> dict[str, Any]:
    """Return the Ops Agent's configuration: on Prometheus' machine it collects the same metrics.

    Its receiver accepts only static targets, no honor_labels, and intervals of 10 s or more. It sets location,
    namespace and cluster of each series itself (ops-agent's confgenerator/prometheus.go).
    """
    prometheus = _prometheus(config, section)
    jobs, every = [], {key: prometheus["global"][key] for key in ("scrape_interval", "scrape_timeout")}
    groups = {
        "node": json.loads(_targets(config, NODE_EXPORTER_PORT)),
        "gpu": json.loads(_targets(config, GPU_EXPORTER_PORT, gpus_only=True)),
    }
    for job in prometheus["scrape_configs"]:
        name = job["job_name"]
        if name in OWN_JOBS or groups.get(name) == []:
            continue
        static = groups.get(name) or job["static_configs"]
        labelled = [{**group, "labels": {**group["labels"], "slurm_cluster": config.name}} for group in static]
        kept = {key: value for key, value in job.items() if key != "file_sd_configs"}
        jobs.append({**kept, **every, "static_configs": labelled})
    receiver = {"type": "prometheus", "config": {"scrape_configs": jobs}}
    pipelines = {"slurm_cluster": {"receivers": ["slurm_cluster"]}}
    return {"metrics": {"receivers": {"slurm_cluster": receiver}, "service": {"pipelines": pipelines}}}


def _scrape_machines(name: str, targets: str) -> dict[str, Any]:
    """Return a scrape job of machines in a file of targets, which Prometheus reads again when it changes."""
    return {
        "job_name": name,
        "file_sd_configs": [{"files": [f"/etc/prometheus/{targets}"]}],
        "relabel_configs": [
            {"source_labels": ["__address__"], "regex": "([^:]+):.*", "target_label": "instance", "replacement": "$1"}
        ],
    }


def _slurm(config: ClusterConfig) -> list[dict[str, Any]]:
    """Return scrape jobs of slurmctld's endpoints. Of users and accounts, only running and pending jobs are kept."""
    target = f"{controller_name(config)}:{paths.SLURMCTLD_PORT}"
    found: list[dict[str, Any]] = [
        {
            "job_name": f"slurm_{name.replace('-', '_')}",
            "metrics_path": f"/metrics/{name}",
            "static_configs": [{"targets": [target], "labels": {"instance": controller_name(config)}}],
        }
        for name in ENDPOINTS
    ]
    kept = "slurm_(user|account)_jobs_(running|pending)"
    found[-1]["metric_relabel_configs"] = [{"source_labels": ["__name__"], "regex": kept, "action": "keep"}]
    return found


def secret_placeholder(setting: str) -> str:
    """Return the placeholder of a secret in alertmanager.yml, which scripts/node/monitoring/service.py replaces."""
    return f"@{setting.removeprefix('hpc:')}@"


def secret_file(setting: str) -> str:
    """Return the path of a secret on Alertmanager's machine."""
    return f"/etc/hpc/alerts/{setting.removeprefix('hpc:')}"


_WATCHDOG_ROUTE = {
    "receiver": "watchdog",
    "matchers": [f'alertname = "{WATCHDOG_ALERT}"'],
    "group_wait": "0s",
    "group_interval": "5m",
    "repeat_interval": "4m",
}
"""A message each five minutes. Alertmanager looks each `group_interval` whether `repeat_interval` has passed since the
last message was sent. With equal ones it would not have quite passed, and every second message would be missing
(DedupStage.needsUpdate of notify/notify.go at v0.23.0 and v0.28.1)."""


def alertmanager_config(receivers: Receivers) -> dict[str, Any]:
    """Return Alertmanager's configuration: every receiver gets each alert, and a message when it ends, but for the
    watchdog's, which gets its own alert alone, again and again. Secrets are placeholders."""
    text = "{{ range .Alerts }}{{ .Annotations.summary }}. {{ .Labels.actor }}: {{ .Annotations.todo }}\n{{ end }}"
    found: dict[str, Any] = {"name": "cluster"}
    if mail := receivers.mail:
        found["email_configs"] = [
            {
                "to": ", ".join(mail.to),
                "from": mail.sender,
                "smarthost": mail.smarthost,
                "send_resolved": True,
                **(
                    {"auth_username": mail.username, "auth_password": secret_placeholder("hpc:mailPassword")}
                    if mail.username
                    else {}
                ),
                "html": "",
                "text": text,
            }
        ]
    if receivers.slack:
        row = {
            "channel": receivers.slack,
            "api_url": secret_placeholder("hpc:slackUrl"),
            "send_resolved": True,
            "text": text,
        }
        found["slack_configs"] = [row]
    if receivers.webhook:
        found["webhook_configs"] = [{"url": secret_placeholder("hpc:webhookUrl"), "send_resolved": True}]
    route: dict[str, Any] = {
        "receiver": "cluster",
        "group_by": ["alertname"],
        "group_wait": "30s",
        "repeat_interval": "12h",
    }
    every = [found]
    if receivers.watchdog:
        route["routes"] = [_WATCHDOG_ROUTE]
        sent = {"url": secret_placeholder("hpc:watchdogUrl"), "send_resolved": False}
        every.append({"name": "watchdog", "webhook_configs": [sent]})
    return {
        "route": route,
        "receivers": every,
        # While a machine is unreachable, its other alerts are not worth a message.
        "inhibit_rules": [
            {
                "source_matchers": ['alertname = "MachineUnreachable"'],
                "target_matchers": ['alertname =~ "Daemon.*|Clock.*|FileSystem.*"'],
                "equal": ["instance"],
            }
        ],
    }


def _targets(config: ClusterConfig, port: int, *, gpus_only: bool = False) -> str:
    """Return a file of targets, with a group on each line: all machines, or the nodes with GPUs. Elastic nodes are
    included; their metric `up` is 0 while they are off."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for machine in machines(config):
        role = next(role for role in ROLES if role in machine.roles)
        groups.setdefault((role, machine.nodeset or "", "no"), []).append(machine.name)
    for name, section in config.nodesets.items():
        if section.elastic:
            groups["node", name, "yes"] = list(elastic_names(config, name))
    if gpus_only:
        with_gpus = {name for name, section in config.nodesets.items() if nodeset_gpu(config, section)}
        groups = {key: names for key, names in groups.items() if key[1] in with_gpus}
    lines = [
        json.dumps(
            {
                "labels": {"role": role, **({"nodeset": nodeset} if nodeset else {}), "elastic": elastic},
                "targets": [f"{name}:{port}" for name in names],
            }
        )
        for (role, nodeset, elastic), names in groups.items()
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _yaml(config: ClusterConfig, content: Mapping[str, Any]) -> str:
    head = f"# Cluster {config.name}. Written from the stack's configuration: change it there and run `up`.\n"
    return head + yaml.safe_dump(dict(content), sort_keys=False, width=120, allow_unicode=True)
