"""The quantities that a stack asks Nebius for: lines below a preview; `up` compares them before it creates."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.platforms.base import Places
from cluster.platforms.nebius.machine_types import PLATFORMS, preset_of
from cluster.platforms.nebius.node_groups import NodeGroup, node_groups
from cluster.platforms.nebius.section import Nebius
from cluster.platforms.nebius.versions import series

_TIB = 1024
"""GiB."""


def describe_request(config: ClusterConfig) -> list[str]:
    """Lines below a preview: one for each role and nodeset, whatever its count."""
    settings = config.section(Nebius)
    if settings is None:
        return []
    groups = node_groups(config, settings)
    return [
        *_machines(config, groups),
        *_storage(config, settings, groups),
        *_quotas(settings, groups),
        _software(settings),
    ]


def places(config: ClusterConfig) -> Places:
    """The subnet and the file systems that users see on all login and worker pods."""
    settings = config.section(Nebius)
    if settings is None:
        return Places(network="", mounts={})
    systems = {"/": settings.filesystems.jail, **{one.mount: one for one in settings.filesystems.submounts.values()}}
    mounts = {
        path: f"file system of {_size(one.spec.size_gib)}" if one.spec else f"file system {one.existing}"
        for path, one in systems.items()
    }
    name = {None: "default", "create": "its own"}.get(settings.subnet, settings.subnet)
    return Places(network=f"subnet: {name}", mounts=mounts)


def _software(settings: Nebius) -> str:
    version = settings.soperator.version
    return (
        f"Soperator {version} (Slurm {series(version).slurm}) on Kubernetes {settings.kubernetes.version} in "
        f"{settings.region}; login by {_login(settings)}"
    )


def _machines(config: ClusterConfig, groups: tuple[NodeGroup, ...]) -> Iterator[str]:
    for group in groups:
        if group.role == "worker":
            continue
        count = f"{group.between[0]} to {group.between[1]}" if group.between else str(group.count)
        cpus = group.most * preset_of(group.machine_type).vcpus
        most = "at most " if group.between else ""
        yield f"{count} x {group.machine_type}: {group.role}; {most}{cpus} CPUs"
    for name, section in config.nodesets.items():
        own = [group for group in groups if group.nodeset == name]
        preset, first = preset_of(own[0].machine_type), own[0]
        count, most = (f"{section.static} to {section.most}", "at most ") if section.elastic else (section.most, "")
        gpus = f", {most}{section.most * preset.gpus} GPUs ({PLATFORMS[first.platform].gpu})" if preset.gpus else ""
        split = f" in {len(own)} node groups" if len(own) > 1 else ""
        yield (
            f"{count} x {first.machine_type}: nodeset {name}{split}, {_way(first)}; "
            f"{most}{section.most * preset.vcpus} CPUs{gpus}"
        )


def _way(group: NodeGroup) -> str:
    if group.preemptible:
        return "preemptible"
    if group.reservation:
        return f"from {group.reservation}"
    return "on demand" if group.policy == "FORBID" else "on demand, or from a capacity block"


def _storage(config: ClusterConfig, settings: Nebius, groups: tuple[NodeGroup, ...]) -> Iterator[str]:
    sections = {path[-1]: section for path, section in settings.filesystems.members().items()}
    made = [(name, section.spec.size_gib) for name, section in sections.items() if section.spec]
    there = [name for name, section in sections.items() if section.existing]
    if made:
        listed = ", ".join(f"{name} {_size(size)}" for name, size in made)
        kept = "kept by destroy" if config.deletion_protection else "deleted by destroy"
        yield f"file systems: {_size(sum(size for _, size in made))} ({listed}); {kept}"
    if there:
        yield f"file systems that exist, and stay as they are: {', '.join(there)}"
    disks = Counter({"network-ssd": sum(group.most * group.disk_gib for group in groups) + _kept(config)})
    for name, workers in settings.workers.items():
        if name in config.nodesets:
            for disk in (*workers.local_disks.values(), *filter(None, [workers.image_disk])):
                disks[disk.type] += config.nodesets[name].most * disk.size_gib
    yield "disks: " + ", ".join(f"{_size(size)} of {kind}" for kind, size in sorted(disks.items()))


def _kept(config: ClusterConfig) -> int:
    """GiB of the disks of metrics and of logs."""
    return 2 * config.monitoring.disk_gb if config.monitoring else 0


def _quotas(settings: Nebius, groups: tuple[NodeGroup, ...]) -> Iterator[str]:
    """Yield what counts: nodes of each platform at the most, groups, fabrics, addresses."""
    nodes = Counter[str]()
    for group in groups:
        nodes[group.platform] += group.most
    joined = [worker.infiniband for worker in settings.workers.values() if worker.infiniband]
    fabrics = sorted({infiniband.fabric for infiniband in joined if infiniband.fabric})
    parts = [
        *(f"{count} nodes of {platform}" for platform, count in sorted(nodes.items())),
        f"{len(groups)} node groups",
        *([f"GPU clusters on {', '.join(fabrics)}"] if fabrics else []),
        *(["1 public address"] if settings.login.service == "LoadBalancer" and _public(settings) else []),
    ]
    yield f"quotas that must have room: {', '.join(parts)}"


def _public(settings: Nebius) -> bool:
    return settings.login.exposure == "public"


def _login(settings: Nebius) -> str:
    if settings.login.service == "NodePort":
        return "port 30022 of the login nodes"
    return "a public address" if _public(settings) else "an address of the subnet"


def _size(gib: int) -> str:
    return f"{gib / _TIB:.4g} TiB" if gib >= _TIB else f"{gib} GiB"


_GIB = 1 << 30
WAYS: Mapping[str, tuple[str, ...]] = {
    "AUTO": ("reserved", "on_demand"),
    "FORBID": ("on_demand",),
    "STRICT": ("reserved",),
}
"""Nebius's availabilities that nodes come from, by policy of a node group (capacity/v1, ResourceAdviceStatus).
Preemptible nodes have one of their own."""


def request(config: ClusterConfig, settings: Nebius) -> dict[str, Any]:
    """Return all of it, as plain JSON."""
    groups = node_groups(config, settings)
    most = {"most": dict(sorted(_quotas_needed(config, settings, groups, elastic=True).items()))}
    images = {(group.platform, group.os, group.drivers_preset) for group in groups}
    return {
        "kubernetes": settings.kubernetes.version,
        "images": [
            {"platform": platform, "os": os, "drivers_preset": preset} for platform, os, preset in sorted(images)
        ],
        "quotas": dict(sorted(_quotas_needed(config, settings, groups).items())),
        **(most if any(section.elastic for section in config.nodesets.values()) else {}),
        "nodes": _nodes_needed(settings, groups),
    }


def initial_count(group: NodeGroup) -> int:
    """The nodes that a group has at first."""
    return group.between[0] if group.between else group.count or 0


def _quotas_needed(
    config: ClusterConfig, settings: Nebius, groups: tuple[NodeGroup, ...], *, elastic: bool = False
) -> Counter[str]:
    """Return what is created; with all elastic nodes if `elastic`."""
    found = Counter({"mk8s.cluster.count": 1, "compute.disk.size.network-ssd": _kept(config) * _GIB})
    for group in groups:
        preset = preset_of(group.machine_type)
        count = group.most if elastic and group.role == "worker" else initial_count(group)
        found["compute.instance.count"] += count
        found["compute.disk.size.network-ssd"] += count * group.disk_gib * _GIB
        if not preset.gpus:
            found["compute.instance.non-gpu.vcpu"] += count * preset.vcpus
        elif group.policy == "FORBID" and not group.preemptible:
            found[f"compute.instance.gpu.{group.platform.split('-')[1]}"] += count * preset.gpus
    joined = [worker.infiniband.fabric for worker in settings.workers.values() if worker.infiniband]
    found["compute.gpucluster.count"] = len({*joined} - {None})
    for filesystem in settings.filesystems.members().values():
        if filesystem.spec:
            found["compute.filesystem.count"] += 1
            found["compute.filesystem.size.network-ssd"] += filesystem.spec.size_gib * _GIB
    return +found


def _nodes_needed(settings: Nebius, groups: tuple[NodeGroup, ...]) -> list[dict[str, Any]]:
    found = Counter[tuple[str, str, str, str]]()
    for group in groups:
        infiniband = settings.workers[group.nodeset].infiniband if group.in_gpu_cluster else None
        ways = ("preemptible",) if group.preemptible else WAYS[group.policy]
        fabric = (infiniband.fabric if infiniband else None) or ""
        found[group.platform, group.preset, fabric, "+".join(ways)] += initial_count(group)
    return [
        {"platform": platform, "preset": preset, "fabric": fabric, "ways": ways, "count": count}
        for (platform, preset, fabric, ways), count in sorted(found.items())
    ]
