"""Settings of nodes' health checks, with the config version: what each kind of node must have, and limits."""

from dataclasses import replace
from typing import Any

from cluster.catalog.nccl import (
    COLLECTIVE,
    NVLINKS,
    PAIR_COLLECTIVE,
    PAIR_LARGEST,
    PAIR_SMALLEST,
    min_busbw,
    min_pair_busbw,
)
from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Nodeset
from cluster.config.slurm import FabricTest, NcclTest, NetworkTest
from cluster.jobs.nccl import LOGS, NcclRun, launcher, run_script, tests_folder
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.people import admits_root
from cluster.roster import node_names, nodeset_gpu, nodeset_type
from cluster.slurm.power_saving import elastic_nodesets, repaired_nodesets
from scripts.node.health.kinds import Health, HealthNodes, nodeset_key


def health(config: ClusterConfig) -> Health | None:
    """The settings, as scripts/node/health takes them; None for a cluster without health checks."""
    wanted = config.slurm.health
    if wanted is None:
        return None
    found: Health = {
        "drain": wanted.drain,
        "requeue": wanted.requeue,
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
            nodeset_key(names[0]): _nodes(config, section)
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


SMALLEST, LARGEST = "512M", "8G"
"""Sizes that the catalog's references of one node are for."""


def measurements(config: ClusterConfig) -> dict[str, Any] | None:
    """Standard input's part `measure` of the controller's set-up (scripts/node/health/measure.py); None without any."""
    wanted = config.slurm.health
    found: dict[str, Any] = {}
    if wanted and wanted.network:
        found["network"] = _network(config, wanted.network)
    if wanted and wanted.diag:
        found["diag"] = {
            "hours": wanted.diag.every_hours,
            "minutes": wanted.diag.minutes,
            "level": wanted.diag.level,
            "partitions": [
                {"partition": row.name, "nodes": list(row.nodes)} for row in _each_node_once(config) if row.gpu
            ],
        }
    if wanted and wanted.nccl:
        found["nccl"] = _nccl(config, wanted.nccl, nodes=1)
    if wanted and wanted.fabric:
        found["fabric"] = _nccl(config, wanted.fabric, nodes=2)
    elif wanted and (elastic_nodesets(config) or repaired_nodesets(config)):
        # Never due: what the reconcile loop returns to jobs passes it (scripts/node/health/acceptance.py).
        gate: dict[str, Any] = {**_nccl(config, FabricTest(), nodes=2), "hours": 0}
        gate["partitions"] = [part for part in gate["partitions"] if part["over_fabric"]]
        found |= {"fabric": gate} if gate["partitions"] else {}
    return found or None


def _network(config: ClusterConfig, wanted: NetworkTest) -> dict[str, Any]:
    nodes: dict[str, list[str]] = {}
    for row in _each_node_once(config):
        nodes.setdefault(row.name, []).extend(row.nodes)
    return {
        "hours": wanted.every_hours,
        "seconds": wanted.seconds,
        "mbps": wanted.min_mbps or 0,
        "partitions": [{"partition": name, "nodes": names} for name, names in nodes.items()],
    }


def _nccl(config: ClusterConfig, wanted: NcclTest, *, nodes: int) -> dict[str, Any]:
    """The NCCL test of one node, over NVLink, or of pairs, over the network of the GPUs."""
    user = wanted.user or next((user.name for user in config.users), "root")
    alone = nodes == 1
    run: dict[str, Any] = {
        "nodes": nodes,
        "collective": COLLECTIVE if alone else PAIR_COLLECTIVE,
        "smallest": SMALLEST if alone else PAIR_SMALLEST,
        "largest": LARGEST if alone else PAIR_LARGEST,
    }
    least = min_busbw if alone else min_pair_busbw
    return {
        "hours": wanted.every_hours,
        "minutes": wanted.minutes,
        "user": user,
        "partitions": [
            {
                "partition": row.name,
                "nodes": list(row.nodes),
                "busbw_gbps": wanted.min_busbw_gbps or least(row.machine_type.name),
                "script": run_script(config, NcclRun(partition=row, **run)).text(),
                "log": f"{LOGS}/%j.log",
                "built": "" if launcher(config) == "installed" else tests_folder(row.fabric.container),
                "over_fabric": bool(row.fabric.nics),
            }
            for row in _each_node_once(config)
            if row.gpu
        ],
    }


def _each_node_once(config: ClusterConfig) -> list[PartitionFacts]:
    """Partitions with their nodes; nodes that an earlier one has are left out. Those that are open to every account
    come first, since slurmctld refuses root's jobs in the others, then the default one."""
    found: list[PartitionFacts] = []
    seen: set[str] = set()
    for row in sorted(partition_facts(config), key=lambda row: not admits_root(config.partitions[row.name])):
        if left := tuple(name for name in row.nodes if name not in seen):
            found.append(replace(row, nodes=left))
            seen |= set(left)
    return found
