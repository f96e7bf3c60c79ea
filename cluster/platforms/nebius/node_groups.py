"""The node groups of the managed Kubernetes cluster: system, controller, login, accounting, and each nodeset's.

All nodes of a group are alike. A nodeset with more nodes than a group can have is split; the last group has the rest.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from cluster.catalog.nebius_machine_types import preset_of
from cluster.config.cluster import ClusterConfig
from cluster.config.nodesets import Nodeset
from cluster.platforms.nebius.names import GPU, GROUP, JAIL_LABEL, NO_BALANCER_LABEL, NODESET_LABEL, NODESET_NAME_LABEL
from cluster.platforms.nebius.stack_file_fields import Filesystem, Nebius
from cluster.roster import nodeset_type

JAIL, SPOOL, ACCOUNTING = "jail", "controller-spool", "accounting"
"""Mount tags of file systems: their names on the nodes (virtiofs)."""
# The default size of each boot disk is also the smallest.
DISK_GIB = 128
"""With less there is no room for Kubernetes' own 48 GiB and for images."""
LOGIN_DISK_GIB = 256
"""Users' sessions, compilers and container images fill a smaller disk (nebius-solutions-library, variables.tf)."""
GPU_DISK_GIB = 512
"""Container images of several GB fill a smaller disk, and Soperator then drains the node."""
WORKER_PODS = 32
"""Most pods of a worker node, which runs one worker and DaemonSets."""
REPAIRS = (
    # Kubernetes would recreate a worker node at once. These are off, so that Soperator drains it first.
    ("Ready", "FALSE", None),
    ("Ready", "UNKNOWN", None),
    ("NebiusBootDiskIOError", "TRUE", None),
    ("NebiusGPUError", "TRUE", None),
    ("NebiusContainerRuntimeError", "TRUE", None),
    # Soperator sets it on a drained, idle node, and Kubernetes then recreates the node.
    ("HardwareIssuesSuspected", "TRUE", 1),
)
"""Rules of repair of worker nodes, as in NodeGroup.repairs."""


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """A node group of the cluster."""

    name: str
    role: str
    """system, controller, login, accounting or worker."""
    nodeset: str = ""
    """The nodeset of a worker group."""
    machine_type: str
    count: int | None = None
    """Number of nodes; None if it follows the number of pods."""
    between: tuple[int, int] | None = None
    """Fewest and most nodes of such a group."""
    disk_gib: int
    """GiB of the boot disk, a network-ssd."""
    tags: tuple[str, ...]
    """Mount tags of the attached file systems."""
    labels: Mapping[str, str]
    taints: Mapping[str, str] = field(default_factory=dict)
    """Values by key; all with the effect NO_SCHEDULE."""
    gpus: int = 0
    """GPUs of each node."""
    in_gpu_cluster: bool = False
    """True if its nodes join the GPU cluster of the nodeset."""
    drivers_preset: str = ""
    """NVIDIA's driver of the node image; empty if there is no GPU."""
    preemptible: bool = False
    """True if Nebius may take nodes back at any time."""
    policy: Literal["AUTO", "FORBID", "STRICT"] = "AUTO"
    """The use of capacity blocks: if there is one, never, or that of `reservation` alone."""
    reservation: str | None = None
    """Id of the capacity block group that nodes must come from."""
    unavailable: int = 1
    """Nodes that may be unavailable at the same time while the group changes."""
    repairs: tuple[tuple[str, str, int | None], ...] = ()
    """Rules by which Kubernetes recreates a node itself: a condition, its status (TRUE, FALSE or UNKNOWN), and the
    seconds after which the node is recreated; None turns the rule off."""
    max_pods: int | None = None
    os: str = "ubuntu24.04"
    """The operating system of images with cuda12.8 and later drivers (nebius/api 5101002, mk8s/v1/node_group.proto,
    NodeTemplate.os). `up` asks Nebius whether there is one for this cluster."""

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
        """The most nodes of the group."""
        return self.between[1] if self.between else self.count or 0


def submount_tag(name: str) -> str:
    """Return the mount tag of a submount."""
    return f"jail-submount-{name}"


def filesystems(settings: Nebius) -> dict[str, Filesystem]:
    """Return all file systems of the cluster, by mount tag."""
    return {
        submount_tag(path[1]) if path[1:] else path[0].replace("_", "-"): section
        for path, section in settings.filesystems.members().items()
    }


def split_nodes(nodes: int, most: int) -> list[int]:
    """Return the nodes of each group, of at most `most`: 16 by 3 are five groups of 3 and one of 1."""
    return [min(most, nodes - first) for first in range(0, nodes, most)]


def node_groups(config: ClusterConfig, settings: Nebius) -> tuple[NodeGroup, ...]:
    """Return all node groups of a cluster, in the order of their creation."""
    return (*service_groups(config, settings), *_workers(config, settings))


def service_groups(config: ClusterConfig, settings: Nebius) -> Iterator[NodeGroup]:
    """Yield the node groups that run no Slurm node."""
    shared = (JAIL, *map(submount_tag, settings.filesystems.submounts))
    system, accounting = settings.system, settings.accounting
    controller_type, controller_disk = config.controller.machine_type, config.controller.disk.size_gb or DISK_GIB
    login_type, login_disk = config.login.machine_type or controller_type, config.login.disk.size_gb or LOGIN_DISK_GIB
    for role, machine_type, count, disk_gib, tags in (
        ("system", system.machine_type, None, system.disk_gib, shared),
        ("controller", controller_type, 1, controller_disk, (SPOOL, *shared)),
        ("login", login_type, config.login.count, login_disk, shared),
        ("accounting", accounting.machine_type, 1, accounting.disk_gib, (ACCOUNTING, *shared)),
    ):
        yield NodeGroup(
            name=role,
            role=role,
            machine_type=machine_type,
            count=count,
            between=(system.min_nodes, system.max_nodes) if role == "system" else None,
            disk_gib=disk_gib,
            tags=tags,
            labels=_labels(role),
            taints={} if role == "system" else {NODESET_LABEL: role},
        )


def _workers(config: ClusterConfig, settings: Nebius) -> Iterator[NodeGroup]:
    tags = (JAIL, *map(submount_tag, settings.filesystems.submounts))
    for name, section in config.nodesets.items():
        extra = settings.workers_of(name)
        machine_type = section.machine_type or config.controller.machine_type
        gpus, capacity = preset_of(machine_type).gpus, section.ways[0] if section.capacity else None
        way = capacity.way if capacity else None
        for index, count in enumerate(split_nodes(section.most, extra.nodes_per_group)):
            # Static nodes are in the first groups.
            least = min(count, max(0, section.static - index * extra.nodes_per_group))
            yield NodeGroup(
                name=f"worker-{name}-{index}",
                role="worker",
                nodeset=name,
                machine_type=machine_type,
                count=count if least == count else None,
                between=None if least == count else (least, count),
                disk_gib=node_disk(config, section),
                tags=tags,
                labels=_labels("worker", name, gpus),
                taints={GPU: str(gpus)} if gpus else {},
                gpus=gpus,
                in_gpu_cluster=extra.infiniband is not None,
                drivers_preset=settings.gpu.drivers_preset if gpus else "",
                preemptible=way == "spot",
                # Without `capacity`, nodes come from a capacity block if the project has one.
                policy="FORBID" if way == "on_demand" else "STRICT" if way == "reservation" else "AUTO",
                reservation=capacity.reservation.name if capacity and capacity.reservation else None,
                unavailable=max(1, count * extra.max_unavailable_percent // 100),
                repairs=REPAIRS if settings.health.replace_nodes else (),
                max_pods=WORKER_PODS,
            )


def node_disk(config: ClusterConfig, section: Nodeset) -> int:
    """Return the GiB of the boot disk of a nodeset's nodes."""
    return section.disk.size_gb or smallest_node_disk(config, section)


def smallest_node_disk(config: ClusterConfig, section: Nodeset) -> int:
    """Return the GiB of the smallest boot disk that a nodeset's nodes can have."""
    return GPU_DISK_GIB if nodeset_type(config, section).gpu else DISK_GIB


def shape(config: ClusterConfig, settings: Nebius, nodeset: str) -> str:
    """Return a hash of the settings of a nodeset's nodes and pods, without their number. If it differs between two
    configurations, they are recreated, so they must have no jobs."""
    group = next(node_group for node_group in node_groups(config, settings) if node_group.nodeset == nodeset)
    workers = settings.workers_of(nodeset)
    mounts = [submount.mount for submount in settings.filesystems.submounts.values()]
    parts = (
        replace(group, name="", count=0, between=None, unavailable=1, repairs=()),
        (workers.infiniband, sorted(workers.local_disks.items()), workers.image_disk),
        (settings.kubernetes.version, settings.soperator.version, mounts),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _labels(role: str, nodeset: str = "", gpus: int = 0) -> dict[str, str]:
    return {
        NODESET_LABEL: role,
        **({NODESET_NAME_LABEL: nodeset} if nodeset else {}),
        f"{GROUP}/workload": "gpu" if gpus else "cpu",
        JAIL_LABEL: "true",
        **({"nebius.com/gpu": "true"} if gpus else {}),
        # Users' connections do not go through a worker, which may be unavailable. The recipe has the label as well.
        **({NO_BALANCER_LABEL: "true"} if role == "worker" else {}),
    }
