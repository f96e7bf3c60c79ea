"""Sizes of what serves the whole cluster, by its number of workers: fixed limits end in OOM on large clusters.

Source: nebius-solutions-library, soperator/modules/sizing_tier/main.tf of 2026 (component_presets).
"""

from dataclasses import dataclass

from cluster.platforms.nebius.machine_types import GIB, Resources, allocatable, preset_of
from cluster.platforms.nebius.releases.inputs import Inputs


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Sizes for clusters of less than some workers."""

    below: int
    """Workers that a cluster of the tier has less than."""
    rest: Resources
    """Each of the two slurmrestd."""
    operator: Resources
    """Soperator itself."""
    checks: Resources
    """soperatorchecks."""
    kruise: Resources
    """OpenKruise's manager."""


def _of(cpu: int, memory_gib: int, disk_mib: int = 0) -> Resources:
    return Resources(cpu=cpu * 1000, memory=memory_gib * GIB, disk=disk_mib)


_HALF = GIB // 2
TIERS = (
    Tier(
        below=10, rest=_of(2, 8, _HALF),
        operator=_of(1, 1), checks=_of(1, 1), kruise=_of(1, 2)),
    Tier(
        below=100, rest=_of(3, 12, _HALF),
        operator=_of(1, 1), checks=_of(1, 1), kruise=_of(1, 2)),
    Tier(
        below=500, rest=_of(6, 24, 2 * GIB),
        operator=_of(1, 2), checks=_of(1, 2), kruise=_of(2, 4)),
    Tier(
        below=2000, rest=_of(12, 64, 5 * GIB),
        operator=_of(1, 3), checks=_of(1, 4), kruise=_of(3, 8)),
)  # fmt: skip
"""Smallest clusters first. More workers than the last has no cluster of Soperator (MaxNodeCount)."""


def tier(inputs: Inputs) -> Tier:
    """The sizes for a cluster."""
    return next(one for one in TIERS if inputs.workers < one.below)


def on_system(inputs: Inputs, wanted: Resources) -> Resources:
    """What a pod of a system node gets: what it should have, and no more than such a node has for one pod."""
    group = inputs.settings.system
    preset = preset_of(group.machine_type)
    node = allocatable(preset.vcpus, preset.memory_gib, group.disk_gib)
    return Resources(
        cpu=min(wanted.cpu, node.cpu), memory=min(wanted.memory, node.memory), disk=min(wanted.disk, node.disk)
    )


def requests(size: Resources) -> dict[str, dict[str, str]]:
    """As Kubernetes has them: requested, with the memory as a limit."""
    given = size.quantities
    return {"requests": {"cpu": given["cpu"], "memory": given["memory"]}, "limits": {"memory": given["memory"]}}
