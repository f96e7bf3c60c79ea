"""The input of the warm-up of nodes (scripts/node/jobs/warm_up.py), on `up` and on demand."""

from collections.abc import Collection
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.config.slurm import WarmUp
from cluster.jobs.partition_facts import partition_facts
from cluster.people import admits_root

_CPUS, _MEMORY_MIB = 4, 16_384
"""Resources of a job that downloads images, at most. enroot compresses them with all CPUs of the job."""


def warm_up(config: ClusterConfig, section: WarmUp, *, only: Collection[str] | None = None) -> dict[str, Any]:
    """Return the input of a warm-up of the nodes in `only`, or of all nodes of the section's partitions: images,
    seconds for all of it, and partitions with options of srun and whether rxdm's prolog runs there."""
    rxdm = config.slurm.rxdm.partitions if config.slurm.rxdm else ()
    partitions = [
        {
            "name": row.name,
            "nodes": [node for node in row.nodes if only is None or node in only],
            "others": [node for node in row.nodes if only is not None and node not in only],
            "rxdm": row.name in rxdm,
            "options": [
                f"--partition={row.name}",
                f"--cpus-per-task={min(_CPUS, row.cpus)}",
                f"--mem={min(_MEMORY_MIB, row.memory_mib // 2)}M",
                f"--time={row.time_limit(section.seconds // 60 + 2)}",
            ],
        }
        for row in partition_facts(config)
        if not section.partitions or row.name in section.partitions
    ]
    # A node of several partitions is warmed in the first of them, so those with rxdm come first.
    partitions.sort(key=lambda part: (not admits_root(config.partitions[part["name"]]), not part["rxdm"]))
    return {
        "images": list(section.containers),
        "seconds": section.seconds,
        "partitions": [part for part in partitions if part["nodes"]],
    }
