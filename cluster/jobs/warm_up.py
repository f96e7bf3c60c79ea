"""The input of the warm-up of nodes (scripts/node/jobs/warm_up.py), on `up` and on demand."""

import math
from collections.abc import Collection
from typing import TypedDict

from cluster.config.cluster import ClusterConfig
from cluster.config.slurm import WarmUp
from cluster.config.validators import minutes
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.people import admits_root

_CPUS, _MEMORY_MIB = 4, 16_384
"""Resources of a job that downloads images. enroot compresses them with all CPUs of the job."""
_SMALL_MIB = 256


class WarmPartition(TypedDict):
    """Nodes of a partition, and the request of a job that warms one of them."""

    name: str
    nodes: list[str]
    others: list[str]  # further nodes of the partition, for rxdm, which needs two nodes
    rxdm: bool  # whether A3 Mega's prolog runs there, for jobs on several nodes
    cpus: int
    memory: int  # MiB
    minutes: int | None  # the longest time limit of a job there; None: no limit


class Payload(TypedDict):
    """The input of a warm-up: container images for each node, and the time limit of all of it."""

    images: list[str]
    partitions: list[WarmPartition]
    seconds: int


def warm_up(config: ClusterConfig, section: WarmUp, *, only: Collection[str] | None = None) -> Payload:
    """Return the input of a warm-up of the nodes in `only`, or of all nodes of the section's partitions."""
    rxdm = config.slurm.rxdm.partitions if config.slurm.rxdm else ()
    parts: list[WarmPartition] = []
    for row in partition_facts(config):
        nodes = [node for node in row.nodes if only is None or node in only]
        if nodes and (not section.partitions or row.name in section.partitions):
            parts.append(_partition(row, nodes, rxdm=row.name in rxdm, images=bool(section.containers)))
    # A node of several partitions is warmed in the first of them, so those with rxdm come first.
    parts.sort(key=lambda part: (not admits_root(config.partitions[part["name"]]), not part["rxdm"]))
    return {"images": list(section.containers), "partitions": parts, "seconds": section.seconds}


def _partition(row: PartitionFacts, nodes: list[str], *, rxdm: bool, images: bool) -> WarmPartition:
    return {
        "name": row.name,
        "nodes": nodes,
        "others": [node for node in row.nodes if node not in nodes],
        "rxdm": rxdm,
        "cpus": min(_CPUS, row.cpus) if images else 1,
        "memory": min(_MEMORY_MIB, row.memory_mib // 2) if images else min(_SMALL_MIB, row.memory_mib),
        "minutes": None if math.isinf(longest := minutes(row.max_time)) else max(1, int(longest)),
    }
