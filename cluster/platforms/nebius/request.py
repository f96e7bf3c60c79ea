"""The quantities that a stack requests of Nebius: as lines below a preview, and for the checks of `up`."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.catalog.nebius_machine_types import PLATFORMS, preset_of
from cluster.config.cluster import ClusterConfig
from cluster.platform_interface import ClusterPlaces
from cluster.platforms.nebius.node_groups import NodeGroup, node_groups
from cluster.platforms.nebius.stack_file_fields import Nebius, backs_up, settings_of
from cluster.platforms.nebius.versions import SLURM

WIDTH = 110
"""Characters of a line below a preview."""


def describe_request(config: ClusterConfig) -> list[str]:
    """Return the lines below a preview: one for each role and nodeset, then storage, quotas and versions."""
    settings = settings_of(config)
    groups, version = node_groups(config, settings), settings.soperator.version
    software = f"Soperator {version} (Slurm {SLURM}) on Kubernetes {settings.kubernetes.version}"
    return [
        *_machines(config, groups),
        *_storage(config, settings, groups),
        *_quotas(config, settings, groups),
        f"{software} in {settings.region}; login by {_login(settings)}",
    ]


def places(config: ClusterConfig) -> ClusterPlaces:
    """Return the subnet, and the file systems that users see on all login and worker pods."""
    settings = settings_of(config)
    systems = {"/": settings.filesystems.jail, **{row.mount: row for row in settings.filesystems.submounts.values()}}
    mounts = {
        path: f"file system of {_size(row.spec.size_gib)}" if row.spec else f"file system {row.existing}"
        for path, row in systems.items()
    }
    name = {None: "default", "create": "its own"}.get(settings.subnet, settings.subnet)
    return ClusterPlaces(network=f"subnet: {name}", mounts=mounts)


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
            f"{count} x {first.machine_type}: nodeset {name}{split}, {_provisioning(first)}; "
            f"{most}{section.most * preset.vcpus} CPUs{gpus}"
        )


def _provisioning(group: NodeGroup) -> str:
    """Return how a group gets its nodes."""
    if group.preemptible:
        return "preemptible"
    if group.reservation:
        return f"from {group.reservation}"
    return "on demand" if group.policy == "FORBID" else "on demand, or from a capacity block"


def _storage(config: ClusterConfig, settings: Nebius, groups: tuple[NodeGroup, ...]) -> Iterator[str]:
    sections = {path[-1]: section for path, section in settings.filesystems.members().items()}
    created = {name: section.spec.size_gib for name, section in sections.items() if section.spec}
    existing = [name for name, section in sections.items() if section.existing]
    if created:
        listed = ", ".join(f"{name} {_size(size)}" for name, size in created.items())
        kept = "kept by destroy" if config.deletion_protection else "deleted by destroy"
        yield f"file systems: {_size(sum(created.values()))} ({listed}); {kept}"
    if backs_up(settings):
        kept = "kept by destroy" if config.deletion_protection else "deleted by destroy with every backup in it"
        yield f"backups: a bucket; {kept}"
    if existing:
        yield f"file systems that exist, and stay as they are: {', '.join(existing)}"
    boot_disks = sum(group.most * group.disk_gib for group in groups)
    disks = Counter({"network-ssd": boot_disks + monitoring_gib(config)})
    for name, workers in settings.workers.items():
        if name in config.nodesets:
            for disk in (*workers.local_disks.values(), *filter(None, [workers.image_disk])):
                disks[disk.type] += config.nodesets[name].most * disk.size_gib
    yield "disks: " + ", ".join(f"{_size(size)} of {kind}" for kind, size in sorted(disks.items()))


def monitoring_gib(config: ClusterConfig) -> int:
    """Return the GiB of the disks of metrics and of logs."""
    return 2 * config.monitoring.disk_gb if config.monitoring else 0


def _quotas(config: ClusterConfig, settings: Nebius, groups: tuple[NodeGroup, ...]) -> list[str]:
    """Return the lines of the quotas that `up` asks for, with all elastic nodes."""
    needed = _quotas_needed(config, settings, groups, elastic=True)
    amounts = (f"{name} {_size(count // _GIB) if '.size.' in name else count}" for name, count in needed.items())
    line = f"quotas that must have room: {', '.join(amounts)}"
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _fabrics(settings: Nebius) -> list[str]:
    """Return the fabrics on which the stack creates GPU clusters."""
    infinibands = [workers.infiniband for workers in settings.workers.values() if workers.infiniband]
    return sorted({infiniband.fabric for infiniband in infinibands if infiniband.fabric})


def _login(settings: Nebius) -> str:
    if settings.login.service == "NodePort":
        return "port 30022 of the login nodes"
    return "a public address" if settings.login.exposure == "public" else "an address of the subnet"


def _size(gib: int) -> str:
    return f"{gib / 1024:.4g} TiB" if gib >= 1024 else f"{gib} GiB"


_GIB = 1 << 30
AVAILABILITIES: Mapping[str, str] = {"AUTO": "reserved+on_demand", "FORBID": "on_demand", "STRICT": "reserved"}
"""Nebius's availabilities (capacity/v1, ResourceAdviceStatus) of nodes by policy of a node group, joined by +; that of
preemptible nodes is `preemptible`."""


def request(config: ClusterConfig, settings: Nebius) -> dict[str, Any]:
    """Return the request for the checks of `up`, as plain JSON."""
    groups = node_groups(config, settings)
    most = {"most": _quotas_needed(config, settings, groups, elastic=True)}
    images = {(group.platform, group.os, group.drivers_preset) for group in groups}
    return {
        "kubernetes": settings.kubernetes.version,
        "images": [
            {"platform": platform, "os": os, "drivers_preset": preset} for platform, os, preset in sorted(images)
        ],
        "quotas": _quotas_needed(config, settings, groups),
        **(most if any(section.elastic for section in config.nodesets.values()) else {}),
        "nodes": _nodes_needed(settings, groups),
    }


def gpu_quota(platform: str) -> str:
    """Return the name of the quota of a platform's GPUs.

    GPUs of preemptible nodes and of a capacity block that a node group names do not count against it. Without a policy
    (AUTO) Nebius gives nodes on demand where no capacity block has any, and those count. Source: descriptions of the
    quotas in `nebius quotas quota-allowance list`, as public programs read them (2026-11).
    """
    return f"compute.instance.gpu.{platform.split('-')[1]}"


def initial_count(group: NodeGroup) -> int:
    """Return the number of nodes that a group is created with."""
    return group.between[0] if group.between else group.count or 0


def _quotas_needed(
    config: ClusterConfig, settings: Nebius, groups: tuple[NodeGroup, ...], *, elastic: bool = False
) -> dict[str, int]:
    """Return how much of each quota the stack uses at its creation, or with all elastic nodes if `elastic`."""
    needed = Counter({"mk8s.cluster.count": 1, "compute.disk.size.network-ssd": monitoring_gib(config) * _GIB})
    for group in groups:
        preset = preset_of(group.machine_type)
        count = group.most if elastic and group.role == "worker" else initial_count(group)
        needed["compute.instance.count"] += count
        needed["compute.disk.size.network-ssd"] += count * group.disk_gib * _GIB
        if not preset.gpus:
            needed["compute.instance.non-gpu.vcpu"] += count * preset.vcpus
        elif group.policy != "STRICT" and not group.preemptible:
            needed[gpu_quota(group.platform)] += count * preset.gpus
        if group.preemptible:
            needed["compute.instance.preemptible.count"] += count
    needed["compute.gpucluster.count"] = len(_fabrics(settings))
    for filesystem in settings.filesystems.members().values():
        if filesystem.spec:
            needed["compute.filesystem.count"] += 1
            needed["compute.filesystem.size.network-ssd"] += filesystem.spec.size_gib * _GIB
    return dict(sorted((+needed).items()))


def _nodes_needed(settings: Nebius, groups: tuple[NodeGroup, ...]) -> list[dict[str, Any]]:
    nodes, most = Counter[tuple[str, str, str, str]](), Counter[tuple[str, str, str, str]]()
    for group in groups:
        infiniband = settings.workers[group.nodeset].infiniband if group.in_gpu_cluster else None
        ways = "preemptible" if group.preemptible else AVAILABILITIES[group.policy]
        fabric = (infiniband.fabric if infiniband else None) or ""
        key = group.platform, group.preset, fabric, ways
        nodes[key] += initial_count(group)
        most[key] += group.most
    names = ("platform", "preset", "fabric", "ways")
    return [
        {**dict(zip(names, key, strict=True)), "count": count, "most": most[key]}
        for key, count in sorted(nodes.items())
    ]
