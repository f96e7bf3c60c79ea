"""Slurm's power saving, which elastic nodes use: slurmctld runs a program for nodes that jobs need, and another for
nodes that have been idle.

These programs only write the requests. The controller's reconcile service creates and deletes the machines.
"""

import math
from collections.abc import Mapping

from cluster.catalog.slurm_releases import CONF, ENDLESS_RESUME, POWER_SAVING
from cluster.config.cluster import ClusterConfig
from cluster.config.section import Value
from cluster.roster import nodeset_type, static_names
from cluster.slurm import paths
from scripts.node.slurm import hostlist

BOOT_PART = 0.8
"""Part of ResumeTimeout after which the reconcile service deletes a machine that has not joined, so that it and not
slurmctld ends the wait."""
QUEUED_SECONDS = 65533
"""ResumeTimeout of nodes whose machines wait in the cloud's queue (flex start) in releases before 25.05, where it can't
be INFINITE: the most that fits into 16 bits, 18 hours. The reconcile service handles nodes that do not boot."""
SUSPEND_SECONDS = 120
"""SuspendTimeout: a node is not resumed earlier, since its machine may still exist. The reconcile service ends the wait
when the machine is deleted."""
KEPT_STATES = "DRAIN,DOWN,MAINTENANCE,RESERVED"
"""States whose nodes are not suspended: a suspended node loses DRAIN and DOWN (idle_on_node_suspend)."""


def elastic_nodesets(config: ClusterConfig) -> list[str]:
    """Return the names of the nodesets with elastic nodes."""
    return [name for name, section in config.nodesets.items() if section.elastic]


def repaired_nodesets(config: ClusterConfig) -> list[str]:
    """Return the names of the nodesets without elastic nodes whose machines the reconcile loop repairs."""
    if not config.slurm.reconcile.static:
        return []
    return [
        name for name, section in config.nodesets.items() if section.static and not section.elastic and not section.on
    ]


def settings(config: ClusterConfig) -> dict[str, Value]:
    """Return parameters of slurm.conf; none if no nodeset is elastic."""
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
        "SuspendExcStates": KEPT_STATES if _excludes_states(config) else None,
        "ReconfigFlags": ",".join(_supported(config, "KeepPowerSaveSettings")) or None,
        # Without it 22.05 does not show powered-down nodes, neither to users nor to the program that waits for nodes.
        "PrivateData": ",".join(_supported(config, "cloud")) or None,
    }


def controller_parameters(config: ClusterConfig, addresses: Mapping[str, str] | None) -> list[str]:
    """Return words of SlurmctldParameters. Without `addresses`, names of nodes resolve."""
    if not elastic_nodesets(config):
        return []
    # Without SuspendExcStates, drained nodes would come back as idle ones. There the reconcile service resumes nodes.
    idle = ("idle_on_node_suspend",) if _excludes_states(config) else ()
    address_source = "cloud_reg_addrs" if addresses else "cloud_dns"
    return _supported(config, *idle, address_source, "enable_expedited_requeue")


def scheduler_parameters(config: ClusterConfig) -> list[str]:
    """Return words of SchedulerParameters."""
    return _supported(config, "requeue_on_resume_failure") if elastic_nodesets(config) else []


def _excludes_states(config: ClusterConfig) -> bool:
    return config.slurm_version in CONF.versions("SuspendExcStates")


def _supported(config: ClusterConfig, *words: str) -> list[str]:
    return [word for word in words if config.slurm_version in POWER_SAVING.versions(word)]


def partition_settings(config: ClusterConfig, name: str) -> dict[str, Value]:
    """Return parameters of a partition's line: the longest times of its elastic nodesets."""
    sections = [config.nodesets[nodeset] for nodeset in config.partitions[name].nodesets]
    elastic = [section for section in sections if section.elastic]
    queued = any(way.flex for section in elastic for way in section.ways)
    endless = config.slurm_version in ENDLESS_RESUME
    return {
        "SuspendTime": max((section.idle_seconds for section in elastic), default=None),
        "ResumeTimeout": None if not queued else "INFINITE" if endless else QUEUED_SECONDS,
    }


def resume_timeout(config: ClusterConfig) -> int:
    """Return ResumeTimeout: the seconds from `scontrol reboot`, or from ResumeProgram, until the node has registered.
    Slurm's default, 60 s, is less than any machine takes."""
    return resume_timeout_for(max(_family_seconds(config, name) for name in config.nodesets))


def resume_timeout_for(seconds: int) -> int:
    """Return the ResumeTimeout with which a machine may take so many seconds to join."""
    return math.ceil(seconds / BOOT_PART)


def boot_seconds(config: ClusterConfig, nodeset: str) -> int:
    """Return the seconds after which the machine of an elastic node that has not joined is deleted: a part of the
    longest ResumeTimeout that the stack file has for its partitions, else of that for the cluster, else the time of its
    family."""
    of_partitions = [_resume_timeout(part.conf) for part in config.partitions.values() if nodeset in part.nodesets]
    given = max(of_partitions, default=0) or _resume_timeout(config.slurm.extra)
    return int(given * BOOT_PART) or _family_seconds(config, nodeset)


def _family_seconds(config: ClusterConfig, nodeset: str) -> int:
    return nodeset_type(config, config.nodesets[nodeset]).family.boot_seconds


def _resume_timeout(conf: Mapping[str, Value]) -> int:
    """Return the seconds of ResumeTimeout, with INFINITE as the longest time; 0 if it is not set."""
    value = next((value for name, value in conf.items() if name.lower() == "resumetimeout"), None)
    if value is None:
        return 0
    return int(value) if str(value).isdecimal() else QUEUED_SECONDS
