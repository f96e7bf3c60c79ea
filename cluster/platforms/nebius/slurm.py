"""Slurm's settings of a stack file in the form that Soperator reads: parameters, partitions, node lines, accounts.

Soperator generates slurm.conf, and includes the lines that are added here. An added line replaces a parameter that
Soperator generates too: slurmctld and slurmd use the last one, and log that there are two. A parameter with a key in
the chart's `slurmConfig` is written there instead.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from cluster.catalog.slurm_releases import CONF, NODE
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import conf_fields
from cluster.config.section import Value
from cluster.people import preempts
from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.stack_file_fields import Nebius
from cluster.roster import nodeset_gpu, sizes, static_names
from cluster.slurm.accounting import desired
from cluster.slurm.power_saving import elastic_nodesets
from cluster.slurm.slurm_conf import decay_half_life, partition_settings
from cluster.slurm.text import assignments, overridden
from scripts.node.slurm.hostlist import compress

IN_CHART = (
    "defMemPerNode",
    "defCpuPerGPU",
    "completeWait",
    "epilog",
    "prolog",
    "taskPluginParam",
    "maxJobCount",
    "minJobAge",
    "messageTimeout",
    "topologyPlugin",
    "topologyParam",
    "suspendTime",
)
"""Keys of `slurmConfig` of helm-slurm-cluster (api/v1/slurmcluster_types.go, SlurmConfig)."""
_ELSEWHERE = {"ClusterName", "AccountingStorageEnforce", "JobAcctGatherType"}
"""Parameters that follow from the name of the SlurmCluster and from values of the accounting."""
_SAME: Mapping[str, Value] = {
    "MpiDefault": "pmix",
    "ReturnToService": 2,
    "ScronParameters": "enable",
    "SelectTypeParameters": "CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK",
}
"""Values that Soperator generates anyway, so that no line is added (internal/render/common/configmap.go)."""
CHECKS_PARTITION = "hidden"
"""The partition in which Soperator's active checks run; they need it."""
CHECKS_USER = "soperatorchecks"
"""The user that submits the jobs of checks. With AccountingStorageEnforce it needs an account."""


def conf(config: ClusterConfig) -> tuple[dict[str, Any], str]:
    """Return the parameters of slurm.conf that the stack file sets, and those that Soperator would set to other values,
    as the chart's values `slurmConfig` and `customSlurmConfig`."""
    keys = {name.lower(): name for name in IN_CHART}
    given = {**_topology(config), **_written(config), **config.slurm.extra}
    in_chart = {keys[name.lower()]: value for name, value in given.items() if name.lower() in keys}
    added = {CONF.canonical(name) or name: value for name, value in given.items() if name.lower() not in keys}
    enforced = {"AccountingStorageEnforce": ",".join(config.accounting.enforce) or None}
    usage = {"PriorityDecayHalfLife": decay_half_life(config)}
    lines = assignments({**enforced, **usage, **_preemption(config), **_power_saving(config), **added})
    # A job that requests no memory gets a whole node's in partitions without a default of their own, such as the one of
    # checks.
    memory = min(sizing.slurmd(config, name).memory for name in config.nodesets)
    return {"defMemPerNode": memory, **in_chart}, "".join(f"{line}\n" for line in lines)


def _written(config: ClusterConfig) -> dict[str, Value]:
    """Return the parameters of fields that the stack file has; for others Soperator's own defaults hold."""
    parameters: dict[str, Value] = {}
    for path, slurm in conf_fields(type(config)):
        *above, key = path.split(".")
        section = reduce(getattr, above, config)
        value = slurm.value(getattr(section, key))
        written = key in section.model_fields_set and value is not None and _SAME.get(slurm.parameter) != value
        if written and slurm.parameter not in _ELSEWHERE:
            parameters[slurm.parameter] = value
    return parameters


def _preemption(config: ClusterConfig) -> dict[str, Value]:
    """Return the parameters of preemption. Soperator's own preempt by priority tier; here a tier only orders jobs, and
    a QOS preempts, as on the other platforms."""
    if preempts(config):
        return {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}
    return {"PreemptType": "preempt/none", "PreemptMode": "OFF"} if len(_priority_tiers(config)) > 1 else {}


def _power_saving(config: ClusterConfig) -> dict[str, Value]:
    """Return the nodes and states that Slurm may not power down. Soperator itself excludes nodesets without elastic
    nodes alone, and its `idle_on_node_suspend` would resume a drained node."""
    if not elastic_nodesets(config):
        return {}
    static = [name for nodeset in config.nodesets for name in static_names(config, nodeset)]
    return {"SuspendExcNodes": compress(static) or None, "SuspendExcStates": "DRAIN,MAINTENANCE,RESERVED"}


def _priority_tiers(config: ClusterConfig) -> set[int]:
    return {int(partition_settings(config, name).get("PriorityTier") or 1) for name in config.partitions}


PLUGINS = {"places": "topology/tree", "none": "topology/default"}
"""Plugin for each value of `slurm.topology` that Soperator supports: it writes switches from the labels that Nebius
gives to Kubernetes' nodes in GPU clusters, and none for nodesets."""


def _topology(config: ClusterConfig) -> dict[str, Value]:
    plugin = PLUGINS.get(config.slurm.topology or "")
    return {"TopologyPlugin": plugin} if plugin else {}


def topology_plugin(config: ClusterConfig, settings: Nebius) -> str:
    """Return Slurm's topology plugin. Until 5.0, slurmctld ends if names of InfiniBand switches end in more than 18
    digits (nebius/soperator pull request 2623): then `slurm.topology: none` runs the cluster without a topology."""
    values = settings.values.get("slurm-cluster", {}).get("slurmConfig")
    given = values.get("topologyPlugin") if isinstance(values, Mapping) else None
    return str(given or _topology(config).get("TopologyPlugin") or PLUGINS["places"])


def partitions(config: ClusterConfig) -> list[dict[str, Any]]:
    """Return the partitions, with the names of their NodeSets, and the partition of checks."""
    partitions: list[dict[str, Any]] = []
    for name, partition in config.partitions.items():
        settings = partition_settings(config, name)
        line = assignments({key: settings[key] for key in settings if key not in {"PartitionName", "Nodes"}})
        partitions.append({"name": name, "nodeSetRefs": list(partition.nodesets), "config": " ".join(line)})
    if CHECKS_PARTITION not in {name.lower() for name in config.partitions}:
        # As Soperator's own, but in the lowest tier: in a higher tier, checks would requeue users' jobs.
        tier = min(_priority_tiers(config))
        line = f"Default=NO PriorityTier={tier} PreemptMode=OFF Hidden=YES MaxTime=INFINITE State=UP OverSubscribe=YES"
        partitions.append({"name": CHECKS_PARTITION, "isAll": True, "config": line})
    return partitions


def node_line(config: ClusterConfig, nodeset: str) -> str:
    """Return the settings of NodeName lines besides name, address and RealMemory, which Soperator writes."""
    section = config.nodesets[nodeset]
    size, gpu = sizes(config, section), nodeset_gpu(config, section)
    settings = {
        "CPUs": size.cpus,
        "Boards": 1,
        "SocketsPerBoard": size.sockets,
        "CoresPerSocket": size.cores,
        "ThreadsPerCore": size.threads,
        "Gres": f"gpu:{gpu.type}:{gpu.count}" if gpu else None,
    }
    return " ".join(assignments(overridden(settings, section.node_conf, NODE)))


def accounts(config: ClusterConfig) -> dict[str, Any]:
    """Return the content of Slurm's database: the stack file's accounts and users, and an account for Soperator's
    checks, whose jobs `accounting.enforce` would refuse without one."""
    content: dict[str, Any] = dict(desired(config))
    if not config.accounting.enforce:
        return content
    account = {"name": CHECKS_USER, "parent": "root", "description": "active checks", "organization": "soperator"}
    user = {"name": CHECKS_USER, "default_account": CHECKS_USER, "accounts": [CHECKS_USER], "qos": []}
    return {**content, "accounts": [*content["accounts"], account], "users": [*content["users"], user]}
