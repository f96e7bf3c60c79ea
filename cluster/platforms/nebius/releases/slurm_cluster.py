"""The SlurmCluster: values of helm-slurm-cluster."""

from typing import Any

from cluster.platforms.nebius.releases.charts import soperator_release
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.values import filters, images, partitions, services, volumes
from cluster.platforms.nebius.releases.values.accounting import accounting
from cluster.platforms.nebius.releases.values.slurm_conf import slurm_conf

_AVAILABLE = 3600
"""Seconds for the pods of the chart's own."""


def storage(inputs: Inputs, *needs: str) -> Release:
    """Volumes, once there are nodes that can mount them."""
    return soperator_release(
        inputs, "slurm-cluster-storage", values=volumes.storage(inputs), needs=needs, after=("nodes",)
    )


def slurm_cluster(inputs: Inputs, *, needs: tuple[str, ...]) -> Release:
    """The SlurmCluster, once GPUs can be had: slurmd registers those that it finds when it starts."""
    after = ("nodes", "gpu") if inputs.gpus else ("nodes",)
    values = _values(inputs)
    return soperator_release(inputs, "slurm-cluster", values=values, needs=needs, after=after, timeout=_AVAILABLE)


def _values(inputs: Inputs) -> dict[str, Any]:
    nodes: dict[str, Any] = {
        "accounting": accounting(inputs),
        "controller": services.controller(inputs),
        "login": services.login(inputs),
        "exporter": services.exporter(),
        "rest": services.rest(inputs),
    }
    return {
        "clusterName": inputs.name,
        "k8sNodeFilters": filters.k8s_node_filters(),
        "volumeSources": volumes.sources(inputs),
        "populateJail": {"k8sNodeFilterName": "system"},
        "cudaVersion": inputs.settings.gpu.cuda,
        **slurm_conf(inputs),
        "slurmNodes": nodes,
        "sConfigController": services.sconfig_controller(),
        **images.cluster(inputs),
        "partitionConfiguration": partitions.partition_configuration(inputs),
    }
