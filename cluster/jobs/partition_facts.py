"""Facts about partitions for jobs' requests: names, sizes, GPUs and fabric of their nodes."""

from dataclasses import dataclass

from cluster.catalog import Gpu, MachineType
from cluster.catalog.fabrics import Fabric
from cluster.config.cluster import ClusterConfig
from cluster.config.validators import minutes
from cluster.roster import node_names, nodeset_gpu, nodeset_type, sizes


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """The nodes of one machine type, with the same GPUs, in a partition."""

    name: str
    """The partition's."""
    default: bool
    exclusive: bool
    """True if every job gets whole nodes."""
    nodes: tuple[str, ...]
    """NodeNames, in order."""
    machine_type: MachineType
    fabric: Fabric
    gpu: Gpu | None
    """GPUs of each node, its own or attached."""
    cpus: int
    """Logical processors of each node, as slurm.conf has them."""
    memory_mib: int
    """MiB of each node that jobs can have."""
    max_time: str
    """Longest run time, as slurm.conf has it: 24:00:00, INFINITE."""

    def time_limit(self, wanted: int) -> int:
        """Return a time limit in minutes: `wanted`, or the partition's longest run time if that is less."""
        return max(1, int(min(wanted, minutes(self.max_time))))


def partition_facts(config: ClusterConfig) -> tuple[PartitionFacts, ...]:
    """Return facts for each partition and kind of node: the default partition first, then in the file's order."""
    found: list[PartitionFacts] = []
    for name, partition in config.partitions.items():
        kinds: dict[tuple[str, Gpu | None], list[str]] = {}
        for nodeset in partition.nodesets:
            section = config.nodesets[nodeset]
            kinds.setdefault((nodeset_type(config, section).name, nodeset_gpu(config, section)), []).append(nodeset)
        for (_, gpu), nodesets in kinds.items():
            sections = [config.nodesets[nodeset] for nodeset in nodesets]
            kind, every = nodeset_type(config, sections[0]), [sizes(config, section) for section in sections]
            found.append(
                PartitionFacts(
                    name=name,
                    default=partition.default,
                    exclusive=partition.exclusive,
                    nodes=tuple(node for nodeset in nodesets for node in node_names(config, nodeset)),
                    machine_type=kind,
                    fabric=kind.family.fabric,
                    gpu=gpu,
                    cpus=min(size.cpus for size in every),
                    memory_mib=min(size.memory - size.reserved for size in every),
                    max_time=partition.max_time,
                )
            )
    return tuple(sorted(found, key=lambda row: not row.default))
