"""Parameters of slurm.conf besides partitions and nodes: Soperator generates the file and includes what is added here.

A parameter that Soperator generates too has the value that is added: slurmctld and slurmd use the last one, and log
that there are two. What has a key in the chart's `slurmConfig` is written there instead.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from cluster.catalog.parameters import CONF
from cluster.config.fields import conf_fields
from cluster.config.metadata import Value
from cluster.people import preempts
from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.keys import CHARTS
from cluster.platforms.nebius.releases.values.partitions import tiers
from cluster.slurm.text import assignments

_ELSEWHERE = {"ClusterName", "AccountingStorageEnforce", "JobAcctGatherType"}
"""Set by the name of the SlurmCluster, and by the accounting's own values."""
_SAME: Mapping[str, Value] = {
    "MpiDefault": "pmix",
    "ReturnToService": 2,
    "ScronParameters": "enable",
    "SelectTypeParameters": "CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK",
}
"""What Soperator generates with the same meaning, so that nothing is added (internal/render/common/configmap.go)."""


def slurm_conf(inputs: Inputs) -> dict[str, Any]:
    """Values `slurmConfig` and `customSlurmConfig`."""
    keys = {name.lower(): name for name in CHARTS["helm-slurm-cluster"].below["slurmConfig"].below}
    given = {**_asked_for(inputs), **inputs.config.slurm.extra}
    in_chart = {keys[name.lower()]: value for name, value in given.items() if name.lower() in keys}
    added = {CONF.canonical(name) or name: value for name, value in given.items() if name.lower() not in keys}
    values: dict[str, Any] = {"slurmConfig": {"defMemPerNode": _memory(inputs), **in_chart}}
    if lines := assignments({**_ours(inputs), **added}):
        values["customSlurmConfig"] = "\n".join(lines) + "\n"
    return values


def _asked_for(inputs: Inputs) -> dict[str, Value]:
    """What fields of the stack file set, where it has them: Soperator's own values are its defaults."""
    asked: dict[str, Value] = {}
    for path, slurm in conf_fields(type(inputs.config)):
        *above, key = path.split(".")
        section = reduce(getattr, above, inputs.config)
        value = slurm.value(getattr(section, key))
        written = key in section.model_fields_set and value is not None and _SAME.get(slurm.parameter) != value
        if written and slurm.parameter not in _ELSEWHERE:
            asked[slurm.parameter] = value
    return asked


def _ours(inputs: Inputs) -> dict[str, Value]:
    return {"AccountingStorageEnforce": ",".join(inputs.config.accounting.enforce) or None, **_preemption(inputs)}


def _preemption(inputs: Inputs) -> dict[str, Value]:
    """Soperator preempts by priority tier, and requeues. Here a tier decides which job is considered first, and only a
    QOS that says so preempts, as on the other platforms."""
    if preempts(inputs.config):
        return {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}
    return {"PreemptType": "preempt/none", "PreemptMode": "OFF"} if len(tiers(inputs)) > 1 else {}


def _memory(inputs: Inputs) -> int:
    """MiB that a job without a wish gets in partitions that say nothing, such as the one of checks: a whole node's."""
    return min(sizing.worker(inputs.config, name).memory_mib for name in inputs.nodesets)


def topology_plugin(inputs: Inputs) -> str:
    """Slurm's topology plugin. Until 5.0, slurmctld ends where names of InfiniBand switches end in more than 18 digits
    (nebius/soperator pull request 2623): `nebius.values: {slurm-cluster: {slurmConfig: {topologyPlugin:
    topology/default}}}` runs the cluster without a topology then."""
    given = inputs.settings.values.get("slurm-cluster", {}).get("slurmConfig")
    return str((given.get("topologyPlugin") if isinstance(given, Mapping) else None) or "topology/tree")
