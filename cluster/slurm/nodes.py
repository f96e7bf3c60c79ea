"""Node and partition lines of slurm.conf."""

from collections.abc import Mapping

from cluster.catalog.parameters import NODE, PARTITION
from cluster.config.cluster import ClusterConfig
from cluster.config.metadata import Value, slurm_settings
from cluster.config.partitions import Partition
from cluster.roster import node_names, nodeset_gpu, sizes
from cluster.slurm import hostlist
from cluster.slurm.text import assignments, overridden

_FIRST = (
    "PartitionName",
    "Nodes",
    "Default",
    "State",
    "MaxTime",
    "DefaultTime",
    "DefMemPerCPU",
    "MaxMemPerCPU",
    "DefCPUPerGPU",
    "MinNodes",
    "MaxNodes",
    "OverSubscribe",
)
"""Order of a PartitionName line's parameters, as on clusters that are up; others follow in the order of the fields."""


def node_lines(config: ClusterConfig, addresses: Mapping[str, str] | None) -> list[str]:
    """One NodeName line and one NodeSet line for each nodeset: its nodes are alike."""
    lines: list[str] = []
    for name, section in config.nodesets.items():
        size, gpu = sizes(config, section), nodeset_gpu(config, section)
        names = node_names(config, name)
        nodes = hostlist.compress(names)
        settings: dict[str, Value] = {
            "NodeName": nodes,
            "NodeAddr": hostlist.compress(addresses[one] for one in names) if addresses else None,
            "CPUs": size.cpus,
            "Sockets": size.sockets,
            "CoresPerSocket": size.cores,
            "ThreadsPerCore": size.threads,
            "RealMemory": size.memory,
            "Gres": f"gpu:{gpu.type}:{gpu.count}" if gpu else None,
            **slurm_settings(section),
            "State": "UNKNOWN",
        }
        lines.append(" ".join(assignments(overridden(settings, section.node_conf, NODE))))
        lines.append(f"NodeSet={name} Nodes={nodes}")
    return lines


def memory_per_cpu(config: ClusterConfig, partition: Partition) -> int:
    """MiB for each CPU, so that a job on all CPUs of a node gets all it can have: the smallest over the nodesets.

    Without it, a job that asks for no memory would get all of a node's, and be alone there.
    """
    every = [sizes(config, config.nodesets[name]) for name in partition.nodesets]
    return max(1, min((size.memory - size.reserved) // size.cpus for size in every))


def cpus_per_gpu(config: ClusterConfig, partition: Partition) -> int | None:
    """CPUs for each GPU of a job that asks for none: a node's by its share, the smallest over the nodesets with GPUs.

    None where no node has GPUs, or more GPUs than CPUs, or the whole cluster has a value of the user's own.
    """
    if "defcpupergpu" in {name.lower() for name in config.slurm.extra}:
        return None
    every = [
        sizes(config, section).cpus // gpu.count
        for section in (config.nodesets[name] for name in partition.nodesets)
        if (gpu := nodeset_gpu(config, section))
    ]
    return min(every, default=0) or None


def partition_lines(config: ClusterConfig) -> list[str]:
    return [" ".join(assignments(partition_settings(config, name))) for name in config.partitions]


def partition_settings(config: ClusterConfig, name: str) -> dict[str, Value]:
    """Parameter and value of one partition's line, in order."""
    part = config.partitions[name]
    settings: dict[str, Value] = {
        **dict.fromkeys(_FIRST),
        **slurm_settings(part),
        "PartitionName": name,
        "State": "UP",
        "DefMemPerCPU": part.def_mem_per_cpu or memory_per_cpu(config, part),
        "DefCPUPerGPU": cpus_per_gpu(config, part),
    }
    return overridden(settings, part.conf, PARTITION)
