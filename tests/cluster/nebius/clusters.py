"""Clusters on Nebius, for tests of their releases."""

from typing import Any

from cluster.config import ClusterConfig
from cluster.load.parse import parse
from cluster.platforms.nebius.node_groups import NodeGroup, node_groups
from cluster.platforms.nebius.releases import Facts, Release, releases
from cluster.platforms.nebius.section import Nebius

KEY = "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43
FACTS = Facts(root_keys=[f"{KEY} admin"], allocation="vpcallocation-e00one")
H100 = "gpu-h100-sxm/8gpu-128vcpu-1600gb"
CPU = "cpu-d3/16vcpu-64gb"
PROJECT = {"tenant": "tenant-e00one", "project": "project-e00one", "region": "eu-north1"}
FABRIC = {"infiniband": {"fabric": "fabric-3"}}

Description = dict[str, Any]


def described(version: str = "4.1.7", nebius: Description | None = None, **changes: Any) -> Description:
    """A cluster of two H100 workers, with some of its keys replaced."""
    given = nebius or {}
    settings = {**PROJECT, "soperator": {"version": version, **given.pop("soperator", {})}, **given}
    return {
        "platform": "nebius",
        "name": "soperator",
        "nebius": {"workers": {"worker": FABRIC}, **settings},
        "nodesets": {"worker": {"machine_type": H100, "count": 2}},
        "partitions": {"main": {"nodesets": ["worker"], "default": True}},
        **changes,
    }


def cpu(version: str = "4.1.7", nebius: Description | None = None, **changes: Any) -> Description:
    """A cluster without GPUs."""
    given = {"workers": {}, **(nebius or {})}
    return described(version, given, **{"nodesets": {"worker": {"machine_type": CPU, "count": 3}}, **changes})


def _submount(name: str, size_gib: int) -> Description:
    return {name: {"spec": {"size_gib": size_gib}, "mount": f"/{name}"}}


def _large() -> Description:
    """64 workers in two nodesets of different GPUs, two login nodes, disks of the nodes, partitions and QOS."""
    disks = {
        "local_disks": {"scratch": {"size_gib": 930, "mount": "/scratch"}},
        "image_disk": {"size_gib": 930},
    }
    return described(
        nebius={
            "filesystems": {"submounts": _submount("data", 4096)},
            "workers": {"h100": {**FABRIC, **disks}, "h200": {"infiniband": {"fabric": "fabric-7"}}},
            "health": {"scope": "prod_acceptance"},
        },
        login={"count": 2},
        nodesets={
            "h100": {"machine_type": H100, "count": 48, "features": ["h100", "scratch"]},
            "h200": {"machine_type": "gpu-h200-sxm/8gpu-128vcpu-1600gb", "count": 16, "node_conf": {"Weight": 10}},
        },
        partitions={
            "main": {"nodesets": ["h100", "h200"], "default": True, "max_time": "7-00:00:00", "priority_tier": 2},
            "h200": {"nodesets": ["h200"], "exclusive": True, "allow_accounts": ["ml"]},
        },
        accounting={
            "accounts": [{"name": "ml"}],
            "qos": [{"name": "low"}, {"name": "high", "priority": 100, "preempt": ["low"]}],
            "purge_after_months": 12,
        },
        slurm={"timers": {"min_job_age": 600, "kill_wait": 60}, "extra": {"MaxArraySize": 10001, "CompleteWait": 30}},
    )


CASES: dict[str, Description] = {
    "h100": described(nebius={"filesystems": {"submounts": _submount("mlperf-sd", 2048)}}),
    "large": _large(),
    "cpu": cpu(),
}
"""By name."""
BACKED_UP = Facts(
    root_keys=FACTS.root_keys,
    allocation=FACTS.allocation,
    backups={"name": "soperator-backups", "endpoint": "https://storage.eu-north1.nebius.cloud:443"},
)


def groups(cluster: ClusterConfig) -> tuple[NodeGroup, ...]:
    """Its node groups."""
    settings = cluster.section(Nebius)
    assert settings
    return node_groups(cluster, settings)


def config(described: Description) -> ClusterConfig:
    """The cluster of a description."""
    return parse({"hpc:cluster": described})


def made(described: Description, facts: Facts = BACKED_UP) -> dict[str, Release]:
    """Its releases by name, in order."""
    return {one.name: one for one in releases(config(described), facts)}
