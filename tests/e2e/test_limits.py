"""Limits of accounts and users of the stack file hold in real slurmdbd and slurmctld: a job above one waits and says
why, one below it runs, and used hours count from 0 again."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

ACCOUNTS = [
    # 20 hours of a MiB are 1200 minutes of one: a job of 1000 MiB uses up a third of them in 20 s.
    {"name": "research", "limits": {"grp_tres_hours": {"mem": 20, "cpu": 1000}}},
    {"name": "teaching", "limits": {"grp_jobs": 1}},
]
SIZE = ("--ntasks=1", "--mem=1000", "--time=1")


@pytest.fixture(scope="module")
def limited(pair: tuple[Cluster, Cluster]) -> Iterator[Cluster]:
    """The cluster `many`, with limits for as long as these tests run."""
    many, _ = pair
    before = many.copy()
    many.edit(lambda config: config["accounting"].update(accounts=ACCOUNTS, period="monthly"))
    (bob,) = (user for user in many.config["users"] if user["name"] == "bob")
    many.edit(lambda _: bob.update(limits={"grp_tres": {"gres/gpu": 1}}))
    shown = many.preview()
    assert "jobs that run go on, above it too" in json.dumps(shown)
    many.up()
    # Jobs of other tests have used up some of the hours.
    many.inside("controller", "sacctmgr --immediate modify account research set RawUsage=0")
    yield many
    many.inside(
        "controller", "scancel --user=alice; scancel --user=bob; while squeue -h | grep -q .; do sleep 0.2; done"
    )
    many.revert(before)
    many.up()


def reason(cluster: Cluster, job: str) -> str:
    """Why a job waits; empty for one that does not."""
    return cluster.inside(
        "controller", f"squeue --noheader --states=PENDING --jobs={job} --format=%r 2>/dev/null; true"
    )


def wait_for_reason(cluster: Cluster, job: str, name: str) -> None:
    eventually(lambda: reason(cluster, job) == name, what=f"{name} of job {job}")


def test_slurmctld_counts_by_the_period_and_forgets_nothing_within_it(limited: Cluster):
    values = limited.inside("controller", "scontrol show config")
    assert "PriorityUsageResetPeriod = MONTHLY" in " ".join(values.split())
    assert "PriorityDecayHalfLife = 00:00:00" in " ".join(values.split())


def test_a_job_whose_hours_do_not_fit_waits_and_runs_when_usage_counts_from_0_again(limited: Cluster):
    first = limited.submit("sleep 20", *SIZE, user="alice")
    eventually(lambda: limited.state(first) == "COMPLETED", what="the end of the job that fits")
    second = limited.submit("sleep 1", *SIZE, user="alice")
    wait_for_reason(limited, second, "AssocGrpMemMinutes")
    shown = limited.run("hpc-job", second, user="alice")
    assert "too few minutes of memory are left in this period for all of its time limit" in shown
    assert "account research has " in shown
    assert "of 20 mem hours left" in shown
    rows = json.loads(limited.said("usage", "--json"))["hours"]
    used = {(row["account"], row["resource"]): row["used"] for row in rows}
    assert 5 < used["research", "mem"] < 20
    limited.inside("controller", "sacctmgr --immediate modify account research set RawUsage=0")
    eventually(lambda: limited.state(second) == "COMPLETED", what="the end of the job that waited")


def test_an_account_runs_as_many_jobs_and_a_user_as_many_gpus_as_allowed(limited: Cluster):
    running = limited.job("sleep infinity", "--ntasks=1", "--mem=100", user="bob")
    above = limited.submit("true", "--ntasks=1", "--mem=100", user="bob")
    wait_for_reason(limited, above, "AssocGrpJobsLimit")
    limited.inside("controller", f"scancel {running}")
    eventually(lambda: limited.state(above) == "COMPLETED", what="the end of the job that waited")
    gpus = limited.submit("true", "--partition=gpu", "--gres=gpu:2", "--mem=100", user="bob")
    wait_for_reason(limited, gpus, "AssocGrpGRES")


def test_drift_finds_a_limit_that_somebody_raised_and_up_sets_it_again(limited: Cluster):
    limited.inside("controller", "sacctmgr --immediate modify account research set GrpTRESMins=cpu=1")
    assert "account research: GrpTRESMins" in limited.said("drift", code=1)
    limited.command("drift", "--mend")
    limited.said("drift")
