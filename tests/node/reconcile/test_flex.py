"""Flex start in simulated time: machines of a job are created together, deleted at their end, and none remains."""

import pytest
from reconcile.slurmctld import Slurmctld
from slurm import reservations

from tests.node.reconcile.simulated import FLEX, SPOT, Cluster, states

HOUR = 3600.0


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    return flexible(tmp_path)


def flexible(tmp_path, *before, **given) -> Cluster:
    """A cluster whose last way is flex start, for which Slurm waits for 18 hours."""
    cluster = Cluster(tmp_path, **given)
    cluster.settings["nodesets"]["gpu"]["templates"] = [*before, FLEX.copy()]
    cluster.slurm.resume_timeout = 65533
    cluster.fake.queue_seconds = 2 * HOUR
    cluster.restart()
    return cluster


def journal(cluster: Cluster, rule: str) -> list[list[str]]:
    return [row["nodes"] for row in cluster.journal() if row["rule"] == rule]


def test_the_machines_of_a_job_wait_in_one_request_and_are_created_together(cluster):
    cluster.slurm.submit("1", 4, 600)
    cluster.run(HOUR)
    names = [f"c-gpu-{number}" for number in range(4)]
    (group,) = cluster.fake.groups.values()
    assert [row["name"] for row in group["request"]["instances"]] == names
    assert group["request"]["requestedRunDuration"] == {"seconds": "86400"}
    assert group["resource"]["name"].startswith("c-gpu-flex-")
    assert cluster.instances == {}
    assert all("POWERING_UP" in states(cluster, name) for name in names)
    comment = cluster.slurm.jobs["1"].comment
    assert comment.startswith("hpc: waits for 4 machines of flex start in us-central1-a since ")
    assert cluster.loop.record.comments == {"1": comment}
    # An hour of waiting: nobody asks for a machine that is not there, and once in 30 s for the request.
    assert len(cluster.requests("GET", "/getGuestAttributes")) == 0
    assert len(cluster.requests("GET", "/resizeRequests")) <= HOUR / 30 + 5
    cluster.run(HOUR + 300)
    assert cluster.slurm.jobs["1"].began
    assert sorted(cluster.instances) == names
    assert len(cluster.fake.groups) == 1


@pytest.mark.parametrize("seconds", [HOUR, 3 * HOUR])
def test_an_empty_list_of_groups_deletes_neither_requests_nor_machines(cluster, monkeypatch, seconds):
    cluster.slurm.submit("1", 4, 6 * HOUR)
    cluster.run(seconds, step=10)
    groups, there = list(cluster.fake.groups), dict(cluster.instances)
    monkeypatch.setattr(cluster.loop.cloud, "groups", lambda: ([], ""))
    cluster.run(120)
    if there:
        cluster.restart()  # one that has not seen the group before
        monkeypatch.setattr(cluster.loop.cloud, "groups", lambda: ([], ""))
        cluster.run(120)
    monkeypatch.undo()
    cluster.run(300)
    assert (list(cluster.fake.groups), dict(cluster.instances)) == (groups, there)
    assert not any("POWER_DOWN" in state for state in states(cluster))
    assert bool(there) is bool(cluster.slurm.jobs["1"].began) is (seconds > 2 * HOUR)


def test_idle_machines_are_deleted_one_by_one_and_the_group_with_the_last(cluster):
    cluster.fake.queue_seconds = 0
    cluster.slurm.submit("1", 3, 60)
    cluster.slurm.submit("2", 1, 2000)
    cluster.run(300)
    assert len(cluster.fake.groups) == 2
    cluster.run(900)
    assert list(cluster.instances) == ["c-gpu-3"]
    assert [group["members"] for group in cluster.fake.groups.values()] == [["c-gpu-3"]]
    cluster.run(3000)
    assert (cluster.instances, cluster.fake.groups) == ({}, {})
    assert all(states(cluster, name) == {"IDLE", "POWERED_DOWN"} for name in cluster.slurm.nodes_)
    # One by one a group would be short of them.
    assert len(cluster.requests("DELETE", *cluster.slurm.nodes_)) == 0


def test_a_node_gets_its_next_machine_in_another_group(cluster):
    cluster.fake.queue_seconds = 0
    cluster.slurm.submit("1", 2, 60)
    cluster.run(1500)
    cluster.slurm.submit("2", 2, 60)
    cluster.run(300)
    assert cluster.slurm.jobs["2"].done
    assert sorted(cluster.instances) == ["c-gpu-0", "c-gpu-1"]
    cluster.run(2000)
    assert (cluster.instances, cluster.fake.groups) == ({}, {})


def test_the_request_of_a_cancelled_job_is_deleted(cluster):
    cluster.slurm.submit("1", 2, 600)
    cluster.run(600)
    assert len(cluster.fake.groups) == 1
    cluster.slurm.jobs["1"].done = True
    for name in cluster.slurm.jobs["1"].nodes:
        node = cluster.slurm.nodes_[name]
        node.job, node.states = "", (node.states - {"ALLOCATED"}) | {"IDLE"}
    cluster.run(300)
    assert cluster.fake.groups == {}
    assert len(cluster.requests("DELETE", "")) == 1
    cluster.run(300)
    assert states(cluster) == {"IDLE", "POWERED_DOWN"}
    cluster.run(3 * HOUR, step=60)
    assert cluster.instances == {}


def test_no_job_is_placed_past_the_end_of_machines(cluster):
    cluster.fake.queue_seconds = 0
    cluster.slurm.submit("1", 2, 60)
    cluster.run(120)
    came = {group["came"] for group in cluster.fake.groups.values()}
    assert cluster.slurm.ends == {f"c-gpu-{number}": came.copy().pop() // 1 + 86400 for number in (0, 1)}
    cluster.run(1500)
    assert cluster.slurm.ends == {}


def test_a_job_is_requeued_when_google_deletes_its_machines_at_their_end(cluster):
    cluster.settings["nodesets"]["gpu"]["templates"][0]["run_seconds"] = 1800
    cluster.restart()
    cluster.fake.queue_seconds = 0
    cluster.slurm.submit("1", 2, 10_000)
    cluster.run(1900)
    assert (cluster.slurm.jobs["1"].nodes, cluster.instances) == ([], {})
    cluster.run(600)
    assert len(cluster.instances) == 2, "the job was requeued, and asks again"


def test_a_failed_request_counts_as_no_capacity(cluster):
    cluster.fake.queue_seconds = 60
    cluster.failing = "ZONE_RESOURCE_POOL_EXHAUSTED"
    cluster.slurm.submit("1", 2, 60)
    cluster.run(200)
    assert "no capacity for 2 machines of gpu as flex" in cluster.slurm.jobs["1"].comment
    assert cluster.fake.groups == {}
    assert {cooling.minutes for cooling in cluster.loop.record.cooling.values()} == {10}
    cluster.failing = ""
    cluster.run(1200)
    assert cluster.slurm.jobs["1"].done


def test_flex_start_is_tried_after_ways_without_capacity(tmp_path):
    cluster = flexible(tmp_path, SPOT)
    cluster.fake.capacity["t-spot"] = 1
    cluster.fake.queue_seconds = 600
    cluster.slurm.submit("1", 1, 5000)
    cluster.run(60)
    cluster.slurm.submit("2", 2, 60)
    cluster.run(1200)
    assert cluster.slurm.jobs["1"].began
    assert cluster.slurm.jobs["2"].done
    labels = {row["name"]: row["labels"].get("hpc-template") for row in cluster.resources()}
    assert labels == {"c-gpu-0": "t-spot", "c-gpu-1": None, "c-gpu-2": None}


def test_groups_are_changed_to_a_new_template_so_that_the_old_one_can_be_deleted(cluster):
    cluster.slurm.submit("1", 1, 600)
    cluster.run(60)
    cluster.settings["nodesets"]["gpu"]["templates"][0]["template"] = "projects/p/global/instanceTemplates/t-flex-2"
    cluster.restart()
    cluster.run(60)
    assert [group["resource"]["instanceTemplate"].rpartition("/")[2] for group in cluster.fake.groups.values()] == [
        "t-flex-2"
    ]
    assert len(cluster.requests("PATCH", "")) == 1


@pytest.mark.parametrize("kills", range(1, 9))
def test_a_killed_loop_requests_machines_once_and_deletes_them_all(tmp_path, kills):
    cluster = flexible(tmp_path)
    cluster.fake.queue_seconds = 300
    cluster.kill_at = {len(cluster.fake.calls) + 3 * kills, len(cluster.fake.calls) + 5 * kills}
    cluster.slurm.submit("1", 2, 60)
    cluster.run(900)
    assert cluster.slurm.jobs["1"].done
    assert len({row["id"] for row in cluster.resources()}) == 2
    cluster.run(1500)
    assert (cluster.instances, cluster.fake.groups) == ({}, {})


def test_groups_that_are_not_the_clusters_are_not_deleted(cluster):
    cluster.slurm.submit("1", 1, 600)
    cluster.run(30)
    path, group = next(iter(cluster.fake.groups.items()))
    for number, text in enumerate(("", "[]", group["resource"]["description"].replace('"c"', '"d"'), "{}")):
        other = f"{path}{number}"
        resource = {**group["resource"], "name": other.rpartition("/")[2], "id": other, "description": text}
        resource["selfLink"] = f"https://www.googleapis.com/compute/v1/{other}"
        cluster.fake.groups[other] = {**group, "request": None, "resource": resource}
    cluster.slurm.jobs["1"].done = True
    cluster.slurm._requeue("c-gpu-0")
    cluster.run(900)
    assert sorted(cluster.fake.groups) == [f"{path}{number}" for number in range(4)]


def test_only_the_loops_own_reservations_are_replaced(monkeypatch):
    kept = []
    monkeypatch.setattr(reservations, "keep", lambda wanted, owned: kept.append((wanted, owned)))
    Slurmctld().keep_ends({"c-gpu-0": 1000.0})
    ((wanted, owned),) = kept
    assert wanted == {"hpc-until-c-gpu-0": ("c-gpu-0", 1000.0, 60)}
    # Those of static nodes are `up`'s.
    assert [owned(name) for name in ("hpc-until-c-gpu-1", "hpc-end-c-gpu-2", "maintenance")] == [True, False, False]


def test_mode_advise_names_a_failed_group_and_does_not_delete_it(cluster):
    cluster.fake.queue_seconds = 60
    cluster.failing = "ZONE_RESOURCE_POOL_EXHAUSTED"
    cluster.slurm.submit("1", 2, 60)
    cluster.run(45)
    cluster.settings["mode"] = "advise"
    cluster.restart()
    cluster.run(120)
    (row,) = [row for row in cluster.journal() if row["rule"] == "flex-failed"]
    assert (row["mode"], row["nodes"]) == ("advise", ["c-gpu-0", "c-gpu-1"])
    assert len(cluster.fake.groups) == 1
