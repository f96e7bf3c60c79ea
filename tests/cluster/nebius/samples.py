"""Small clusters on Nebius for tests to vary."""

from copy import deepcopy
from typing import Any

from cluster.config import ClusterConfig
from cluster.findings import Finding
from cluster.load.parse import parse
from cluster.platforms.nebius.section import Nebius
from tests.cluster.stacks import told

H100 = "gpu-h100-sxm/8gpu-128vcpu-1600gb"
ONE_GPU = "gpu-h100-sxm/1gpu-16vcpu-200gb"
GB300 = "gpu-gb300/4gpu-112vcpu-800gb"
CPU = "cpu-d3/16vcpu-64gb"
FABRIC = {"infiniband": {"fabric": "fabric-3"}}
PLACE = {"tenant": "tenant-e00abc", "project": "project-e00abc", "region": "eu-north1"}


def given(*, nebius: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The description of a cluster of two nodes without GPUs; `nebius` is added to its section."""
    nodesets = changes.get("nodesets", {"worker": {"count": 2}})
    return deepcopy(
        {
            "platform": "nebius",
            "name": "soperator",
            "nebius": {**PLACE, **(nebius or {})},
            "nodesets": nodesets,
            "partitions": {"main": {"nodesets": [*nodesets], "default": True}},
            **changes,
        }
    )


def gpus(machine_type: str = H100, count: int = 2, **more: Any) -> dict[str, Any]:
    """Keys of a cluster whose one nodeset has GPUs; nodes with all GPUs of a host are on a fabric."""
    workers = FABRIC if not machine_type.startswith("gpu-h100-sxm/1gpu") else {}
    return {
        "nodesets": {"worker": {"machine_type": machine_type, "count": count, **more}},
        "nebius": {"workers": {"worker": workers}},
    }


def nebius(**changes: Any) -> ClusterConfig:
    """A cluster on Nebius, with some of its keys replaced."""
    return parse({"hpc:cluster": given(**changes)})


def findings(**changes: Any) -> dict[str, Finding]:
    """What is wrong with such a cluster, by place."""
    return told({"hpc:cluster": given(**changes)})


def settings(config: ClusterConfig) -> Nebius:
    """The section `nebius` of a cluster that has one."""
    section = config.section(Nebius)
    assert section is not None
    return section
