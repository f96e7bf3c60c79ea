"""The table of alerts: what each means, how bad it is, who acts and how; and the values that set it off and clear it.

Prometheus' rules and docs/reference/alerts.md are made from it. `promtool test rules` fires and clears each by its
values (tests/cluster/monitoring). Commands are those of `./hpc status`; STACK stands for the stack's name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cluster.findings import OLDEST_KERNEL, Actor
from cluster.observe.health.check_results import ADVICE
from scripts.node.health.kinds import KINDS, MACHINE

Severity = Literal["critical", "warning"]
IDLE = 'count by (hpc_job) (max_over_time(DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}[1m]) == 0)'
"""GPUs that did nothing within the last minute, by job."""
IDLE_LONG = f'{IDLE} and on (hpc_job) ALERTS{{alertname="GpusIdle",alertstate="firing"}}'
"""Those of jobs whose alert fires."""
_CONTROLLER = "./hpc ssh STACK controller -- "
_PROMETHEUS = "./hpc ssh STACK PROMETHEUS -- "
_DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert."""

    name: str
    expression: str
    minutes: int
    """Minutes for which it must hold."""
    severity: Severity
    actor: Actor = Actor.ADMIN
    what: str
    """A sentence without its full stop; `{{ $labels.NAME }}` is the value of a label."""
    todo: str
    bad: Mapping[str, str]
    """Values, by series, that set it off, in promtool's notation for one minute each: `0`, or `0+60` for one that
    grows. `_` is none."""
    good: Mapping[str, str]
    """Values of the same series that clear it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that it has when these set it off, besides `severity` and `actor`."""


def _gauge(series: str, bad: str, good: str, **labels: str) -> dict[str, Any]:
    """Values of an alert of one series, whose labels the alert has too."""
    name = f"{series}{{{','.join(f'{key}={chr(34)}{value}{chr(34)}' for key, value in labels.items())}}}"
    return {"bad": {name: bad}, "good": {name: good}, "labels": labels}


def _health(kind: str) -> Alert:
    """A failed health check of one kind: who acts and how is that of `./hpc health`."""
    advice = ADVICE[kind]
    return Alert(
        name="Health" + "".join(word.capitalize() for word in kind.split("-")),
        expression=f'hpc_health_check_failed{{kind="{kind}"}} == 1',
        minutes=0,
        severity="critical" if kind in MACHINE else "warning",
        actor=advice.actor,
        what=f"The health check {kind} of {{{{ $labels.node }}}} fails",
        todo=advice.todo.replace("NODE", "{{ $labels.node }}"),
        **_gauge("hpc_health_check_failed", "1", "_", node="dev-gpu-0", kind=kind),
    )


def _of_gpu(metric: str, span: str = "15m") -> str:
    """A metric of a GPU over a time, without the label hpc_job: that comes and goes with jobs, and an error that ends
    its job must not begin another series."""
    return f"(max by (instance, gpu) ({metric}))[{span}:1m]"


def _gpu(name: str, expression: str, minutes: int, kind: str, what: str, **values: tuple[str, str]) -> Alert:
    """An alert of one GPU by DCGM's metrics: who acts and how is that of the health check `kind`. `values`: those that
    set it off, and that clear it, by metric."""
    advice, labels = ADVICE[kind], {"instance": "dev-gpu-0", "gpu": "3"}
    series = {f'{metric}{{instance="dev-gpu-0",gpu="3",hpc_job="7"}}': pair for metric, pair in values.items()}
    return Alert(
        name=name,
        expression=expression,
        minutes=minutes,
        severity="critical" if kind in MACHINE else "warning",
        actor=advice.actor,
        what=what.replace("GPU", "GPU number {{ $labels.gpu }} of {{ $labels.instance }}", 1),
        todo=advice.todo.replace("NODE", "{{ $labels.instance }}"),
        bad={name: bad for name, (bad, _) in series.items()},
        good={name: good for name, (_, good) in series.items()},
        labels=labels,
    )


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="SlurmctldDown",
        expression="hpc_slurmctld_up == 0",
        minutes=2,
        severity="critical",
        what="slurmctld does not answer: no job can be submitted or started",
        todo=f"{_CONTROLLER}systemctl start slurmctld",
        **_gauge("hpc_slurmctld_up", "0", "1"),
    ),
    Alert(
        name="SlurmdbdDown",
        expression="hpc_slurmdbd_up == 0",
        minutes=5,
        severity="critical",
        what="slurmdbd or its database does not answer: slurmctld keeps its records until it does",
        todo=f"{_CONTROLLER}systemctl start mariadb slurmdbd",
        **_gauge("hpc_slurmdbd_up", "0", "1"),
    ),
    Alert(
        name="AccountingQueueLong",
        expression="slurm_slurmdbd_queue_size > 5000",
        minutes=10,
        severity="warning",
        what="{{ $value }} records wait for slurmdbd; slurmctld drops the oldest when there are too many (MaxDBDMsgs)",
        todo=f"{_CONTROLLER}journalctl -u slurmdbd -n 50",
        **_gauge("slurm_slurmdbd_queue_size", "6000", "10"),
    ),
    Alert(
        name="MungeDown",
        expression="hpc_munge_works == 0",
        minutes=2,
        severity="critical",
        what="munged on the controller does not authenticate: no message of Slurm's is accepted there",
        todo=f"{_CONTROLLER}systemctl restart munge",
        **_gauge("hpc_munge_works", "0", "1"),
    ),
    Alert(
        name="DaemonFailed",
        expression='node_systemd_unit_state{state="failed"} == 1',
        minutes=2,
        severity="critical",
        what="{{ $labels.name }} has failed on {{ $labels.instance }}",
        todo="./hpc ssh STACK {{ $labels.instance }} -- systemctl restart {{ $labels.name }}",
        **_gauge("node_systemd_unit_state", "1", "0", name="munge.service", state="failed", instance="dev-cpu-0"),
    ),
    Alert(
        name="MachineUnreachable",
        expression='up{job="node",elastic="no"} == 0',
        minutes=5,
        severity="critical",
        what="{{ $labels.instance }} does not answer: it is down, or cut off",
        todo="./hpc status STACK",
        **_gauge("up", "0", "1", job="node", elastic="no", instance="dev-cpu-0"),
    ),
    Alert(
        name="MachineFlapping",
        # Elastic machines boot with their jobs.
        expression='changes(node_boot_time_seconds{elastic="no"}[6h]) >= 3',
        minutes=1,
        severity="warning",
        actor=Actor.SUPPORT,
        what="{{ $labels.instance }} has booted {{ $value }} times in six hours",
        todo="./hpc logs STACK {{ $labels.instance }}",
        **_gauge("node_boot_time_seconds", "0+60", "9000", elastic="no", instance="dev-cpu-0"),
    ),
    Alert(
        name="NodeDown",
        expression='hpc_node_unavailable_seconds{state="down"} >= 0',
        minutes=5,
        severity="critical",
        what="slurmctld has {{ $labels.node }} down",
        todo="./hpc status STACK",
        **_gauge("hpc_node_unavailable_seconds", "60", "_", node="dev-cpu-0", state="down"),
    ),
    Alert(
        name="NodeDrainedLong",
        expression=f'hpc_node_unavailable_seconds{{state="drained"}} > {_DAY}',
        minutes=5,
        severity="warning",
        what="{{ $labels.node }} has been drained for more than a day",
        todo="./hpc nodes STACK resume {{ $labels.node }}",
        **_gauge("hpc_node_unavailable_seconds", "90000", "_", node="dev-cpu-0", state="drained"),
    ),
    Alert(
        name="ConfigNotApplied",
        expression="hpc_machine_config_not_applied == 1 and on (machine) "
        'label_replace(up{job="node"} == 1, "machine", "$1", "instance", "(.+)")',
        minutes=15,
        severity="warning",
        what="The set-up of {{ $labels.machine }} is {{ $labels.state }}: it does not have the newest config version",
        todo="./hpc logs STACK {{ $labels.machine }}",
        bad={
            'hpc_machine_config_not_applied{machine="dev-cpu-0",state="failed"}': "1",
            'up{job="node",instance="dev-cpu-0"}': "1",
        },
        good={
            'hpc_machine_config_not_applied{machine="dev-cpu-0",state="failed"}': "_",
            'up{job="node",instance="dev-cpu-0"}': "1",
        },
        labels={"machine": "dev-cpu-0", "state": "failed"},
    ),
    Alert(
        name="QueueStuck",
        expression="max(hpc_jobs_waiting) > 0 and max(slurm_nodes_idle) > 0 "
        "and max(changes(slurm_sdiag_jobs_started[15m])) == 0",
        minutes=15,
        severity="warning",
        what="Jobs wait for nodes, nodes are idle, and no job has started for half an hour",
        todo=f"{_CONTROLLER}squeue --start",
        bad={"hpc_jobs_waiting": "5", "slurm_nodes_idle": "2", "slurm_sdiag_jobs_started": "7"},
        good={"hpc_jobs_waiting": "5", "slurm_nodes_idle": "2", "slurm_sdiag_jobs_started": "7+1"},
    ),
    Alert(
        name="PartitionStarved",
        expression=f"hpc_partition_oldest_waiting_seconds > {_DAY}",
        minutes=60,
        severity="warning",
        what="A job has waited for nodes of partition {{ $labels.partition }} for more than a day",
        todo=f"{_CONTROLLER}squeue --partition={{{{ $labels.partition }}}} --states=pending --sort=V",
        **_gauge("hpc_partition_oldest_waiting_seconds", "100000", "60", partition="cpu"),
    ),
    Alert(
        name="JobsHeld",
        expression="hpc_jobs_held > 0",
        minutes=30,
        severity="warning",
        what="{{ $value }} jobs are held by Slurm or an operator, and start only when somebody releases them",
        todo="./hpc status STACK",
        **_gauge("hpc_jobs_held", "3", "0"),
    ),
    Alert(
        name="SchedulerSlow",
        # Slurm ends a pass that has begun two seconds before, as its clock has whole ones (max_sched_time).
        # Passes after a single event are short ones.
        expression="max_over_time(slurm_schedule_cycle_last[5m]) > 1e6",
        minutes=10,
        severity="warning",
        what="A pass of the scheduler takes more than a second; Slurm ends it after two, before the end of the queue",
        todo=f"{_CONTROLLER}sdiag",
        **_gauge("slurm_schedule_cycle_last", "2000000", "4000"),
    ),
    *(_health(kind) for kind in KINDS),
    _gpu(
        "GpuXid",
        f"changes({_of_gpu('DCGM_FI_DEV_XID_ERRORS')}) > 0 "
        "and on (instance, gpu) max by (instance, gpu) (DCGM_FI_DEV_XID_ERRORS) > 0",
        0,
        "gpu-xid",
        "GPU has a new Xid, as its driver reports errors",
        DCGM_FI_DEV_XID_ERRORS=("0+1", "94"),
    ),
    _gpu(
        "GpuEccErrors",
        f"increase({_of_gpu('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL')}) > 0",
        0,
        "gpu-ecc",
        "GPU has new uncorrectable ECC errors",
        DCGM_FI_DEV_ECC_DBE_VOL_TOTAL=("0+1", "90"),
    ),
    _gpu(
        "GpuMemoryFailed",
        "max by (instance, gpu) (DCGM_FI_DEV_ROW_REMAP_FAILURE) == 1",
        0,
        "gpu-memory",
        "GPU could not remap a row of its memory",
        DCGM_FI_DEV_ROW_REMAP_FAILURE=("1", "0"),
    ),
    _gpu(
        "GpuNvlinkErrors",
        f"increase({_of_gpu('DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL')}) > 0 "
        f"or increase({_of_gpu('DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL')}) > 0",
        0,
        "gpu-nvlink",
        "GPU has new recovery or replay errors of NVLinks",
        DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL=("0", "0"),
        DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL=("0+1", "90"),
    ),
    _gpu(
        "GpuHot",
        f"rate({_of_gpu('DCGM_FI_DEV_THERMAL_VIOLATION')}) > 0.1e9",
        5,
        "gpu-state",
        "GPU has run with lower clocks because of heat for more than a tenth of the time",
        DCGM_FI_DEV_THERMAL_VIOLATION=("0+30000000000", "0"),
    ),
    Alert(
        name="GpuMissing",
        expression='max by (instance) (label_replace(slurm_node_gpus, "instance", "$1", "node", "(.+)")) '
        "- on (instance) count by (instance) (count by (instance, gpu) (DCGM_FI_DEV_GPU_TEMP)) > 0",
        minutes=5,
        severity="critical",
        actor=ADVICE["gpu-lost"].actor,
        what="{{ $value }} GPUs of {{ $labels.instance }} are missing: DCGM has fewer than slurm.conf",
        todo=ADVICE["gpu-lost"].todo.replace("NODE", "{{ $labels.instance }}"),
        bad={
            'slurm_node_gpus{node="dev-gpu-0"}': "2",
            'DCGM_FI_DEV_GPU_TEMP{instance="dev-gpu-0",gpu="0"}': "40",
        },
        good={
            'slurm_node_gpus{node="dev-gpu-0"}': "1",
            'DCGM_FI_DEV_GPU_TEMP{instance="dev-gpu-0",gpu="0"}': "40",
        },
        labels={"instance": "dev-gpu-0"},
    ),
    Alert(
        name="GpuMetricsMissing",
        expression='up{job="gpu"} == 0 and on (instance) up{job="node"} == 1',
        minutes=10,
        severity="warning",
        what="dcgm-exporter on {{ $labels.instance }} does not answer: there are no metrics of its GPUs",
        todo="./hpc ssh STACK {{ $labels.instance }} -- systemctl status nvidia-dcgm-exporter nvidia-dcgm",
        bad={'up{job="gpu",instance="dev-gpu-0"}': "0", 'up{job="node",instance="dev-gpu-0"}': "1"},
        good={'up{job="gpu",instance="dev-gpu-0"}': "1", 'up{job="node",instance="dev-gpu-0"}': "1"},
        labels={"job": "gpu", "instance": "dev-gpu-0"},
    ),
    Alert(
        name="GpusIdle",
        # On a busy controller a collection may fail: one that is missing must not begin the ten minutes again.
        expression=f"{IDLE} * on (hpc_job) group_left (user, account) "
        "(max by (hpc_job, user, account) (last_over_time(hpc_job_gpus[3m])) > bool 0)",
        minutes=10,
        severity="warning",
        actor=Actor.USER,
        what="{{ $value }} GPUs of job {{ $labels.hpc_job }} of {{ $labels.user }} have done nothing for ten minutes",
        todo="./hpc job STACK {{ $labels.hpc_job }}",
        bad={
            'DCGM_FI_DEV_GPU_UTIL{instance="dev-gpu-0",gpu="0",hpc_job="7"}': "0",
            'hpc_job_gpus{hpc_job="7",user="alice",account="research"}': "2",
        },
        good={
            'DCGM_FI_DEV_GPU_UTIL{instance="dev-gpu-0",gpu="0",hpc_job="7"}': "80",
            'hpc_job_gpus{hpc_job="7",user="alice",account="research"}': "2",
        },
        labels={"hpc_job": "7", "user": "alice", "account": "research"},
    ),
    Alert(
        name="HealthChecksMissing",
        expression="hpc_health_age_seconds > 3600 and on (node) "
        'label_replace(up{job="node"} == 1, "node", "$1", "instance", "(.+)")',
        minutes=5,
        severity="warning",
        what="The last health check of {{ $labels.node }} is more than an hour old",
        todo="./hpc health STACK {{ $labels.node }} --run",
        bad={
            'hpc_health_age_seconds{node="dev-cpu-0"}': "4000",
            'up{job="node",instance="dev-cpu-0"}': "1",
        },
        good={'hpc_health_age_seconds{node="dev-cpu-0"}': "100", 'up{job="node",instance="dev-cpu-0"}': "1"},
        labels={"node": "dev-cpu-0"},
    ),
    Alert(
        name="FileSystemFull",
        expression='node_filesystem_avail_bytes{fstype!~"tmpfs|ramfs|squashfs|fuse.*|virtiofs"} '
        "/ (node_filesystem_size_bytes > 0) < 0.05",
        minutes=10,
        severity="critical",
        what="{{ $labels.mountpoint }} of {{ $labels.instance }} has less than 5 % free",
        todo="./hpc ssh STACK {{ $labels.instance }} -- df -h {{ $labels.mountpoint }}",
        bad={
            'node_filesystem_avail_bytes{instance="dev-controller",mountpoint="/",fstype="ext4"}': "1",
            'node_filesystem_size_bytes{instance="dev-controller",mountpoint="/",fstype="ext4"}': "100",
        },
        good={
            'node_filesystem_avail_bytes{instance="dev-controller",mountpoint="/",fstype="ext4"}': "50",
            'node_filesystem_size_bytes{instance="dev-controller",mountpoint="/",fstype="ext4"}': "100",
        },
        labels={"instance": "dev-controller", "mountpoint": "/", "fstype": "ext4"},
    ),
    Alert(
        name="SharedFileSystemFull",
        expression="hpc_shared_filesystem_free_bytes / (hpc_shared_filesystem_size_bytes > 0) < 0.05",
        minutes=10,
        severity="critical",
        what="The shared file system {{ $labels.mountpoint }} has less than 5 % free",
        todo=f"{_CONTROLLER}df -h {{{{ $labels.mountpoint }}}}",
        bad={
            'hpc_shared_filesystem_free_bytes{mountpoint="/home"}': "1",
            'hpc_shared_filesystem_size_bytes{mountpoint="/home"}': "100",
        },
        good={
            'hpc_shared_filesystem_free_bytes{mountpoint="/home"}': "50",
            'hpc_shared_filesystem_size_bytes{mountpoint="/home"}': "100",
        },
        labels={"mountpoint": "/home"},
    ),
    Alert(
        name="SharedFileSystemUnmounted",
        expression="hpc_shared_filesystem_mounted == 0",
        minutes=2,
        severity="critical",
        what="{{ $labels.mountpoint }} is not mounted on the controller",
        todo=f"{_CONTROLLER}mount {{{{ $labels.mountpoint }}}}",
        **_gauge("hpc_shared_filesystem_mounted", "0", "1", mountpoint="/home"),
    ),
    Alert(
        name="SharedFileSystemReadOnly",
        expression="hpc_shared_filesystem_readonly == 1",
        minutes=2,
        severity="critical",
        what="{{ $labels.mountpoint }} refuses writes on the controller",
        todo=f"{_CONTROLLER}dmesg",
        **_gauge("hpc_shared_filesystem_readonly", "1", "0", mountpoint="/home"),
    ),
    Alert(
        name="SharedFileSystemSlow",
        expression="hpc_shared_filesystem_answer_seconds > 2",
        minutes=5,
        severity="warning",
        what="{{ $labels.mountpoint }} takes {{ $value }} s to answer the controller",
        todo=f"{_CONTROLLER}df -h {{{{ $labels.mountpoint }}}}",
        **_gauge("hpc_shared_filesystem_answer_seconds", "3", "0.001", mountpoint="/home"),
    ),
    Alert(
        name="ClockSkew",
        expression="abs(timestamp(node_time_seconds) - node_time_seconds) > 5",
        minutes=5,
        severity="warning",
        what="The clock of {{ $labels.instance }} differs from the controller's by more than 5 s; MUNGE refuses "
        "credentials that are 5 minutes off",
        todo="./hpc ssh STACK {{ $labels.instance }} -- timedatectl",
        **_gauge("node_time_seconds", "1000+60", "_", instance="dev-cpu-0"),
    ),
    Alert(
        name="OutOfMemory",
        expression='increase(node_vmstat_oom_kill{role!="node"}[15m]) > 0',
        minutes=0,
        severity="warning",
        what="The kernel of {{ $labels.instance }} has ended a process because memory ran out",
        todo="./hpc ssh STACK {{ $labels.instance }} -- dmesg",
        **_gauge("node_vmstat_oom_kill", "0+1", "90", instance="dev-login-0", role="login"),
    ),
    Alert(
        name="ImageOld",
        expression=f"hpc_image_age_seconds > {180 * _DAY}",
        minutes=60,
        severity="warning",
        what="The machines' image is more than 180 days old, and so are its kernel and its security updates",
        todo="set image.snapshot to a later date, then ./hpc up STACK",
        **_gauge("hpc_image_age_seconds", "20000000", "86400"),
    ),
    Alert(
        name="KernelOld",
        expression=f"hpc_kernel_age_seconds > {OLDEST_KERNEL * _DAY}",
        minutes=60,
        severity="warning",
        what=f"The kernel of the machines' image is more than {OLDEST_KERNEL} days old and lacks the fixes since then",
        todo="set image.recipe to a later version, then ./hpc up STACK",
        **_gauge("hpc_kernel_age_seconds", "20000000", "86400"),
    ),
    Alert(
        name="KeyOld",
        expression=f"hpc_key_age_seconds > {365 * _DAY}",
        minutes=60,
        severity="warning",
        what="The cluster has had its key {{ $labels.key }} for more than a year: whoever saw it can use it still",
        todo="./hpc up STACK --replace '**::{{ $labels.cluster }}-{{ $labels.key }}'",
        **_gauge("hpc_key_age_seconds", "40000000", "86400", key="munge", cluster="dev"),
    ),
    Alert(
        name="CertificateEnds",
        expression=f"hpc_certificate_valid_seconds < {30 * _DAY}",
        minutes=60,
        severity="warning",
        what="The certificate of {{ $labels.of }} ends within 30 days: whoever checks it will then get no metrics",
        todo="set hpc:prometheusCertificate to another if it is your own, then ./hpc up STACK",
        **_gauge("hpc_certificate_valid_seconds", "1000000", "9000000", of="prometheus"),
    ),
    Alert(
        name="BackupOld",
        expression=f"hpc_accounting_backup_age_seconds > {30 * _DAY}",
        minutes=60,
        severity="warning",
        what="The last backup of the accounting database is more than 30 days old, or there is none",
        todo="./hpc accounting backup STACK",
        **_gauge("hpc_accounting_backup_age_seconds", "3000000", "86400"),
    ),
    Alert(
        name="ReconcileHeld",
        expression="hpc_reconcile_brakes > 0",
        minutes=15,
        severity="warning",
        what="A brake of the reconcile loop holds actions on elastic nodes",
        todo="./hpc status STACK",
        **_gauge("hpc_reconcile_brakes", "1", "0"),
    ),
    Alert(
        name="NoCapacity",
        # A way that has cooled down is tried again, and refused again, every 10 to 60 minutes.
        expression="max_over_time(hpc_reconcile_cooling[15m]) > 0",
        minutes=60,
        severity="warning",
        what="The cloud has refused machines of elastic nodes for an hour",
        todo="./hpc status STACK",
        **_gauge("hpc_reconcile_cooling", "1", "0"),
    ),
    Alert(
        name="MonitoringDown",
        expression='up{job!~"node|gpu"} == 0',
        minutes=5,
        severity="warning",
        what="Prometheus can't read the metrics of {{ $labels.job }}",
        todo=f"{_PROMETHEUS}systemctl status prometheus prometheus-alertmanager slurmctld",
        **_gauge("up", "0", "1", job="alertmanager", instance="alertmanager"),
    ),
    Alert(
        name="MetricsOld",
        expression='time() - node_textfile_mtime_seconds{file=~".*hpc.prom"} > 900',
        minutes=5,
        severity="warning",
        what="The metrics of Slurm and of this program have not been written for 15 minutes",
        todo=f"{_CONTROLLER}systemctl restart hpc-metrics",
        **_gauge("node_textfile_mtime_seconds", "-1000", "_", file="/var/lib/prometheus/node-exporter/hpc.prom"),
    ),
    Alert(
        name="CollectorFailing",
        expression="hpc_collector_success == 0",
        minutes=10,
        severity="warning",
        what="The metrics of {{ $labels.collector }} can't be read, or not in time",
        todo=f"{_CONTROLLER}journalctl -u hpc-metrics -n 50",
        **_gauge("hpc_collector_success", "0", "1", collector="nodes"),
    ),
    Alert(
        name="RulesFailing",
        expression="increase(prometheus_rule_evaluation_failures_total[10m]) > 0",
        minutes=0,
        severity="warning",
        what="Prometheus can't evaluate rules of {{ $labels.rule_group }}",
        todo=f"{_PROMETHEUS}journalctl -u prometheus -n 50",
        **_gauge("prometheus_rule_evaluation_failures_total", "0+1", "90", rule_group="hpc"),
    ),
    Alert(
        name="NotificationsFailing",
        expression="increase(alertmanager_notifications_failed_total[10m]) > 0",
        minutes=5,
        severity="warning",
        what="Alertmanager can't send messages by {{ $labels.integration }}",
        todo=f"{_PROMETHEUS}journalctl -u prometheus-alertmanager -n 50",
        **_gauge("alertmanager_notifications_failed_total", "0+1", "90", integration="email"),
    ),
)


def rules(alerts: Iterable[Alert] = ALERTS, machine: str = "controller") -> dict[str, Any]:
    """Prometheus' rules file; `machine` is its machine's role."""
    return {"groups": [{"name": "hpc", "rules": [_rule(alert, machine) for alert in alerts]}]}


def _rule(alert: Alert, machine: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity, "actor": alert.actor.value},
        "annotations": {"summary": alert.what, "todo": alert.todo.replace("PROMETHEUS", machine)},
    }


COLUMNS = ("alert", "severity", "who acts", "holds for", "what", "what helps")


def table() -> list[tuple[str, ...]]:
    """The alerts as rows of docs/reference/alerts.md."""
    return [
        (
            f"`{alert.name}`",
            alert.severity,
            alert.actor.value,
            f"{alert.minutes} min" if alert.minutes else "at once",
            _plain(alert.what),
            f"`{_plain(alert.todo)}`" if "./hpc" in alert.todo else _plain(alert.todo),
        )
        for alert in ALERTS
    ]


def _plain(text: str) -> str:
    """A text with names of labels in place of their values."""
    text = text.replace("{{ $value }}", "N").replace("PROMETHEUS", "controller")
    return re.sub(r"\{\{ \$labels\.([a-z_]+) \}\}", lambda found: found[1].upper(), text)
