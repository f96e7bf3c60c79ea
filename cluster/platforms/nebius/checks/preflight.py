"""What a stack needs of Nebius before anything is created: a version, node images, quotas, nodes. Pure functions.

Names of quotas: those that `nebius quotas quota-allowance list` prints. A GPU quota is that of a family, such as
compute.instance.gpu.h100 for gpu-h100-sxm, and counts on-demand nodes alone: nodes of a capacity block have the block's
room, and preemptible ones a quota of their own.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.platforms.nebius.checks import filesystems
from cluster.platforms.nebius.machine_types import preset_of
from cluster.platforms.nebius.node_groups import NodeGroup, node_groups
from cluster.platforms.nebius.section import Nebius

_GIB = 1 << 30
WAYS: Mapping[str, tuple[str, ...]] = {
    "AUTO": ("reserved", "on_demand"),
    "FORBID": ("on_demand",),
    "STRICT": ("reserved",),
}
"""By policy of a node group: which of Nebius's availabilities its nodes come from (capacity/v1, ResourceAdviceStatus).
Preemptible nodes have one of their own."""


def request(config: ClusterConfig, settings: Nebius) -> dict[str, Any]:
    """All of it, as plain JSON."""
    groups = node_groups(config, settings)
    images = {(one.platform, one.os, one.drivers_preset) for one in groups}
    return {
        "kubernetes": settings.kubernetes.version,
        "images": [
            {"platform": platform, "os": os, "drivers_preset": preset} for platform, os, preset in sorted(images)
        ],
        "quotas": dict(sorted(_quotas(settings, groups).items())),
        "nodes": _nodes(settings, groups),
    }


def least(group: NodeGroup) -> int:
    """The nodes that a group has at first."""
    return group.between[0] if group.between else group.count or 0


def _quotas(settings: Nebius, groups: tuple[NodeGroup, ...]) -> Counter[str]:
    found = Counter({"mk8s.cluster.count": 1})
    for one in groups:
        preset, count = preset_of(one.machine_type), least(one)
        found["compute.instance.count"] += count
        found["compute.disk.size.network-ssd"] += count * one.disk_gib * _GIB
        if not preset.gpus:
            found["compute.instance.non-gpu.vcpu"] += count * preset.vcpus
        elif one.policy == "FORBID" and not one.preemptible:
            found[f"compute.instance.gpu.{one.platform.split('-')[1]}"] += count * preset.gpus
    joined = [one.infiniband.fabric for one in settings.workers.values() if one.infiniband]
    found["compute.gpucluster.count"] = len({*joined} - {None})
    for _, one in filesystems(settings):
        if one.spec:
            found["compute.filesystem.count"] += 1
            found["compute.filesystem.size.network-ssd"] += one.spec.size_gib * _GIB
    return +found


def _nodes(settings: Nebius, groups: tuple[NodeGroup, ...]) -> list[dict[str, Any]]:
    """Nodes by machine type, fabric and availability."""
    found = Counter[tuple[str, str, str, str]]()
    for one in groups:
        infiniband = settings.workers[one.nodeset].infiniband if one.in_gpu_cluster else None
        ways = ("preemptible",) if one.preemptible else WAYS[one.policy]
        fabric = (infiniband.fabric if infiniband else None) or ""
        found[one.platform, one.preset, fabric, "+".join(ways)] += least(one)
    return [
        {"platform": platform, "preset": preset, "fabric": fabric, "ways": ways, "count": count}
        for (platform, preset, fabric, ways), count in sorted(found.items())
    ]
