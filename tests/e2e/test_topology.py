"""slurmctld places jobs in as few blocks as possible, and follows the places that nodes report beside running jobs."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import placement
from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

REFRESH = "cd /usr/local/lib/hpc/node && python3 -S -c 'from slurm import topology; topology.refresh()'"


@pytest.fixture
def nodes(many: Cluster) -> Iterator[Cluster]:
    """The cluster, whose nodes have no places before and afterwards."""
    yield many
    many.inside("controller", "scancel --user=root")
    for name in ("cpu-1", "gpu-0"):
        report(many, name, "")
    many.inside("controller", REFRESH)


def report(cluster: Cluster, node: str, place: str) -> None:
    """Have a node join again with a place, as it does when the cloud has moved it."""
    cluster.inside(node, f"echo '{place}' >/etc/hpc/place; systemctl restart hpc-node.service")


def switch(cluster: Cluster, node: str) -> str:
    """The leaf switch of a node."""
    return json.loads(cluster.said("topology", "--json"))["nodes"][f"{cluster.name}-{node}"]["switch"]


def test_a_place_that_is_reported_is_taken_but_from_nodes_of_a_job_on_several(nodes: Cluster):
    assert [switch(nodes, name) for name in ("cpu-0", "cpu-1", "gpu-0")] == ["ns-cpu", "ns-cpu", "ns-gpu"]
    uneven = ("--nodes=2", "--ntasks=3", "--ntasks-per-node=2", "--mem=100", "--partition=cpu")
    job = nodes.job("sleep infinity", *uneven)
    cpus = "scontrol --oneliner show node | sed 's/ .*CPUAlloc=/ /; s/ CPUEfctv.*//' | sort"
    before = nodes.inside("controller", cpus)
    report(nodes, "cpu-1", "/c/b/1")
    report(nodes, "gpu-0", "/c/x,[y]/1")
    report(nodes, "gpu-0", "/c/b2/1")
    eventually(lambda: switch(nodes, "gpu-0").startswith("b-"), what="a refresh by the service")
    assert switch(nodes, "cpu-1") == "ns-cpu"
    assert nodes.inside("controller", cpus) == before
    assert f"Job {job}: 2 nodes, 1 leaf switch, below ns-cpu" in nodes.said("topology", "--job", job)
    nodes.inside("controller", f"scancel {job}; while squeue -h | grep -q .; do sleep 0.2; done; {REFRESH}")
    assert switch(nodes, "cpu-1").startswith("b-")
    assert f"Job {job}: 2 nodes, 2 leaf switches, below root: in diff" in nodes.said("topology", "--job", job)


def test_one_that_slurmctld_refuses_is_taken_back_and_named_by_status(nodes: Cluster):
    program = "/usr/local/lib/hpc/node/slurm/topology.py"
    before = nodes.inside("controller", "cat /etc/slurm/topology.conf")
    # The service has the program of before, and would try that one's text.
    nodes.inside(
        "controller",
        f"systemctl kill --signal=STOP hpc-topology; sed -i.kept 's/^HEAD = .*/&\\nNonsense=1/' {program}; "
        f"{REFRESH} 2>/dev/null; mv {program}.kept {program}",
    )
    assert nodes.inside("controller", "cat /etc/slurm/topology.conf; scontrol ping").startswith(before)
    refused = "slurmctld refuses it, and runs with the one of before: "
    eventually(lambda: refused in nodes.findings()["topology-refused"]["controller"], what="the finding")
    nodes.inside("controller", f"{REFRESH}; systemctl kill --signal=CONT hpc-topology")
    assert nodes.inside("controller", "ls /etc/hpc").count("topology-refused") == 0


@pytest.mark.parametrize("cluster", ["many", "one"])
def test_jobs_are_in_fewer_blocks_where_places_are_known(cluster: str, request: pytest.FixtureRequest):
    program = base64.b64encode(Path(placement.__file__).read_bytes()).decode()
    said = request.getfixturevalue(cluster).inside("controller", f"echo {program} | base64 -d | python3 - 64")
    blocks = json.loads(said)
    assert 2 * sum(blocks["places"]) < sum(blocks["nodesets"]), blocks
