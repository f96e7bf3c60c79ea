"""Sizes of containers: those of Slurm's daemons, whose pods fill their nodes, and those that serve the whole cluster.

Source of the tiers: nebius-solutions-library, soperator/modules/sizing_tier/main.tf of 2026 (component_presets).
"""

from dataclasses import dataclass

from cluster.catalog.nebius_machine_types import (
    DAEMON_CPU,
    DAEMON_MEMORY,
    DAEMON_SETS,
    GIB,
    MUNGE,
    Resources,
    allocatable,
    preset_of,
    slurmd_resources,
)
from cluster.config.cluster import ClusterConfig
from cluster.platforms.nebius.node_groups import node_disk, service_groups
from cluster.platforms.nebius.stack_file_fields import Nebius, settings_of

MARIADB = Resources(cpu=2000, memory=12 * GIB, disk=16 * GIB)
# Source: nebius-solutions-library, soperator/modules/slurm/locals.tf.


def slurmd(config: ClusterConfig, nodeset: str) -> Resources:
    """Return the size of slurmd's container: its memory is RealMemory, and the least of all is DefMemPerNode."""
    section = config.nodesets[nodeset]
    return slurmd_resources(_node(section.machine_type or config.controller.machine_type, node_disk(config, section)))


def service(config: ClusterConfig, role: str, *others: Resources) -> Resources:
    """Return the size of the main container (slurmctld, sshd, slurmdbd) on the nodes of a service's group, beside munge
    and others."""
    group = next(group for group in service_groups(config, settings_of(config)) if group.role == role)
    return _rest(_node(group.machine_type, group.disk_gib), MUNGE, *others)


def _node(machine_type: str, disk_gib: int) -> Resources:
    preset = preset_of(machine_type)
    return allocatable(preset.vcpus, preset.memory_gib, disk_gib)


def _rest(node: Resources, *others: Resources) -> Resources:
    """Return the resources of a node less those of other containers, of OpenKruise's daemon and of DaemonSets; memory
    and disk in whole GiB."""
    others = (*others, DAEMON_SETS)
    cpu = node.cpu - DAEMON_CPU - sum(other.cpu for other in others)
    memory = node.memory - DAEMON_MEMORY - sum(other.memory for other in others)
    disk = node.disk - sum(other.disk for other in others)
    return Resources(cpu=max(0, cpu), memory=max(0, memory) // GIB * GIB, disk=max(0, disk) // GIB * GIB)


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Sizes of containers that serve the whole cluster: fixed limits end in OOM on large clusters."""

    below: int
    """The number of workers from which on the next tier holds."""
    rest: Resources
    """Each of the two pods of slurmrestd."""
    operator: Resources
    """Soperator itself."""
    checks: Resources
    """soperatorchecks."""
    kruise: Resources
    """OpenKruise's manager."""
    metrics: Resources
    """Each of the collector of metrics, their storage, and the storage of logs."""


def _of(cpu: int, memory_gib: int, disk_mib: int = 0) -> Resources:
    return Resources(cpu=cpu * 1000, memory=memory_gib * GIB, disk=disk_mib)


_HALF = GIB // 2
TIERS = (
    Tier(
        below=10, rest=_of(2, 8, _HALF), operator=_of(1, 1), checks=_of(1, 1), kruise=_of(1, 2),
        metrics=_of(1, 2),
    ),
    Tier(
        below=100, rest=_of(3, 12, _HALF), operator=_of(1, 1), checks=_of(1, 1), kruise=_of(1, 2),
        metrics=_of(1, 4),
    ),
    Tier(
        below=500, rest=_of(6, 24, 2 * GIB), operator=_of(1, 2), checks=_of(1, 2), kruise=_of(2, 4),
        metrics=_of(2, 8),
    ),
    Tier(
        below=2000, rest=_of(12, 64, 5 * GIB), operator=_of(1, 3), checks=_of(1, 4), kruise=_of(3, 8),
        metrics=_of(4, 16),
    ),
)  # fmt: skip
"""Smallest clusters first. No cluster of Soperator has more workers than the last (MaxNodeCount)."""


def tier(config: ClusterConfig) -> Tier:
    """Return the tier of a cluster, by its number of workers."""
    workers = sum(section.most for section in config.nodesets.values())
    return next(row for row in TIERS if workers < row.below)


def on_system(settings: Nebius, required: Resources) -> Resources:
    """Return the size of a pod of a system node: what it requires, limited to what such a node has for one pod."""
    node = _node(settings.system.machine_type, settings.system.disk_gib)
    return Resources(
        cpu=min(required.cpu, node.cpu), memory=min(required.memory, node.memory), disk=min(required.disk, node.disk)
    )
