"""Edits of an elastic nodeset on real machines: jobs end first, machines go with their nodes, and nothing is lost."""

from collections.abc import Callable
from typing import Any

import pytest

from components.local.host.machine import bare, running
from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def grown(bring_up: Callable[..., Cluster]) -> Cluster:
    """A controller where people log in, and two static nodes."""
    return bring_up(
        "grown",
        login={"on": "controller"},
        nodesets={"cpu": {"count": 2}},
        slurm={"extra": {"SuspendTimeout": 20, "ResumeTimeout": 300}},
    )


def hasten(cluster: Cluster) -> None:
    """Have the loop wait for seconds, not minutes, until it deletes what it does not know; its next start reads it."""
    folder = "/usr/local/lib/hpc/node/reconcile"
    for file, old, new in (("decision", "ORPHAN_SECONDS = 90", 5), ("loop", "YOUNG_SECONDS = 60", 15)):
        assert cluster.inside("controller", f"grep -c '^{old} ' {folder}/{file}.py") == "1"
        cluster.inside("controller", f"sed -i 's/^{old} /{old.split()[0]} = {new} /' {folder}/{file}.py")


def count(cluster: Cluster, **section: Any) -> str:
    """Write another count, and bring it up."""
    cluster.edit(lambda c: c["nodesets"].update(cpu=section))
    return cluster.up()


def states(cluster: Cluster) -> dict[str, str]:
    words = cluster.inside("controller", "sinfo --noheader --Node --format='%N %T'").split()
    return dict(zip(words[::2], words[1::2], strict=True))


def ended(cluster: Cluster, number: str) -> bool:
    return "JobState=COMPLETED" in cluster.inside("controller", f"scontrol show job {number}; true")


def machine(cluster: Cluster, node: str) -> bool:
    return running(bare(cluster.root, cluster.name, f"{cluster.name}-{node}").paths) is not None


def test_a_static_node_becomes_elastic_when_its_job_has_ended(grown: Cluster):
    job = grown.job("sleep 8", "--nodelist=grown-cpu-1")
    count(grown, count={"min": 1, "max": 3}, idle="20s")
    assert ended(grown, job)
    assert not machine(grown, "cpu-1")
    eventually(lambda: states(grown)["grown-cpu-1"] == "idle~", what="the sleep of the node")
    assert states(grown) == {"grown-cpu-0": "idle", "grown-cpu-1": "idle~", "grown-cpu-2": "idle~"}
    # With another exit code where the host is too busy to compare all.
    assert "nothing differs" in grown.call("drift", grown.name).stdout


def test_it_comes_with_a_job_after_a_restart_of_slurmctld(grown: Cluster):
    grown.inside("controller", "systemctl restart slurmctld")
    job = grown.job("srun hostname; until [ -e /tmp/seen ]; do sleep 1; done", "--nodes=3", "--exclusive")
    assert grown.said("ssh", "cpu-2", "--", "hostname").strip() == "grown-cpu-2"
    grown.inside("cpu-0", "touch /tmp/seen")
    eventually(lambda: ended(grown, job), what="the job on all nodes")


def test_an_elastic_node_becomes_static_when_its_job_has_ended(grown: Cluster):
    """One runs a job on a machine that Slurm asked for, the other is off or idle."""
    drained = "sinfo --noheader --nodes=grown-cpu-1 --format=%T | grep -q drain"
    job = grown.job(f"until {drained}; do sleep 1; done; sleep 4", "--nodelist=grown-cpu-1")
    said = count(grown, count={"min": 2, "max": 3}, idle="20s")
    assert "grown-cpu-1 becomes static" in said
    assert ended(grown, job)
    assert states(grown)["grown-cpu-1"] == "idle"
    assert machine(grown, "cpu-1")
    assert "CLOUD" not in grown.inside("controller", "scontrol --oneliner show node grown-cpu-1")
    assert grown.said("ssh", "cpu-1", "--", "hostname").strip() == "grown-cpu-1"
    count(grown, count={"min": 1, "max": 3}, idle="20s")


def test_a_node_that_leaves_takes_its_machine_along_when_its_job_has_ended(grown: Cluster):
    # Until the node is drained, and long enough after it to be seen.
    drained = "sinfo --noheader --nodes=grown-cpu-2 --format=%T | grep -q drain"
    job = grown.job(f"until {drained}; do sleep 1; done; sleep 8", "--nodelist=grown-cpu-2")
    said = count(grown, count={"min": 1, "max": 2}, idle="20s")
    assert "waiting for 1 job" in said
    assert ended(grown, job)
    # After a restart of slurmctld the loop deletes nothing at first.
    eventually(lambda: not machine(grown, "cpu-2"), what="the end of the node's machine")
    assert set(states(grown)) == {"grown-cpu-0", "grown-cpu-1"}


def test_the_last_ones_leave_with_the_loop(grown: Cluster):
    count(grown, count=1)
    assert states(grown) == {"grown-cpu-0": "idle"}
    assert not machine(grown, "cpu-1")
    assert "inactive" in grown.inside("controller", "systemctl is-active hpc-reconcile; true")
