"""Settings of nodes' health checks, with the config version: what each kind of node must have, and limits."""

from cluster.catalog.nccl import NVLINKS
from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Nodeset
from cluster.roster import node_names, nodeset_gpu, nodeset_type
from scripts.node.health.kinds import Health, HealthNodes, key


def health(config: ClusterConfig) -> Health | None:
    """The settings, as scripts/node/health takes them; None for a cluster without health checks."""
    wanted = config.slurm.health
    if wanted is None:
        return None
    found: Health = {
        "drain": wanted.drain,
        "resume_after": wanted.resume_after,
        "skip": list(wanted.skip),
        "seconds": wanted.timeout_seconds,
        "epilog": wanted.epilog,
        "limits": {
            "disk_free_percent": wanted.disk_free_percent,
            "clock_seconds": wanted.clock_seconds,
            "ecc_errors": wanted.ecc_errors,
            "nvlink_errors": wanted.nvlink_errors,
            "nic_mbps": wanted.nic_mbps or 0,
        },
        "nodes": {
            key(names[0]): _nodes(config, section)
            for name, section in config.nodesets.items()
            if (names := node_names(config, name))
        },
    }
    return found


def _nodes(config: ClusterConfig, section: Nodeset) -> HealthNodes:
    kind, gpu = nodeset_type(config, section), nodeset_gpu(config, section)
    fabric = kind.family.fabric
    return {
        "gpus": gpu.count if gpu else 0,
        "nvlinks": NVLINKS.get((gpu.type, gpu.count), 0) if gpu else 0,
        "nics": [*fabric.host_nics, *fabric.nic_names] if fabric.nic_names else [],
        "nic_count": len(fabric.host_nics) + fabric.nics,
        "apertures": fabric.apertures,
        "local_ssds": kind.family.local_ssds,
    }
