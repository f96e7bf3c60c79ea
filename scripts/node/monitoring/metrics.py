"""The metrics of the set-up's exporter: their names, help texts, and their text for node_exporter.

Names that begin with slurm_ are those of slurmctld's own metrics from 25.11 on (MetricsType; src/plugins/metrics/
openmetrics/openmetrics.c at slurm-26-05-3-1), which are gauges, too; the others it does not have. The text has
Prometheus' format 0.0.4. Labels have names that users choose: each is escaped and shortened, and a metric has a limited
number of series, so that no name makes the file invalid or Prometheus too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from system.host import printable

LONGEST = 500  # characters of a label's value, of which findings have the longest
MOST = 20_000  # series of a metric, more than a cluster has nodes
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    """A value of a gauge. The names of metrics and labels are constants of this program."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


NODE_STATES = {"FUTURE": "future", "DOWN": "down", "MIXED": "mixed", "ALLOCATED": "alloc", "IDLE": "idle"}
NODE_FLAGS = {
    "COMPLETING": "completing",
    "BLOCKED": "blocked",
    "CLOUD": "cloud",
    "FAIL": "fail",
    "INVALID_REG": "invalid_reg",
    "MAINTENANCE": "maint",
    "NOT_RESPONDING": "noresp",
    "PLANNED": "planned",
    "POWER_DOWN": "power_down",
    "POWER_UP": "power_up",
    "POWERED_DOWN": "powered_down",
    "POWERING_UP": "powering_up",
    "REBOOT_ISSUED": "reboot_issued",
    "REBOOT_REQUESTED": "reboot_req",
    "RESERVED": "resv",
}
"""States of nodes as scontrol prints them, and their names in metrics."""
JOB_STATES = {
    "BOOT_FAIL": "bootfail",
    "CANCELLED": "cancelled",
    "COMPLETED": "completed",
    "COMPLETING": "completing",
    "CONFIGURING": "configuring",
    "DEADLINE": "deadline",
    "FAILED": "failed",
    "NODE_FAIL": "node_failed",
    "OUT_OF_MEMORY": "outofmemory",
    "PREEMPTED": "preempted",
    "REQUEUED": "requeued",
    "RUNNING": "running",
    "SUSPENDED": "suspended",
    "TIMEOUT": "timeout",
}
STATISTICS = {
    "Server thread count": "server_thread_cnt",
    "Agent queue size": "agent_queue_size",
    "Agent count": "agent_cnt",
    "DBD Agent queue size": "slurmdbd_queue_size",
    "Jobs submitted": "sdiag_jobs_submitted",
    "Jobs started": "sdiag_jobs_started",
    "Jobs completed": "sdiag_jobs_completed",
    "Jobs canceled": "sdiag_jobs_canceled",
    "Jobs failed": "sdiag_jobs_failed",
    "Jobs pending": "sdiag_jobs_pending",
    "Jobs running": "sdiag_jobs_running",
    "Last cycle": "schedule_cycle_last",
    "Max cycle": "schedule_cycle_max",
    "Total cycles": "schedule_cycle_cnt",
    "Last queue length": "schedule_queue_len",
}
"""Lines of sdiag before its section on backfill, which has some of the same keys."""
BACKFILL = {"Last cycle": "bf_cycle_last", "Total cycles": "bf_cycle_cnt", "Last queue length": "bf_queue_len"}
_NODES = {
    **{name: f"in the state {state}" for state, name in NODE_STATES.items()},
    **{name: f"with the flag {state}" for state, name in NODE_FLAGS.items()},
    "unknown": "in none of the states that have a metric",
    "drain": "drained, without jobs",
    "drained": "drained, without jobs",
    "draining": "drained, with jobs that run on",
}
_JOBS = {
    **{name: f"in the state {state}" for state, name in JOB_STATES.items()},
    "pending": "in the state PENDING",
    "hold": "held by their user, Slurm or an operator",
}
HELP: Mapping[str, str] = {
    "slurm_nodes": "Nodes",
    **{f"slurm_nodes_{name}": f"Nodes {what}" for name, what in _NODES.items()},
    "slurm_node_cpus": "CPUs of a node",
    "slurm_node_cpus_alloc": "CPUs of a node that jobs have",
    "slurm_node_cpus_effective": "CPUs of a node that jobs can have",
    "slurm_node_cpus_idle": "CPUs of a node that no job has",
    "slurm_node_memory_bytes": "Memory of a node in slurm.conf (RealMemory)",
    "slurm_node_memory_alloc_bytes": "Memory of a node that jobs have",
    "slurm_node_gpus": "GPUs of a node in slurm.conf",
    "slurm_node_gpus_alloc": "GPUs of a node that jobs have",
    "slurm_partition_nodes": "Nodes of a partition",
    "slurm_partition_cpus": "CPUs of a partition",
    "slurm_partition_gpus": "GPUs of a partition",
    **{f"slurm_partition_nodes_{name}": f"Nodes of a partition {what}" for name, what in _NODES.items()},
    "slurm_jobs": "Jobs in slurmctld; each task of a job array counts",
    **{f"slurm_jobs_{name}": f"Jobs {what}" for name, what in _JOBS.items()},
    "slurm_jobs_cpus_alloc": "CPUs that jobs have",
    "slurm_jobs_nodes_alloc": "Nodes that jobs have; one that several share counts for each",
    **{f"slurm_partition_jobs_{name}": f"Jobs of a partition {what}" for name, what in _JOBS.items()},
    **{
        f"slurm_{who}_jobs_{name}": f"Jobs of {an} {who} {_JOBS[name]}"
        for an, who in (("a", "user"), ("an", "account"))
        for name in ("running", "pending")
    },
    "slurm_server_thread_cnt": "Threads of slurmctld that serve requests",
    "slurm_agent_queue_size": "Messages to nodes that wait in slurmctld",
    "slurm_agent_cnt": "Agents of slurmctld that send messages to nodes",
    "slurm_slurmdbd_queue_size": "Records that wait in slurmctld for slurmdbd",
    "slurm_sdiag_jobs_submitted": "Jobs submitted since the statistics were reset",
    "slurm_sdiag_jobs_started": "Jobs started since the statistics were reset",
    "slurm_sdiag_jobs_completed": "Jobs completed since the statistics were reset",
    "slurm_sdiag_jobs_canceled": "Jobs cancelled since the statistics were reset",
    "slurm_sdiag_jobs_failed": "Jobs failed since the statistics were reset",
    "slurm_sdiag_jobs_pending": "Jobs that waited at slurmctld's last count",
    "slurm_sdiag_jobs_running": "Jobs that ran at slurmctld's last count",
    "slurm_schedule_cycle_last": "Microseconds of the scheduler's last pass",
    "slurm_schedule_cycle_max": "Microseconds of the scheduler's longest pass since the statistics were reset",
    "slurm_schedule_cycle_cnt": "Passes of the scheduler since the statistics were reset",
    "slurm_schedule_queue_len": "Jobs in the queue of the scheduler's last pass",
    "slurm_bf_cycle_last": "Microseconds of the backfill scheduler's last pass",
    "slurm_bf_cycle_cnt": "Passes of the backfill scheduler since the statistics were reset",
    "slurm_bf_queue_len": "Jobs in the queue of the backfill scheduler's last pass",
    "hpc_node_unavailable_seconds": "Time since a node is down or drained",
    "hpc_node_taken_out": "1 if a node reboots by command or has maintenance",
    "hpc_partition_nodes_free": "Idle nodes of a partition that take jobs",
    "hpc_jobs_held": "Jobs held by Slurm or an operator, not by their user",
    "hpc_jobs_waiting": "Jobs that wait for nodes",
    "hpc_partition_jobs_waiting": "Jobs that wait for nodes of a partition",
    "hpc_partition_jobs_blocked": "Jobs that wait for nodes of a partition that are down, drained or reserved",
    "hpc_partition_oldest_waiting_seconds": "Time since the oldest job waiting for nodes of a partition was submitted",
    "hpc_job_gpus": "GPUs of a running job",
    "hpc_collector_success": "1 if a part of these metrics could be read in time",
    "hpc_finding": "A finding of ./hpc status: 1 once it pages",
    "hpc_finding_text": "The text of a finding, and what to do",
    "hpc_slurmctld_up": "1 if slurmctld answers",
    "hpc_slurmctld_ping_seconds": "Time that slurmctld takes to answer",
    "hpc_slurmdbd_up": "1 if slurmdbd answers",
    "hpc_munge_works": "1 if munged on the controller makes and accepts a credential",
    "hpc_machine_config_not_applied": "1 if the set-up of a machine has failed or has an old config version",
    "hpc_machines": "Machines by the state of their set-up",
    "hpc_image_age_seconds": "Time since the controller's image was made",
    "hpc_key_age_seconds": "Time since the cluster has a key",
    "hpc_accounting_backup_age_seconds": "Time since the last backup of the accounting database",
    "hpc_certificate_valid_seconds": "Time until a certificate ends",
    "hpc_health_age_seconds": "Time since the last health check of a node",
    "hpc_health_old": "1 if a node has no recent result of its health check",
    "hpc_health_check_failed": "1 if a health check of a node has failed",
    "hpc_health_check_text": "What a failed health check of a node has found",
    "hpc_health_checks_failed": "Nodes on which a health check has failed",
    "hpc_reconcile_mode": "1 for the mode of the reconcile loop",
    "hpc_reconcile_brakes": "Brakes that hold the reconcile loop back",
    "hpc_reconcile_cooling": "Kinds of capacity that the cloud has refused a short time ago",
    "hpc_reconcile_recent_actions": "Recent actions of the reconcile loop",
    "hpc_shared_filesystem_answer_seconds": "Time that a shared file system takes to answer the controller",
    "hpc_shared_filesystem_mounted": "1 if a shared file system is mounted on the controller",
    "hpc_shared_filesystem_size_bytes": "Size of a shared file system",
    "hpc_shared_filesystem_free_bytes": "Space of a shared file system that users can fill",
    "hpc_shared_filesystem_files": "Inodes of a shared file system",
    "hpc_shared_filesystem_files_free": "Inodes of a shared file system that are free",
    "hpc_shared_filesystem_readonly": "1 if a shared file system refuses writes on the controller",
}
"""The help text of each metric. node_exporter would else make one of the file's name, and of a metric that two files
have with unlike texts it takes one file only (prometheus/node_exporter, issues 946 and 1885, pull request 2962)."""


def render(samples: Iterable[Sample]) -> str:
    """Return the samples as text, grouped by metric, each with its help text and its type. If two have the same
    labels, the last one counts."""
    metrics: dict[str, dict[str, float]] = {}
    for name, value, labels in samples:
        series = metrics.setdefault(name, {})
        text = f"{{{','.join(f'{key}={_quoted(labels[key])}' for key in labels)}}}" if labels else ""
        if text in series or len(series) < MOST:
            series[text] = value
    lines: list[str] = []
    for name, series in sorted(metrics.items()):
        lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
        lines += [f"{name}{text} {value:.15g}" for text, value in series.items()]
    return "".join(f"{line}\n" for line in lines)


def _quoted(value: str) -> str:
    return f'"{printable(value)[:LONGEST].translate(_ESCAPES)}"'
