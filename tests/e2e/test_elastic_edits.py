"""Edits of an elastic nodeset on real machines: jobs end first, machines go with their nodes, and nothing is lost."""

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, eventually
from tests.e2e.faults import states

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


def count(cluster: Cluster, **section: Any) -> str:
    """Write another count, and bring it up."""
    cluster.edit(lambda c: c["nodesets"].update(cpu=section))
    return cluster.up()


def test_a_static_node_becomes_elastic_when_its_job_has_ended(grown: Cluster):
    job = grown.job("sleep 8", "--nodelist=grown-cpu-1")
    count(grown, count={"min": 1, "max": 3}, idle="20s")
    assert grown.state(job) == "COMPLETED"
    assert not grown.runs("cpu-1")
    eventually(lambda: states(grown)["cpu-1"] == "idle~", what="the sleep of the node")
    assert states(grown) == {"cpu-0": "idle", "cpu-1": "idle~", "cpu-2": "idle~"}
    # With another exit code where the host is too busy to compare all.
    assert "nothing differs" in grown.call("drift", grown.name).stdout


def test_it_comes_with_a_job_after_a_restart_of_slurmctld(grown: Cluster):
    grown.inside("controller", "systemctl restart slurmctld")
    job = grown.job("srun hostname; until [ -e /tmp/seen ]; do sleep 1; done", "--nodes=3", "--exclusive")
    assert grown.said("ssh", "cpu-2", "--", "hostname").strip() == "grown-cpu-2"
    grown.inside("cpu-0", "touch /tmp/seen")
    eventually(lambda: grown.state(job) == "COMPLETED", what="the job on all nodes")


def test_an_elastic_node_becomes_static_when_its_job_has_ended(grown: Cluster):
    """One runs a job on a machine that Slurm asked for, the other is off or idle."""
    drained = "sinfo --noheader --nodes=grown-cpu-1 --format=%T | grep -q drain"
    job = grown.job(f"until {drained}; do sleep 1; done; sleep 4", "--nodelist=grown-cpu-1")
    said = count(grown, count={"min": 2, "max": 3}, idle="20s")
    assert "grown-cpu-1 becomes static" in said
    assert grown.state(job) == "COMPLETED"
    assert states(grown)["cpu-1"] == "idle"
    assert grown.runs("cpu-1")
    assert "CLOUD" not in grown.inside("controller", "scontrol --oneliner show node grown-cpu-1")
    assert grown.said("ssh", "cpu-1", "--", "hostname").strip() == "grown-cpu-1"
    count(grown, count={"min": 1, "max": 3}, idle="20s")


def test_a_used_budget_stops_new_machines_and_takes_nothing_away(grown: Cluster):
    """A stack here has no prices, so its controller gets the part of its settings that `up` writes on Google Cloud."""
    eventually(lambda: states(grown)["cpu-2"] == "idle~" and not grown.runs("cpu-2"), what="the sleep of the node")
    runs = grown.job("until [ -e /tmp/spent ]; do sleep 1; done", "--nodelist=grown-cpu-1")
    # What is always on costs more than any budget, at the last minute of a month too.
    budget = {"month": 1000, "currency": "USD", "stop": True, "hour": 1e9, "nodes": {"cpu": 1.5}, "unpriced": []}
    change = "import json,sys; p=sys.argv[1]; d=json.load(open(p)); d['budget'] = json.loads(sys.argv[2]); "
    change = shlex.quote(change + "json.dump(d, open(p, 'w'))")
    settings = "/etc/hpc/reconcile.json"
    edit = f"python3 -c {change} {settings} {shlex.quote(json.dumps(budget))}"
    grown.inside("controller", f"cp -p {settings} {settings}.kept; {edit}; systemctl restart hpc-reconcile")
    eventually(lambda: "budget-used" in grown.findings(), what="the finding")
    waits = grown.submit("true", "--nodelist=grown-cpu-2")
    eventually(lambda: "the budget of 1,000 USD" in grown.run("hpc-job", waits), what="the reason of its node")
    assert grown.state(waits) == "PENDING"
    # What exists goes on: the job, and machines of elastic and static nodes for others.
    assert grown.state(runs) == "RUNNING"
    others = [grown.submit("true", f"--nodelist=grown-cpu-{n}") for n in (0, 1)]
    eventually(lambda: [grown.state(n) for n in others] == ["COMPLETED"] * 2, what="jobs on machines that exist")
    assert not grown.runs("cpu-2")
    grown.inside("cpu-1", "touch /tmp/spent")
    grown.inside("controller", f"mv {settings}.kept {settings}; systemctl restart hpc-reconcile")
    eventually(lambda: [grown.state(n) for n in (runs, waits)] == ["COMPLETED"] * 2, what="the end of both jobs")
    eventually(lambda: "budget-used" not in grown.findings(), what="the end of the finding")


def test_a_node_that_leaves_takes_its_machine_along_when_its_job_has_ended(grown: Cluster):
    # Until the node is drained, and long enough after it to be seen.
    drained = "sinfo --noheader --nodes=grown-cpu-2 --format=%T | grep -q drain"
    job = grown.job(f"until {drained}; do sleep 1; done; sleep 8", "--nodelist=grown-cpu-2")
    said = count(grown, count={"min": 1, "max": 2}, idle="20s")
    assert "waiting for 1 job" in said
    assert grown.state(job) == "COMPLETED"
    # After a restart of slurmctld the loop deletes nothing at first.
    eventually(lambda: not grown.runs("cpu-2"), what="the end of the node's machine")
    assert set(states(grown)) == {"cpu-0", "cpu-1"}


def test_the_last_ones_leave_with_the_loop(grown: Cluster):
    count(grown, count=1)
    assert states(grown) == {"cpu-0": "idle"}
    assert not grown.runs("cpu-1")
    assert "inactive" in grown.inside("controller", "systemctl is-active hpc-reconcile; true")
