"""Settings of nodes' health checks: the devices that each kind of node must have, limits and measurements."""

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
from cluster.config.nodesets import Nodeset
from cluster.config.slurm import FabricTest, NcclTest, NetworkTest
from cluster.jobs.nccl import LOGS, NcclRun, launcher, run_script, tests_folder
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.people import admits_root
from cluster.roster import node_names, nodeset_gpu, nodeset_type
from cluster.slurm.power_saving import elastic_nodesets, repaired_nodesets
from scripts.node.health.check_kinds import HealthNodes, HealthSettings, nodeset_key


def health(config: ClusterConfig) -> HealthSettings | None:
    """Return the settings for scripts/node/health; None for a cluster without health checks."""
    section = config.slurm.health
    if section is None:
        return None
    return {
        "drain": section.drain,
        "requeue": section.requeue,
        "resume_after": section.resume_after,
        "skip": list(section.skip),
        "seconds": section.timeout_seconds,
        "epilog": section.epilog,
        "limits": {
            "disk_free_percent": section.disk_free_percent,
            "clock_seconds": section.clock_seconds,
            "ecc_errors": section.ecc_errors,
            "nvlink_errors": section.nvlink_errors,
            "nic_mbps": section.nic_mbps or 0,
        },
        "nodes": {
            nodeset_key(names[0]): _nodes(config, nodeset)
            for name, nodeset in config.nodesets.items()
            if (names := node_names(config, name))
        },
    }


def _nodes(config: ClusterConfig, nodeset: Nodeset) -> HealthNodes:
    family, gpu = nodeset_type(config, nodeset).family, nodeset_gpu(config, nodeset)
    fabric = family.fabric
    links = NVLINKS.get((gpu.type, gpu.count)) if gpu else None
    return {
        "gpus": gpu.count if gpu else 0,
        "nvlinks": links.count if links else 0,
        "nvlink_gbps": links.gbps if links else 0,
        "nics": [*fabric.host_nics, *fabric.nic_names] if fabric.nic_names else [],
        "nic_count": len(fabric.host_nics) + fabric.nics,
        "apertures": fabric.apertures,
        "local_ssds": family.local_ssds,
    }


SMALLEST, LARGEST = "512M", "8G"
"""Message sizes of the catalog's references of one node."""


def measurements(config: ClusterConfig) -> dict[str, Any] | None:
    """Return the part `measure` of the controller's set-up (scripts/node/health/measure.py); None without any."""
    section = config.slurm.health
    if section is None:
        return None
    tests: dict[str, Any] = {}
    if section.network:
        tests["network"] = _network(config, section.network)
    if section.diag:
        tests["diag"] = {
            "hours": section.diag.every_hours,
            "minutes": section.diag.minutes,
            "level": section.diag.level,
            "partitions": [
                {"partition": row.name, "nodes": list(row.nodes)} for row in _each_node_once(config) if row.gpu
            ],
        }
    if section.nccl:
        tests["nccl"] = _nccl(config, section.nccl, nodes=1)
    if section.fabric:
        tests["fabric"] = _nccl(config, section.fabric, nodes=2)
    elif elastic_nodesets(config) or repaired_nodesets(config):
        # It has no schedule. Nodes must pass it before the reconcile loop returns them to jobs
        # (scripts/node/health/acceptance.py).
        acceptance: dict[str, Any] = {**_nccl(config, FabricTest(), nodes=2), "hours": 0}
        acceptance["partitions"] = [part for part in acceptance["partitions"] if part["over_fabric"]]
        tests |= {"fabric": acceptance} if acceptance["partitions"] else {}
    return tests or None


def _network(config: ClusterConfig, test: NetworkTest) -> dict[str, Any]:
    nodes: dict[str, list[str]] = {}
    for row in _each_node_once(config):
        nodes.setdefault(row.name, []).extend(row.nodes)
    return {
        "hours": test.every_hours,
        "seconds": test.seconds,
        "mbps": test.min_mbps or 0,
        "partitions": [{"partition": name, "nodes": names} for name, names in nodes.items()],
    }


def _nccl(config: ClusterConfig, test: NcclTest, *, nodes: int) -> dict[str, Any]:
    """Return the NCCL test of one node, over NVLink, or of pairs, over the network of the GPUs."""
    user = test.user or next((user.name for user in config.users), "root")
    alone = nodes == 1
    run: dict[str, Any] = {
        "nodes": nodes,
        "collective": COLLECTIVE if alone else PAIR_COLLECTIVE,
        "smallest": SMALLEST if alone else PAIR_SMALLEST,
        "largest": LARGEST if alone else PAIR_LARGEST,
    }
    least = min_busbw if alone else min_pair_busbw
    return {
        "hours": test.every_hours,
        "minutes": test.minutes,
        "user": user,
        "partitions": [
            {
                "partition": row.name,
                "nodes": list(row.nodes),
                "busbw_gbps": test.min_busbw_gbps or least(row.machine_type.name),
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
    """Return the partitions with their nodes, without nodes that an earlier one has. Partitions that admit root come
    first, since slurmctld refuses the jobs of root in the others, then the default one."""
    rows: list[PartitionFacts] = []
    earlier: set[str] = set()
    for row in sorted(partition_facts(config), key=lambda row: not admits_root(config.partitions[row.name])):
        if nodes := tuple(name for name in row.nodes if name not in earlier):
            rows.append(replace(row, nodes=nodes))
            earlier |= set(nodes)
    return rows
