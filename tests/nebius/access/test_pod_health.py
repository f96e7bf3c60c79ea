"""`health` of a cluster of pods: what Soperator's checks found, and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nebius.access.cluster_objects import IDLE, World, active_check
from tests.nebius.access.conftest import Hpc

Made = Callable[[str], Path]
pytestmark = pytest.mark.usefixtures("up")


def test_a_cluster_that_is_well(hpc: Hpc, kubectl: Made) -> None:
    kubectl(World().script())
    ended = hpc("health", "nebius")
    assert (ended.code, ended.err) == (0, "")
    assert "all-reduce-perf" in ended.out
    assert "NODESET" not in ended.out


def test_drained_nodes_and_failed_checks(hpc: Hpc, kubectl: Made) -> None:
    world = World()
    world.checks = [active_check("gpu-fryer", slurm="Failed", drains=True, failed={"71": "too slow"})]
    world.nodes = {**IDLE, "worker-1": ("IDLE+DRAIN+DYNAMIC_NORM", "[user_problem] alloc_gpus_busy")}
    kubectl(world.script())
    ended = hpc("health", "nebius", "--json")
    document = json.loads(ended.out)
    assert (ended.code, document["ok"]) == (1, False)
    assert {one["id"] for one in document["findings"]} == {"node-drained", "check-failed"}
    assert [(one["node"], one["actor"]) for one in document["drained"]] == [("worker-1", "user")]
    assert document["checks"][0]["name"] == "gpu-fryer"


def test_it_starts_no_check(hpc: Hpc, kubectl: Made) -> None:
    kubectl(World().script())
    ended = hpc("health", "nebius", "--run")
    assert ended.code == 1
    assert "Soperator runs its checks by itself" in ended.err
