"""Nodes: node groups of the managed Kubernetes cluster, GPU clusters of one InfiniBand fabric, NVIDIA's operators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.platforms.nebius.node_groups import NodeGroup
from components.nebius.resource import Cloud, NebiusResource, shortened

BLOCK_BYTES = 4096
"""Bytes of a block of boot disks."""
DRAIN_SECONDS = 600
"""Seconds that a node's pods have to end, which a PodDisruptionBudget may prevent."""


@dataclass(frozen=True, kw_only=True)
class NodeGroupsArgs:
    cloud: Cloud
    groups: Sequence[NodeGroup]
    cluster_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    filesystems: Mapping[str, pulumi.Input[str]]
    """Ids by mount tag."""
    gpu_clusters: Mapping[str, pulumi.Input[str]]
    """Ids by nodeset."""
    after: Sequence[pulumi.Resource] = field(default_factory=tuple)
    """Resources that each change of a group waits for."""


class NodeGroups(pulumi.ComponentResource):
    """The node groups of a cluster, by name."""

    of: Mapping[str, NebiusResource]

    def __init__(self, name: str, args: NodeGroupsArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:NodeGroups", name, {}, opts)
        self.of = {
            group.name: args.cloud.resource(
                "NodeGroup",
                f"{name}-{group.name}",
                spec(group, args),
                called=group.name,
                parent_id=args.cluster_id,
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.after)),
            )
            for group in args.groups
        }
        self.register_outputs({"ids": {group: made.id for group, made in self.of.items()}})


def spec(group: NodeGroup, args: NodeGroupsArgs) -> dict[str, Any]:
    """A group as Nebius's API takes it (mk8s.v1, NodeGroupSpec).

    The strategy is always complete: Nebius's defaults changed in 2026.
    """
    size = (
        {"autoscaling": {"min_node_count": group.between[0], "max_node_count": group.between[1]}}
        if group.between
        else {"fixed_node_count": group.count}
    )
    return {
        "version": args.cloud.settings.kubernetes.version,
        **size,
        "strategy": {
            "max_unavailable": {"count": group.unavailable},
            # Nodes more than the group's count: each counts against the quota.
            "max_surge": {"count": 0},
            "drain_timeout": f"{DRAIN_SECONDS}s",
        },
        **({"auto_repair": {"conditions": [_repair(*repair) for repair in group.repairs]}} if group.repairs else {}),
        "template": _template(group, args),
    }


def _template(group: NodeGroup, args: NodeGroupsArgs) -> dict[str, Any]:
    template: dict[str, Any] = {
        "metadata": {"labels": dict(group.labels)},
        "taints": [{"key": key, "value": value, "effect": "NO_SCHEDULE"} for key, value in group.taints.items()],
        "resources": {"platform": group.platform, "preset": group.preset},
        "boot_disk": {"type": "NETWORK_SSD", "size_gibibytes": group.disk_gib, "block_size_bytes": BLOCK_BYTES},
        "os": group.os,
        "network_interfaces": [_interface(group, args)],
        "filesystems": [
            {"attach_mode": "READ_WRITE", "mount_tag": tag, "existing_filesystem": {"id": args.filesystems[tag]}}
            for tag in group.tags
        ],
    }
    if group.in_gpu_cluster:
        template["gpu_cluster"] = {"id": args.gpu_clusters[group.nodeset]}
    if group.drivers_preset:
        template["gpu_settings"] = {"drivers_preset": group.drivers_preset}
    if group.preemptible:
        template["preemptible"] = {}
    if group.policy != "AUTO":
        named = {"reservation_ids": [group.reservation]} if group.reservation else {}
        template["reservation_policy"] = {"policy": group.policy, **named}
    if group.max_pods is not None:
        template["max_pods"] = group.max_pods
    return template


def _interface(group: NodeGroup, args: NodeGroupsArgs) -> dict[str, Any]:
    login = args.cloud.settings.login
    # A NodePort is reached at the address of its node.
    public = group.role == "login" and login.service == "NodePort" and login.exposure == "public"
    return {"subnet_id": args.subnet_id, **({"public_ip_address": {}} if public else {})}


def _repair(condition: str, status: str, seconds: int | None) -> dict[str, Any]:
    limit = {"disabled": True} if seconds is None else {"timeout": f"{seconds}s"}
    return {"type": condition, "status": status, **limit}


class GpuClusters(pulumi.ComponentResource):
    """A GPU cluster for each fabric that nodesets name, and those that were there before."""

    of: Mapping[str, pulumi.Output[str]]
    """Id of the GPU cluster of each nodeset that has one."""

    def __init__(self, name: str, cloud: Cloud, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:GpuClusters", name, {}, opts)
        wanted = {
            nodeset: workers.infiniband
            for nodeset, workers in cloud.settings.workers.items()
            if workers.infiniband is not None and nodeset in cloud.config.nodesets
        }
        made = {
            fabric: cloud.resource(
                "GpuCluster",
                f"{name}-{fabric}",
                {"infiniband_fabric": fabric},
                called=shortened(cloud.config.name, fabric),
                opts=pulumi.ResourceOptions(parent=self),
            ).id
            for fabric in dict.fromkeys(infiniband.fabric for infiniband in wanted.values() if infiniband.fabric)
        }
        self.of = {
            nodeset: made[one.fabric] if one.fabric else pulumi.Output.from_input(one.existing or "")
            for nodeset, one in wanted.items()
        }
        self.register_outputs({"ids": self.of})


NETWORK_OPERATOR = {"operator.resources.limits.cpu": "500m", "operator.resources.limits.memory": "1280Mi"}
"""Resources of the network operator: with its defaults it is killed on larger clusters (nebius-solutions-library)."""


class Operators(pulumi.ComponentResource):
    """The network operator and the GPU operator, which install drivers; node images with drivers need neither.

    Source: main.tf of nebius-solutions-library, soperator/installations/example (use_preinstalled_gpu_drivers).
    """

    ready: Sequence[pulumi.Resource] = ()

    def __init__(
        self,
        name: str,
        cloud: Cloud,
        cluster_id: pulumi.Input[str],
        *,
        gpus: bool,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`gpus`: whether any node has GPUs; without, there is no operator."""
        super().__init__("hpc:nebius:Operators", name, {}, opts)
        gpu = cloud.settings.gpu
        driver = {
            "driver.version": gpu.driver_version,
            "dcgmExporter.enabled": "true",
            "dcgmExporter.serviceMonitor.enabled": "false",
            "mig.strategy": "none",
        }
        operators = {"network-operator": NETWORK_OPERATOR, "gpu-operator": driver}
        for application, values in operators.items() if gpus and gpu.driver == "operator" else ():
            release = cloud.resource(
                "K8sRelease",
                f"{name}-{application}",
                {
                    "cluster_id": cluster_id,
                    "product_slug": f"nebius/nvidia-{application}",
                    "namespace": application,
                    "application_name": application,
                    "set": values,
                },
                opts=pulumi.ResourceOptions(parent=self, depends_on=[*(self.ready or after)]),
            )
            self.ready = (*self.ready, release)
        self.register_outputs({})
