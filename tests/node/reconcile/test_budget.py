"""The budget of a month: what existed counts for as long as it did, and elastic nodes stop at its end, not before."""

import calendar
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interface import BudgetInput
from reconcile import budget, loop, service
from reconcile.budget import Spent
from system.host import write

from tests.node.reconcile.simulated import FLEX, Cluster, states

HOUR = 3600.0
JANUARY = calendar.timegm((2027, 1, 1, 0, 0, 0))
FEBRUARY = calendar.timegm((2027, 2, 1, 0, 0, 0))
PRICES: BudgetInput = {
    "month": 60.0, "currency": "EUR", "stop": True, "hour": 10.0, "nodes": {"gpu": 100.0}, "unpriced": [],
}  # fmt: skip
REASON = "hpc: its machine is refused: the budget of 60 EUR for 2027-01 is used"


@given(st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 8)), max_size=12))
def test_what_is_spent_is_the_sum_of_machine_hours_times_their_rate(passes: list[tuple[int, int]]):
    now, machines = float(JANUARY), 0
    spent, expected = budget.add(None, PRICES, budget.price(PRICES, {}), now), 0.0
    for seconds, following in passes:
        now += seconds
        expected += seconds / HOUR * (10 + 100 * machines)
        machines = following
        spent = budget.add(spent, PRICES, budget.price(PRICES, {"gpu": machines, "unknown": 3}), now)
    assert spent.amount == pytest.approx(expected)


def test_a_month_begins_at_zero_with_what_exists_since_its_begin():
    before = Spent("2027-01", JANUARY, FEBRUARY - HOUR, 500.0, 30.0, "EUR")
    after = budget.add(before, PRICES, 10.0, FEBRUARY + 2 * HOUR)
    assert after == Spent("2027-02", FEBRUARY, FEBRUARY + 2 * HOUR, 60.0, 10.0, "EUR")
    december = budget.add(after, PRICES, 10.0, calendar.timegm((2027, 12, 31, 23, 0, 0)))
    assert budget.state(PRICES, december, december.at)["least"] == pytest.approx(10 * 31 * 24)


def test_a_clock_that_is_set_back_adds_nothing_twice_and_another_currency_nothing():
    before = Spent("2027-01", JANUARY, JANUARY + 9 * HOUR, 90.0, 10.0, "EUR")
    back = budget.add(before, PRICES, 10.0, JANUARY + 5 * HOUR)
    assert (back.amount, budget.add(back, PRICES, 10.0, JANUARY + 10 * HOUR).amount) == (90.0, 100.0)
    # At the turn of a month the new one does not become a whole month of what exists now.
    new = Spent("2027-02", FEBRUARY, FEBRUARY + 1, 0.1, 110.0, "EUR")
    assert budget.add(new, PRICES, 110.0, FEBRUARY - 1).amount == 0.0
    other: BudgetInput = {**PRICES, "currency": "USD"}
    assert budget.add(before, other, 10.0, JANUARY + 10 * HOUR).amount == 0.0


def test_the_rest_of_the_month_counts_for_what_is_always_on_and_for_what_exists():
    now = FEBRUARY - 2 * HOUR
    found = budget.state(PRICES, Spent("2027-01", JANUARY, now, 30.0, 110.0, "EUR"), now)
    assert (found["least"], found["expected"], found["used"], found["since"]) == (50.0, 250.0, False, None)
    late = budget.state(PRICES, Spent("2027-01", JANUARY + HOUR, now, 40.0, 110.0, "EUR"), now)
    assert (late["used"], late["refuses"], late["since"]) == (True, True, JANUARY + HOUR)
    assert budget.refusal(late) == REASON
    spent = Spent("2027-01", JANUARY, now, 90.0, 10.0, "EUR")
    assert not budget.state({**PRICES, "stop": False}, spent, now)["refuses"]


def at_the_end_of_january(tmp_path, **given: Any) -> Cluster:
    """A cluster whose budget suffices for 50 more than what is always on in the last hour of the month."""
    cluster = Cluster(tmp_path, budget={**PRICES, **given})
    cluster.now = FEBRUARY - HOUR
    cluster.restart()
    return cluster


def test_beyond_the_budget_running_jobs_go_on_and_others_wait_for_the_next_month(tmp_path):
    cluster = at_the_end_of_january(tmp_path, hour=0.05)
    cluster.slurm.submit("1", 2, 1800)
    cluster.run(600)
    assert cluster.slurm.jobs["1"].began
    assert states(cluster, "c-gpu-7") == {"IDLE", "POWERED_DOWN"}
    cluster.run(600)
    # 200 an hour for two machines: after 18 minutes 60 are spent.
    assert len(cluster.instances) == 2
    assert {cluster.slurm.nodes_[name].reason for name in list(cluster.slurm.nodes_)[2:]} == {REASON}
    cluster.slurm.submit("2", 3, 60)
    cluster.restart()
    cluster.run(1500)
    assert cluster.slurm.jobs["1"].done
    assert len(cluster.instances) <= 2
    assert not cluster.slurm.jobs["2"].nodes
    cluster.run(1500)
    assert cluster.slurm.jobs["2"].done


def test_a_job_whose_machines_are_refused_has_the_reason_as_its_comment(tmp_path):
    cluster = at_the_end_of_january(tmp_path, month=5.0)
    cluster.slurm.submit("1", 2, 60)
    cluster.slurm.step()
    cluster.run(60)
    assert cluster.slurm.jobs["1"].comment == REASON.replace("60", "5")
    assert cluster.instances == {}


@pytest.mark.parametrize("given", [{"stop": False}, {"month": 1000.0}])
def test_without_a_stop_or_within_the_budget_nothing_is_refused(tmp_path, given):
    cluster = at_the_end_of_january(tmp_path, **given)
    cluster.slurm.submit("1", 2, 1800)
    cluster.run(1500)
    cluster.slurm.submit("2", 3, 60)
    cluster.run(300)
    assert cluster.slurm.jobs["2"].began


def test_a_request_that_waits_in_the_queue_is_given_up(tmp_path):
    cluster = at_the_end_of_january(tmp_path)
    cluster.settings["nodesets"]["gpu"]["templates"] = [FLEX.copy()]
    cluster.slurm.resume_timeout = 65533
    cluster.fake.queue_seconds = 2 * HOUR
    cluster.restart()
    cluster.slurm.submit("1", 2, 600)
    cluster.run(300)
    assert len(cluster.fake.groups) == 1
    cluster.settings["budget"] = {**PRICES, "month": 5.0}
    cluster.restart()
    cluster.run(600)
    assert (cluster.fake.groups, cluster.instances) == ({}, {})
    assert cluster.slurm.jobs["1"].comment == REASON.replace("60", "5")


def test_a_partial_list_of_instances_counts_as_the_last_complete_one(tmp_path):
    cluster = at_the_end_of_january(tmp_path, month=1000.0)
    cluster.slurm.submit("1", 2, 3000)
    cluster.run(600)
    spent = budget.read(tmp_path)
    cluster.partial = True
    cluster.run(600)
    cluster.partial = False
    cluster.run(120)
    after = budget.read(tmp_path)
    assert spent
    assert after
    assert (spent.hour, after.hour) == (210.0, 210.0)
    assert after.amount - spent.amount == pytest.approx(210 * (after.at - spent.at) / HOUR)


def test_the_service_reads_what_was_spent_and_forgets_it_without_a_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "SETTINGS", tmp_path / "reconcile.json")
    monkeypatch.setattr(loop, "FOLDER", tmp_path)
    monkeypatch.setattr("time.time", lambda: FEBRUARY + HOUR)
    assert service.spending() == {}
    write(loop.SETTINGS, '{"budget": {"month": 60, "currency": "EUR", "stop": false, "hour": 10, "nodes": {}, '
                         '"unpriced": ["lustre"]}}')  # fmt: skip
    assert service.spending() == {}, "the loop has made no pass"
    budget.save(tmp_path, Spent("2027-01", JANUARY, FEBRUARY - HOUR, 9000.0, 110.0, "EUR"))
    found = service.spending()
    assert (found["month"], found["spent"], found["unpriced"]) == ("2027-02", 110.0, ["lustre"])
    loop.SETTINGS.unlink()
    service.converge(None)
    assert budget.read(tmp_path) is None
