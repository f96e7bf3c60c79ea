"""The node groups of the managed Kubernetes cluster: system, controller, login, accounting, and each nodeset's.

Nodes of a group differ in nothing. A nodeset of more nodes than a group can have is split: the last group has the rest.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from cluster.config.cluster import ClusterConfig
from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.machine_types import PLATFORMS, preset_of
from cluster.platforms.nebius.names import GPU, GROUP, JAIL_LABEL, NO_BALANCER_LABEL, NODESET_LABEL, NODESET_NAME_LABEL
from cluster.platforms.nebius.section import Filesystem, Nebius, Workers

JAIL, SPOOL, ACCOUNTING = "jail", "controller-spool", "accounting"
"""Mount tags of file systems: what nodes know them by (virtiofs)."""
WORKER_PODS = 32
"""Most pods of a worker node: one worker and the DaemonSets."""
REPAIRED_BY_OPERATOR = (
    ("Ready", "FALSE"),
    ("Ready", "UNKNOWN"),
    ("NebiusBootDiskIOError", "TRUE"),
    ("NebiusGPUError", "TRUE"),
    ("NebiusContainerRuntimeError", "TRUE"),
)
"""Conditions for which Kubernetes would recreate a worker node at once: Soperator drains it first, so they are off."""
REPAIR_ON = ("HardwareIssuesSuspected", "TRUE")
"""The condition that Soperator sets on a drained, idle node; Kubernetes then recreates it."""


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """A node group that must exist."""

    name: str
    role: str
    """system, controller, login, accounting or worker."""
    nodeset: str = ""
    """The nodeset of a worker group."""
    machine_type: str
    count: int | None = None
    """Nodes; None where Kubernetes makes as many as there are pods for."""
    between: tuple[int, int] | None = None
    """Fewest and most nodes of such a group."""
    disk_gib: int
    """GiB of the boot disk, a network-ssd."""
    tags: tuple[str, ...]
    """Mount tags of the file systems that are attached, for reading and writing."""
    labels: Mapping[str, str]
    taints: Mapping[str, str] = field(default_factory=dict)
    """Values by key; all with the effect NO_SCHEDULE."""
    gpus: int = 0
    """GPUs of each node."""
    in_gpu_cluster: bool = False
    """True if its nodes join the GPU cluster of the nodeset."""
    drivers_preset: str = ""
    """NVIDIA's driver that nodes boot with; empty where the GPU operator installs it, or there is no GPU."""
    preemptible: bool = False
    """True if Nebius may take nodes back at any time."""
    policy: Literal["AUTO", "FORBID", "STRICT"] = "AUTO"
    """The use of capacity blocks: if there is one, never, or from `reservation` alone."""
    reservation: str | None = None
    """Id of the capacity block group that nodes must come from."""
    unavailable: int = 1
    """Nodes that may be away at the same time while the group changes."""
    repairs: tuple[tuple[str, str, int | None], ...] = ()
    """Rules by which Kubernetes recreates a node itself: a condition, its status (TRUE, FALSE or UNKNOWN), and the
    seconds after which the node is recreated; None turns the rule off."""
    max_pods: int | None = None
    os: str

    @property
    def platform(self) -> str:
        """Nebius's platform, such as cpu-d3."""
        return self.machine_type.partition("/")[0]

    @property
    def preset(self) -> str:
        """The platform's preset, such as 8vcpu-32gb."""
        return self.machine_type.partition("/")[2]

    @property
    def most(self) -> int:
        """The most nodes that it has."""
        return self.between[1] if self.between else self.count or 0


def submount_tag(name: str) -> str:
    """Mount tag of a submount."""
    return f"jail-submount-{name}"


def filesystems(settings: Nebius) -> dict[str, Filesystem]:
    """Every file system of the cluster, by its mount tag."""
    return {
        submount_tag(path[1]) if path[1:] else path[0].replace("_", "-"): section
        for path, section in settings.filesystems.members().items()
    }


def split(nodes: int, most: int) -> list[int]:
    """Nodes of each group, where none has more than `most`: 16 by 3 are five groups of 3 and one of 1."""
    return [min(most, nodes - first) for first in range(0, nodes, most)]


def node_groups(config: ClusterConfig, settings: Nebius) -> tuple[NodeGroup, ...]:
    """Return all node groups of a cluster, in the order of their creation."""
    return (*_services(config, settings), *_workers(config, settings))


def _services(config: ClusterConfig, settings: Nebius) -> Iterator[NodeGroup]:
    shared = (JAIL, *map(submount_tag, settings.filesystems.submounts))
    system = settings.system
    yield NodeGroup(
        name="system",
        role="system",
        machine_type=system.machine_type,
        between=(system.min_nodes, system.max_nodes),
        disk_gib=system.disk_gib,
        tags=shared,
        labels=_labels("system"),
        os=node_os(settings, system.machine_type),
    )
    given = (
        ("controller", config.controller.machine_type, 1, sizing.controller_disk(config), (SPOOL, *shared)),
        (
            "login",
            config.login.machine_type or config.controller.machine_type,
            config.login.count,
            sizing.login_disk(config),
            shared,
        ),
        ("accounting", settings.accounting.machine_type, 1, settings.accounting.disk_gib, (ACCOUNTING, *shared)),
    )
    for role, machine_type, count, disk_gib, tags in given:
        if count:
            yield NodeGroup(
                name=role,
                role=role,
                machine_type=machine_type,
                count=count,
                disk_gib=disk_gib,
                tags=tags,
                labels=_labels(role),
                taints={NODESET_LABEL: role},
                os=node_os(settings, machine_type),
            )


def _workers(config: ClusterConfig, settings: Nebius) -> Iterator[NodeGroup]:
    tags = (JAIL, *map(submount_tag, settings.filesystems.submounts))
    for name, section in config.nodesets.items():
        extra = settings.workers.get(name) or Workers()
        machine_type = section.machine_type or config.controller.machine_type
        gpus, capacity = preset_of(machine_type).gpus, section.ways[0] if section.capacity else None
        way = capacity.way if capacity else None
        for index, count in enumerate(split(section.most, extra.nodes_per_group)):
            # Static nodes are in the first groups.
            least = min(count, max(0, section.static - index * extra.nodes_per_group))
            yield NodeGroup(
                name=f"worker-{name}-{index}",
                role="worker",
                nodeset=name,
                machine_type=machine_type,
                count=count if least == count else None,
                between=None if least == count else (least, count),
                disk_gib=sizing.node_disk(config, section),
                tags=tags,
                labels=_labels("worker", name, gpus),
                taints={GPU: str(gpus)} if gpus else {},
                gpus=gpus,
                in_gpu_cluster=extra.infiniband is not None,
                drivers_preset=settings.gpu.drivers_preset if gpus and settings.gpu.driver == "preinstalled" else "",
                preemptible=way == "spot",
                # Without `capacity`, nodes come from a capacity block where the project has one.
                policy="FORBID" if way == "on_demand" else "STRICT" if way == "reservation" else "AUTO",
                reservation=capacity.reservation.name if capacity and capacity.reservation else None,
                unavailable=max(1, count * extra.max_unavailable_percent // 100),
                repairs=_repairs(settings),
                max_pods=WORKER_PODS,
                os=node_os(settings, machine_type),
            )


def shape(config: ClusterConfig, settings: Nebius, nodeset: str) -> str:
    """A hash of what a nodeset's nodes and pods are made of, without their number: where it differs between two
    configurations they are recreated, so they have to be empty first."""
    group = next(node_group for node_group in node_groups(config, settings) if node_group.nodeset == nodeset)
    workers = settings.workers.get(nodeset) or Workers()
    gpu = (settings.gpu.driver, settings.gpu.driver_version) if group.gpus else ()
    mounts = [submount.mount for submount in settings.filesystems.submounts.values()]
    parts = (
        replace(group, name="", count=0, between=None, unavailable=1, repairs=()),
        (workers.infiniband, sorted(workers.local_disks.items()), workers.image_disk),
        (settings.kubernetes.version, settings.soperator.version, gpu, mounts),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _labels(role: str, nodeset: str = "", gpus: int = 0) -> dict[str, str]:
    return {
        NODESET_LABEL: role,
        **({NODESET_NAME_LABEL: nodeset} if nodeset else {}),
        f"{GROUP}/workload": "gpu" if gpus else "cpu",
        JAIL_LABEL: "true",
        **({"nebius.com/gpu": "true"} if gpus else {}),
        # Users' connections go to login nodes, and not through a worker that may be away; the recipe has it as well.
        **({NO_BALANCER_LABEL: "true"} if role == "worker" else {}),
    }


def _repairs(settings: Nebius) -> tuple[tuple[str, str, int | None], ...]:
    if not settings.health.replace_nodes:
        return ()
    return (*((condition, status, None) for condition, status in REPAIRED_BY_OPERATOR), (*REPAIR_ON, 1))


def node_os(settings: Nebius, machine_type: str) -> str:
    """Operating system of a group's nodes: what there is for Kubernetes' version, the platform and NVIDIA's driver.

    Source: nebius/api, mk8s/v1/node_group.proto, NodeTemplate.os.
    """
    platform = PLATFORMS[machine_type.partition("/")[0]]
    old = settings.kubernetes.version == "1.30" and "b200" not in platform.name
    older_driver = (
        settings.gpu.driver == "preinstalled"
        and platform.name in ("gpu-h100-sxm", "gpu-h200-sxm")
        and settings.gpu.drivers_preset in ("cuda12", "cuda12.4")
    )
    return "ubuntu22.04" if old or older_driver else "ubuntu24.04"
