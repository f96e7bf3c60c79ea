"""Clusters on Nebius for tests to vary: what a stack file gives, its configuration, its releases and node groups."""

from copy import deepcopy
from typing import Any

from cluster.config import ClusterConfig
from cluster.findings import Finding
from cluster.load import parse
from cluster.platforms.nebius.node_groups import NodeGroup, node_groups
from cluster.platforms.nebius.releases import ChartRelease, CloudFacts, releases
from cluster.platforms.nebius.stack_file_fields import settings_of as settings
from tests.cluster.stacks import findings_of

__all__ = ["settings"]
KEY = "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43
FACTS = CloudFacts(stack="nebius", root_keys=[f"{KEY} admin"], allocation="vpcallocation-e00one")
BACKUPS = {"name": "soperator-backups", "endpoint": "https://storage.eu-north1.nebius.cloud:443"}
BACKED_UP = CloudFacts(stack="nebius", root_keys=FACTS.root_keys, allocation=FACTS.allocation, backups=BACKUPS)
H100 = "gpu-h100-sxm/8gpu-128vcpu-1600gb"
ONE_GPU = "gpu-h100-sxm/1gpu-16vcpu-200gb"
CPU = "cpu-d3/16vcpu-64gb"
PLACE = {"tenant": "tenant-e00abc", "project": "project-e00abc", "region": "eu-north1"}
FABRIC = {"infiniband": {"fabric": "fabric-3"}}

Description = dict[str, Any]


def given(*, nebius: Description | None = None, **changes: Any) -> Description:
    """The description of a cluster of two nodes without GPUs; `nebius` is added to its section."""
    nodesets = changes.get("nodesets", {"worker": {"count": 2}})
    cluster = {
        "platform": "nebius", "name": "soperator", "nebius": {**PLACE, **(nebius or {})}, "nodesets": nodesets,
        "partitions": {"main": {"nodesets": [*nodesets], "default": True}},
    }  # fmt: skip
    return deepcopy({**cluster, **changes})


def gpus(
    machine_type: str = H100, count: int | dict[str, int] = 2, *, nebius: Description | None = None, **more: Any
) -> Description:
    """Keys of a cluster whose one nodeset has GPUs; nodes with all GPUs of a host are on a fabric."""
    workers = {} if machine_type == ONE_GPU else FABRIC
    nodesets = {"worker": {"machine_type": machine_type, "count": count, **more}}
    return {"nodesets": nodesets, "nebius": {"workers": {"worker": workers}, **(nebius or {})}}


def described(version: str = "4.1.7", nebius: Description | None = None, **changes: Any) -> Description:
    """A cluster of two H100 workers on a fabric, with some of its keys replaced."""
    section = {**(nebius or {}), "soperator": {"version": version, **(nebius or {}).get("soperator", {})}}
    return given(**{**gpus(nebius=section), **changes})


def config(described: Description) -> ClusterConfig:
    """The cluster of a description."""
    return parse({"hpc:cluster": described})


def nebius(**changes: Any) -> ClusterConfig:
    """A cluster on Nebius, with some of its keys replaced."""
    return config(given(**changes))


def findings(**changes: Any) -> dict[str, Finding]:
    """Return what is wrong with such a cluster, by place."""
    return findings_of({"hpc:cluster": given(**changes)})


def groups(cluster: ClusterConfig) -> tuple[NodeGroup, ...]:
    """Its node groups."""
    return node_groups(cluster, settings(cluster))


def releases_of(described: Description, facts: CloudFacts = BACKED_UP) -> dict[str, ChartRelease]:
    """Its releases by name, in order."""
    return {release.name: release for release in releases(config(described), facts)}


def submount(name: str, size_gib: int) -> Description:
    """A submount of the stack's own."""
    return {name: {"spec": {"size_gib": size_gib}, "mount": f"/{name}"}}


DISKS = {
    "local_disks": {"scratch": {"size_gib": 930, "mount": "/scratch"}},
    "image_disk": {"size_gib": 930},
}
CASES: dict[str, Description] = {
    "h100": described(nebius={"filesystems": {"submounts": submount("mlperf-sd", 2048)}}),
    # 64 workers in two nodesets of different GPUs, two login nodes, disks of the nodes, partitions and QOS.
    "large": described(
        nebius={
            "filesystems": {"submounts": submount("data", 4096)},
            "workers": {"h100": {**FABRIC, **DISKS}, "h200": {"infiniband": {"fabric": "fabric-7"}}},
            "health": {"scope": "prod_acceptance"},
        },
        login={"count": 2},
        nodesets={
            "h100": {"machine_type": H100, "count": 48, "features": ["h100", "scratch"]},
            "h200": {"machine_type": "gpu-h200-sxm/8gpu-128vcpu-1600gb", "count": 16, "node_conf": {"Weight": 10}},
        },
        partitions={
            "main": {"nodesets": ["h100"], "default": True, "max_time": "7-00:00:00", "priority_tier": 2},
            "h200": {"nodesets": ["h200"], "exclusive": True, "allow_accounts": ["ml"]},
        },
        accounting={
            "accounts": [{"name": "ml"}],
            "qos": [{"name": "low"}, {"name": "high", "priority": 100, "preempt": ["low"]}],
            "purge_after_months": 12,
        },
        slurm={"timers": {"min_job_age": 600, "kill_wait": 60}, "extra": {"MaxArraySize": 10001, "CompleteWait": 30}},
    ),
    "cpu": given(nodesets={"worker": {"count": 3}}),
}
"""By name."""
