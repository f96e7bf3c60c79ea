"""Files and arguments of Prometheus, Alertmanager and node_exporter, for scripts/node/monitoring/service.py.

They are for the releases that machines have: Prometheus 2.31 (Ubuntu 22.04), 2.42 (Debian 12), 2.45 (Ubuntu 24.04),
2.53 (Debian 13).
"""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from cluster.config.cluster import ClusterConfig
from cluster.config.monitoring import Monitoring, Receivers
from cluster.monitoring import alerts, gpus
from cluster.platforms import registry
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
from scripts.node.interface import ROLES, Role
from scripts.node.interface import Monitoring as Payload

PROMETHEUS_PORT, ALERTMANAGER_PORT, NODE_EXPORTER_PORT = 9090, 9093, 9100
TARGETS, GPU_TARGETS, RULES = "targets/hpc.json", "targets/hpc-gpus.json", "rules/hpc.yml"
ETC = "/etc/prometheus"
UNITS = (
    *"munge slurmd slurmctld slurmdbd slurmrestd mariadb ssh".split(),
    *"hpc-node hpc-watch hpc-reconcile hpc-metrics nvidia-persistenced nvidia-fabricmanager nvidia-dcgm".split(),
)
"""Units whose states node_exporter reports, where a machine has them."""
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
"""Beginnings of all names of Slurm's but those of GPUs."""
_OTHER_MODES = "iowait|irq|nice|softirq|steal|system|user"
_NO_DISKS = (
    *"autofs binfmt_misc bpf cgroup2? configfs debugfs devpts devtmpfs erofs fuse([.].+)? fusectl hugetlbfs".split(),
    *"iso9660 mqueue nsfs overlay proc procfs pstore rpc_pipefs securityfs selinuxfs squashfs sysfs tracefs".split(),
)
"""Types of file systems without series: those that node_exporter itself leaves out, and FUSE, where a mount of a user's
has any name and may not answer."""
_NO_MOUNTS = "dev|proc|sys|run/(credentials|host|user)/.+|var/lib/(docker|containers/storage|kubelet)/.+"
"""Mount points without series: they come and go with users who log in, and with containers."""


def node_exporter(config: ClusterConfig) -> str:
    """Arguments of node_exporter on every machine; empty without the section. No machine of another network reaches its
    port: the cluster's own is closed to these."""
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


def monitoring(config: ClusterConfig, role: Role = "controller") -> Payload | None:
    """The part of the controller, or of Prometheus' own machine; None without the section."""
    wanted = config.monitoring
    if wanted is None:
        return None
    found: Payload = {
        "interval_seconds": wanted.interval_seconds,
        "leave_out": _left_out(config),
        "idle": alerts.IDLE_LONG if has_gpus(config) else "",
    }
    if wanted.machine:
        found["prometheus_on"] = monitoring_name(config)
    return {**found, **_servers(config, wanted)} if role == server(wanted) else found


def server(wanted: Monitoring) -> Role:
    """The role of the machine that runs Prometheus and Alertmanager."""
    return "monitoring" if wanted.machine else "controller"


def _servers(config: ClusterConfig, wanted: Monitoring) -> Any:  # noqa: ANN401 - a part of Payload
    web = wanted.web
    found: dict[str, Any] = {
        "prometheus": " ".join(
            (
                "--config.file=/etc/prometheus/prometheus.yml",
                "--storage.tsdb.path=/var/lib/prometheus/metrics2",
                f"--storage.tsdb.retention.time={wanted.retention_days}d",
                f"--storage.tsdb.retention.size={wanted.disk_gb}GB",
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
        "secrets": {mark(name): secret_file(name) for name in wanted.receivers.secrets},
        "files": {name: text.removesuffix("\n").split("\n") for name, text in render(config, wanted).items()},
    }
    if wanted.ops_agent:
        lines = _yaml(config, _ops_agent(config, wanted)).removesuffix("\n").split("\n")
        unit, file = registry.get(config.platform).ops_agent
        found["ops_agent"] = {"unit": unit, "file": file, "lines": lines}
    if web:
        files = {key: secret_file(f"hpc:prometheus{key.capitalize()}") for key in ("password", "certificate")}
        found["web"] = {"user": web.user, "password": files["password"], "certificate": files["certificate"]}
    return found


def _left_out(config: ClusterConfig) -> list[str]:
    """Return what slurmctld gives itself, and what it is not to give: every user reaches node_exporter's port."""
    if has_own_metrics(config):
        # 25.11 has none of GPUs.
        return ["slurm_"] if config.slurm_version >= "26.05" else list(_WITHOUT_GPUS)
    return ["slurm_user_", "slurm_account_"] if private_data(config) else []


def render(config: ClusterConfig, wanted: Monitoring) -> dict[str, str]:
    """Text of each file, by its path below /etc/prometheus."""
    return {
        "prometheus.yml": _yaml(config, _prometheus(config, wanted)),
        "alertmanager.yml": _yaml(config, alertmanager(wanted.receivers)),
        RULES: _yaml(config, alerts.rules(machine=server(wanted))),
        TARGETS: _targets(config, NODE_EXPORTER_PORT),
        GPU_TARGETS: _targets(config, gpus.PORT, with_gpus(config)),
    }


def _prometheus(config: ClusterConfig, wanted: Monitoring) -> dict[str, Any]:
    interval = wanted.interval_seconds
    local: list[dict[str, Any]] = [
        {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}}]}
        for name, port in (("prometheus", PROMETHEUS_PORT), ("alertmanager", ALERTMANAGER_PORT))
    ]
    if wanted.web:
        local[0] |= {
            "scheme": "https",
            "basic_auth": {"username": wanted.web.user, "password_file": f"{ETC}/web.password"},
            # Prometheus itself, by the loopback address, which a certificate of a site's own does not name.
            "tls_config": {"insecure_skip_verify": True},
        }
    node = {
        **_of_machines("node", TARGETS),
        # A node of 208 threads has 1,664 series of these otherwise: usage is what is not idle.
        "metric_relabel_configs": [
            {
                "source_labels": ["__name__", "mode"],
                "regex": f"node_cpu_seconds_total;({_OTHER_MODES})",
                "action": "drop",
            }
        ],
        "sample_limit": 200_000,
    }
    gpu = {**_of_machines("gpu", GPU_TARGETS), "sample_limit": 20_000}
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
"""Jobs of Prometheus' own daemons, which are of no use elsewhere."""


def _ops_agent(config: ClusterConfig, wanted: Monitoring) -> dict[str, Any]:
    """The Ops Agent collects what Prometheus does, from its machine.

    Its receiver takes static targets alone, no honor_labels, 10 s or more between two collections, and sets location,
    namespace and cluster of each series by itself (ops-agent's confgenerator/prometheus.go).
    """
    prometheus = _prometheus(config, wanted)
    jobs, every = [], {key: prometheus["global"][key] for key in ("scrape_interval", "scrape_timeout")}
    groups = {
        "node": json.loads(_targets(config, NODE_EXPORTER_PORT)),
        "gpu": json.loads(_targets(config, gpus.PORT, with_gpus(config))),
    }
    for job in prometheus["scrape_configs"]:
        name = job["job_name"]
        if name in OWN_JOBS or groups.get(name) == []:
            continue
        static = groups.get(name) or job["static_configs"]
        labelled = [{**one, "labels": {**one["labels"], "slurm_cluster": config.name}} for one in static]
        kept = {key: value for key, value in job.items() if key != "file_sd_configs"}
        jobs.append({**kept, **every, "static_configs": labelled})
    receiver = {"type": "prometheus", "config": {"scrape_configs": jobs}}
    pipelines = {"slurm_cluster": {"receivers": ["slurm_cluster"]}}
    return {"metrics": {"receivers": {"slurm_cluster": receiver}, "service": {"pipelines": pipelines}}}


def _of_machines(name: str, targets: str) -> dict[str, Any]:
    """A job of machines, by a file that Prometheus reads again by itself."""
    return {
        "job_name": name,
        "file_sd_configs": [{"files": [f"/etc/prometheus/{targets}"]}],
        "relabel_configs": [
            {"source_labels": ["__address__"], "regex": "([^:]+):.*", "target_label": "instance", "replacement": "$1"}
        ],
    }


def _slurm(config: ClusterConfig) -> list[dict[str, Any]]:
    """slurmctld's own endpoints. Of users and accounts, running and pending jobs alone are kept."""
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


def mark(setting: str) -> str:
    """Return what stands for a secret in alertmanager.yml; scripts/node/monitoring/service.py puts it in its place."""
    return f"@{setting.removeprefix('hpc:')}@"


def secret_file(setting: str) -> str:
    """Path of a secret on Alertmanager's machine."""
    return f"/etc/hpc/alerts/{setting.removeprefix('hpc:')}"


def alertmanager(receivers: Receivers) -> dict[str, Any]:
    """Nobody, or all of the section's: each gets every alert, and a message when it is over. Secrets are marks."""
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
                    {"auth_username": mail.username, "auth_password": mark("hpc:mailPassword")} if mail.username else {}
                ),
                "html": "",
                "text": text,
            }
        ]
    if receivers.slack:
        row = {"channel": receivers.slack, "api_url": mark("hpc:slackUrl"), "send_resolved": True, "text": text}
        found["slack_configs"] = [row]
    if receivers.webhook:
        found["webhook_configs"] = [{"url": mark("hpc:webhookUrl"), "send_resolved": True}]
    return {
        "route": {"receiver": "cluster", "group_by": ["alertname"], "group_wait": "30s", "repeat_interval": "12h"},
        "receivers": [found],
        # Of machines that are away nothing else is worth a message.
        "inhibit_rules": [
            {
                "source_matchers": ['alertname = "MachineUnreachable"'],
                "target_matchers": ['alertname =~ "Daemon.*|Clock.*|FileSystem.*"'],
                "equal": ["instance"],
            }
        ],
    }


def with_gpus(config: ClusterConfig) -> set[str]:
    """Nodesets with GPUs."""
    return {name for name, section in config.nodesets.items() if nodeset_gpu(config, section)}


def _targets(config: ClusterConfig, port: int, nodesets: set[str] | None = None) -> str:
    """Return all machines, or those of some nodesets, a group a line. Elastic ones come and go: `up` of these is 0
    while they are off."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for machine in machines(config):
        role = next(role for role in ROLES if role in machine.roles)
        groups.setdefault((role, machine.nodeset or "", "no"), []).append(machine.name)
    for name, section in config.nodesets.items():
        if section.elastic:
            groups["node", name, "yes"] = list(elastic_names(config, name))
    if nodesets is not None:
        groups = {key: names for key, names in groups.items() if key[1] in nodesets}
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
