"""Workers of generations that have them in the SlurmCluster: one nodeset, called worker."""

from typing import Any

from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.node_groups import JAIL
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.values import volumes

SHARED_MEMORY = "256Gi"
"""Size limit of /dev/shm on nodes with GPUs, where NCCL and data loaders exchange data (the guide's example)."""
SMALL_SHARED_MEMORY = "64Gi"
"""On other nodes. Memory that is used there counts against the job."""


def worker(inputs: Inputs) -> dict[str, Any]:
    """Values of slurmNodes.worker."""
    name, section = next(iter(inputs.nodesets.items()))
    size = sizing.worker(inputs.config, name)
    values: dict[str, Any] = {
        "size": section.count,
        "k8sNodeFilterName": "worker",
        "cgroupVersion": "v2",
        "slurmd": {"resources": {**size.slurmd.quantities, "gpu": size.gpus}},
        "munge": {"resources": size.munge.quantities},
        "volumes": {
            "spool": {"volumeClaimTemplateSpec": None, "volumeSourceName": volumes.WORKER_SPOOL},
            "jail": {"volumeSourceName": JAIL},
            "jailSubMounts": volumes.submounts(inputs),
            "sharedMemorySize": shared_memory(inputs, name),
        },
    }
    if inputs.number >= (1, 16) and size.gpus:
        values["enableGDRCopy"] = True
    if inputs.number >= (1, 20):
        values["customInitContainers"] = volumes.ensure_mounted(inputs, with_submounts=True)
    return values


def shared_memory(inputs: Inputs, nodeset: str) -> str:
    """Size limit of /dev/shm: at most half of the pod's memory, as on Linux."""
    size = sizing.worker(inputs.config, nodeset)
    wanted = SHARED_MEMORY if size.gpus else SMALL_SHARED_MEMORY
    half = size.memory_mib // 2 // 1024
    return f"{min(int(wanted.removesuffix('Gi')), max(1, half))}Gi"


def features(inputs: Inputs) -> dict[str, Any]:
    """Node features, which these generations have from 1.20 on."""
    name, section = next(iter(inputs.nodesets.items()))
    if inputs.number < (1, 20) or not section.features:
        return {}
    hosts = f"{name}-[0-{section.count - 1}]" if section.count > 1 else f"{name}-0"
    return {"workerFeatures": [{"name": one, "hostlistExpr": hosts} for one in section.features]}
