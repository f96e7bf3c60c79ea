"""Node groups of the managed Kubernetes cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.platforms.nebius.node_groups import NodeGroup, Repair
from components.nebius.cloud import Cloud
from components.nebius.resource import NebiusResource

BLOCK_BYTES = 4096
"""Bytes of a block of boot disks."""


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
    """What each change of a group waits for."""


class NodeGroups(pulumi.ComponentResource):
    """All node groups, by name."""

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
    """A group as Nebius's API takes it (mk8s.v1, NodeGroupSpec). The strategy is always complete."""
    strategy = group.strategy
    size = (
        {"autoscaling": {"min_node_count": group.between[0], "max_node_count": group.between[1]}}
        if group.between
        else {"fixed_node_count": group.count}
    )
    return {
        "version": args.cloud.settings.kubernetes.version,
        **size,
        "strategy": {
            "max_unavailable": {"count": strategy.unavailable},
            "max_surge": {"count": strategy.surge},
            "drain_timeout": f"{strategy.drain_seconds}s",
        },
        **({"auto_repair": {"conditions": [_repair(one) for one in group.repairs]}} if group.repairs else {}),
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


def _repair(rule: Repair) -> dict[str, Any]:
    limit = {"disabled": True} if rule.seconds is None else {"timeout": f"{rule.seconds}s"}
    return {"type": rule.condition, "status": rule.status, **limit}
