"""The SlurmCluster: values of helm-slurm-cluster that all generations have."""

from collections.abc import Mapping
from typing import Any

from cluster.platforms.nebius.releases.charts import soperator_release
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.values import filters, images, services, volumes
from cluster.platforms.nebius.releases.values.accounting import accounting
from cluster.platforms.nebius.releases.values.slurm_conf import slurm_conf
from cluster.platforms.nebius.releases.values.workers import features, worker

_AVAILABLE = 3600
"""Seconds for the pods of the chart's own."""


def storage(inputs: Inputs, *needs: str) -> Release:
    """Volumes, once there are nodes that can mount them."""
    return soperator_release(
        inputs, "slurm-cluster-storage", values=volumes.storage(inputs), needs=needs, after=("nodes",)
    )


def slurm_cluster(inputs: Inputs, more: Mapping[str, Any], *, needs: tuple[str, ...]) -> Release:
    """The SlurmCluster, once GPUs can be had: slurmd registers those that it finds when it starts."""
    after = ("nodes", "gpu") if inputs.gpus else ("nodes",)
    values = {**common(inputs), **more}
    return soperator_release(inputs, "slurm-cluster", values=values, needs=needs, after=after, timeout=_AVAILABLE)


def common(inputs: Inputs) -> dict[str, Any]:
    """What all generations have."""
    workers = not inputs.settings.has_nodesets
    nodes: dict[str, Any] = {
        "accounting": accounting(inputs),
        "controller": services.controller(inputs),
        **({"worker": worker(inputs)} if workers else {}),
        "login": services.login(inputs),
        "exporter": services.exporter(),
        "rest": services.rest(inputs),
    }
    return {
        "clusterName": inputs.name,
        **({"clusterType": "gpu" if inputs.gpus else "cpu"} if inputs.number < (4,) else {}),
        "k8sNodeFilters": filters.k8s_node_filters(worker=workers, gpus=inputs.gpus),
        "volumeSources": [*volumes.sources(inputs), *(volumes.worker_sources(inputs) if workers else ())],
        "populateJail": {"k8sNodeFilterName": "system"},
        **({"cudaVersion": inputs.settings.gpu.cuda} if inputs.number >= (2, 0) else {}),
        **slurm_conf(inputs),
        "slurmNodes": nodes,
        **({"sConfigController": services.sconfig_controller()} if inputs.number >= (1, 20) else {}),
        **(features(inputs) if workers else {}),
        **images.cluster(inputs),
    }
