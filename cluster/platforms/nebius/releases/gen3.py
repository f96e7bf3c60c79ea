"""Soperator from 3.0 on: workers are NodeSets, and partitions name them.

Source: helm/soperator-fluxcd at the tags (dependsOn of its templates), without Flux.
"""

from cluster.platforms.nebius.releases import gen2, slurm_cluster
from cluster.platforms.nebius.releases.charts import soperator_release
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.values import partitions
from cluster.platforms.nebius.releases.values.nodesets import nodesets


def releases(inputs: Inputs) -> tuple[Release, ...]:
    """All releases, each after those that it needs."""
    more = {"partitionConfiguration": partitions.structured(inputs)}
    needs = ("soperator", "mariadb-operator", "slurm-cluster-storage", "soperator-custom-configmaps")
    return (
        *gen2.base(inputs),
        soperator_release(inputs, "storageclasses", namespace="storage-system", values={}),
        slurm_cluster.storage(inputs, "soperator", "storageclasses"),
        soperator_release(inputs, "soperator-custom-configmaps", values=_configmaps(inputs)),
        slurm_cluster.slurm_cluster(inputs, more, needs=needs),
        soperator_release(
            inputs,
            "nodesets",
            values=nodesets(inputs),
            needs=("soperator", "slurm-cluster"),
            after=("nodes", "gpu") if inputs.gpus else ("nodes",),
        ),
        *gen2.checking(inputs, "slurm-cluster", "nodesets"),
    )


def _configmaps(inputs: Inputs) -> dict[str, object]:
    """What runs in workers beside slurmd, and where images are. The message of the day is about Nebius's monitoring."""
    return {"namespace": inputs.name, "configMaps": {"motd": {"enabled": False}}}
