"""Where Compute Engine refuses requests for several machines to the controller's account, and takes single ones: the
machines are requested one by one. An IAM condition on names may do so, as the path of bulkInsert has no name."""

import pytest

from components.local.compute_engine.http import Call, RefusalError
from tests.node.reconcile.simulated import Cluster

FORBIDDEN = RefusalError(403, "forbidden", "Required 'compute.instances.create' permission")


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    return Cluster(tmp_path)


def refuse_bulk(_number: int, call: Call) -> None:
    if call.path.endswith("/bulkInsert"):
        raise FORBIDDEN


def refuse_all(_number: int, call: Call) -> None:
    if call.method == "POST":
        raise FORBIDDEN


def test_machines_of_a_job_are_requested_one_by_one_where_only_bulk_requests_are_refused(cluster):
    cluster.fake.before = refuse_bulk
    cluster.slurm.submit("1", 3, 60)
    cluster.run(400)
    assert cluster.slurm.jobs["1"].done
    assert len(cluster.requests("POST", "/instances/bulkInsert")) == 1
    assert len(cluster.requests("POST", "/instances")) == 3
    assert cluster.loop.record.cooling == {}
    (row,) = [row for row in cluster.journal() if "bulkInsert" in row.get("result", "")]
    assert len(row["nodes"]) == 3


def test_a_machine_without_capacity_among_those_requested_one_by_one_cools_down_alone(cluster):
    cluster.fake.before = refuse_bulk
    cluster.fake.capacity["t-spot"] = 2
    cluster.slurm.submit("1", 3, 10_000)
    cluster.run(400)
    assert cluster.slurm.jobs["1"].began
    assert sorted(row["labels"]["hpc-template"] for row in cluster.resources()) == ["t-demand", "t-spot", "t-spot"]
    assert {key: cooling.size for key, cooling in cluster.loop.record.cooling.items()} == {"gpu/spot": 1}


def test_a_missing_permission_is_asked_for_once_by_many_and_once_by_one(cluster):
    cluster.fake.before = refuse_all
    cluster.slurm.submit("1", 3, 60)
    cluster.run(10)
    together = cluster.requests("POST", "/instances/bulkInsert")
    assert len(together) in range(1, len(cluster.settings["nodesets"]["gpu"]["templates"]) + 1)
    assert len(cluster.requests("POST", "/instances")) == len(together)
    assert not [row for row in cluster.journal() if "by itself" in row.get("result", "")]
