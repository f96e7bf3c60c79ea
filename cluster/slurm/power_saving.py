"""Slurm's power saving, by which the machines of elastic nodes come and go: slurmctld runs a program for nodes that
jobs need, and another for nodes that have been idle.

The programs only write down what is asked for. The controller's reconcile service creates and deletes the machines.
"""

from collections.abc import Mapping

from cluster.catalog.slurm_releases import CONF, ENDLESS_RESUME, PARTITION, POWER_SAVING
from cluster.config.cluster import ClusterConfig
from cluster.config.section import Value
from cluster.roster import static_names
from cluster.slurm import paths
from scripts.node.slurm import hostlist

BOOT_SECONDS = 900
"""ResumeTimeout: from `scontrol reboot`, or from ResumeProgram, until the node has registered. Slurm's default, 60 s,
is less than a virtual machine with eight GPUs takes. Source: cluster-toolkit,
examples/machine-learning/a3-megagpu-8g, partition_conf."""
QUEUED_SECONDS = 65533
"""ResumeTimeout of nodes whose machines wait in the cloud's queue (flex start) before 25.05, from which on it may be
INFINITE: the most that fits into 16 bits, 18 hours. The reconcile service looks after those that do not boot."""
SUSPEND_SECONDS = 120
"""SuspendTimeout: a node is not resumed before, as the machine of its name may still be there. The reconcile service
ends it early where the machine is gone."""
KEPT_STATES = "DRAIN,DOWN,MAINTENANCE,RESERVED"
"""Nodes that are not suspended: a suspended one comes back without DRAIN and DOWN (idle_on_node_suspend)."""


def elastic_nodesets(config: ClusterConfig) -> list[str]:
    """Names of the nodesets with elastic nodes."""
    return [name for name, section in config.nodesets.items() if section.elastic]


def repaired_nodesets(config: ClusterConfig) -> list[str]:
    """Names of the nodesets without elastic nodes whose machines the reconcile loop repairs."""
    if not config.slurm.reconcile.static:
        return []
    return [
        name for name, section in config.nodesets.items() if section.static and not section.elastic and not section.on
    ]


def settings(config: ClusterConfig) -> dict[str, Value]:
    """Parameters of slurm.conf; none where no nodeset is elastic."""
    if not elastic_nodesets(config):
        return {}
    static = [node for name in config.nodesets for node in static_names(config, name)]
    return {
        "ResumeProgram": paths.RESUME,
        "SuspendProgram": paths.SUSPEND,
        "ResumeFailProgram": paths.RESUME_FAILED,
        "PrologSlurmctld": paths.AWAIT_NODES,
        "ResumeRate": 0,
        "SuspendRate": 0,
        "SuspendTime": "INFINITE",
        "SuspendTimeout": SUSPEND_SECONDS,
        "SuspendExcNodes": hostlist.compress(static) or None,
        "SuspendExcStates": KEPT_STATES if _keeps_drained(config) else None,
        "ReconfigFlags": ",".join(_known(config, "KeepPowerSaveSettings")) or None,
        # Without it 22.05 shows powered-down nodes to nobody: neither to users nor to what waits for a job's nodes.
        "PrivateData": ",".join(_known(config, "cloud")) or None,
    }


def controller_parameters(config: ClusterConfig, addresses: Mapping[str, str] | None) -> list[str]:
    """Words of SlurmctldParameters. Names of nodes resolve where no `addresses` are written."""
    if not elastic_nodesets(config):
        return []
    # Without SuspendExcStates it would make sound nodes of drained ones; there the reconcile service resumes nodes.
    idle = ("idle_on_node_suspend",) if _keeps_drained(config) else ()
    found = ("cloud_reg_addrs",) if addresses else ("cloud_dns",)
    return _known(config, *idle, *found, "enable_expedited_requeue")


def scheduler_parameters(config: ClusterConfig) -> list[str]:
    """Words of SchedulerParameters."""
    return _known(config, "requeue_on_resume_failure") if elastic_nodesets(config) else []


def _keeps_drained(config: ClusterConfig) -> bool:
    return config.slurm_version in CONF.versions("SuspendExcStates")


def _known(config: ClusterConfig, *words: str) -> list[str]:
    return [word for word in words if config.slurm_version in POWER_SAVING.versions(word)]


def partition_settings(config: ClusterConfig, name: str) -> dict[str, Value]:
    """Parameters of a partition's line: the longest times of its elastic nodesets, as Slurm has them of partitions."""
    sections = [config.nodesets[nodeset] for nodeset in config.partitions[name].nodesets]
    elastic = [section for section in sections if section.elastic]
    queued = any(way.flex for section in elastic for way in section.ways)
    endless = config.slurm_version in ENDLESS_RESUME
    return {
        "SuspendTime": max((section.idle_seconds for section in elastic), default=None),
        "ResumeTimeout": None if not queued else "INFINITE" if endless else QUEUED_SECONDS,
    }


def boot_seconds(config: ClusterConfig, nodeset: str) -> int:
    """Return how long an elastic node may boot: ResumeTimeout that its partitions have in the stack file, else the
    cluster's."""
    whole = _seconds(config.slurm.extra, "resumetimeout") or BOOT_SECONDS
    found = [
        seconds
        for name, part in config.partitions.items()
        if nodeset in part.nodesets and (seconds := _seconds(_written(part.conf), "ResumeTimeout"))
    ]
    return max(found, default=whole)


def _written(conf: Mapping[str, Value]) -> dict[str, Value]:
    return {PARTITION.canonical(name) or name: value for name, value in conf.items()}


def _seconds(conf: Mapping[str, Value], parameter: str) -> int:
    """A number of seconds, INFINITE as the longest; 0 where there is none."""
    found = next((value for name, value in conf.items() if name.lower() == parameter.lower()), None)
    if found is None:
        return 0
    return int(found) if str(found).isdecimal() else QUEUED_SECONDS
