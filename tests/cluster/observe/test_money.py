"""What jobs cost, with idle nodes and faults, is the time of all machines at their rate, by month."""

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.observe.money import MoneyKey, NodePrice, Spending, grouped, spending
from cluster.observe.reliability import HOUR, JobRun, Outage, ReliabilityRecords

START = datetime(2026, 11, 1, tzinfo=timezone.utc).timestamp()
NODES = {
    "a": NodePrice(cpus=8, gpus=2, hour=10.0),
    "b": NodePrice(cpus=8, gpus=2, hour=10.0),
    "c": NodePrice(cpus=4, gpus=0, hour=1.0),
    "d": NodePrice(cpus=4, gpus=0, hour=None),
}


def run(start: float, end: float, *nodes: str, **more: Any) -> JobRun:
    """A run between two hours after START."""
    values: dict[str, Any] = {"user": "alice", "account": "research", "partition": "gpu", "cpus": 8, "gpus": 2, **more}
    start, end = START + start * HOUR, START + end * HOUR
    return JobRun(job="1", state="COMPLETED", eligible=start, start=start, end=end, nodes=nodes, units=2, **values)


def out(start: float, end: float, node: str, **more: Any) -> Outage:
    values: dict[str, Any] = {"kind": "gpu-xid", "units": 2, **more}
    return Outage(node=node, start=START + start * HOUR, end=START + end * HOUR, **values)


def spent(
    *runs: JobRun, outages: tuple[Outage, ...] = (), hours: float = 10, nodes: tuple[str, ...] = ("a",)
) -> Spending:
    until = START + hours * HOUR
    capacity = [(START, until, nodes, 2)]
    facts = ReliabilityRecords(since=START, until=until, runs=runs, outages=outages, capacity=capacity)
    return spending(facts, NODES)


def amounts(found: Spending) -> dict[tuple[str, str], float]:
    """Amounts by kind and user."""
    return {(key.kind, key.user): round(row.amount, 6) for key, row in found.rows.items()}


def test_a_job_costs_its_share_of_its_nodes_and_the_rest_is_idle():
    assert amounts(spent(run(0, 4, "a", cpus=2, gpus=1))) == {("jobs", "alice"): 20.0, ("idle", ""): 80.0}
    two = spent(run(0, 4, "a", "b", cpus=16, gpus=4), nodes=("a", "b"))
    assert amounts(two) == {("jobs", "alice"): 80.0, ("idle", ""): 120.0}
    assert amounts(spent(run(0, 4, "c", cpus=1, gpus=0), nodes=("c",))) == {("jobs", "alice"): 1.0, ("idle", ""): 9.0}


def test_jobs_that_hold_more_than_a_node_together_divide_it():
    """One has all GPUs of the node, the other all but one of its CPUs."""
    gpus = run(0, 4, "a", cpus=1, gpus=2)
    cpus = run(0, 8, "a", cpus=7, gpus=0, user="bob")
    assert amounts(spent(gpus, cpus)) == {
        ("jobs", "alice"): round(40 / 1.875, 6), ("jobs", "bob"): round(40 * 0.875 / 1.875 + 35, 6), ("idle", ""): 25.0,
    }  # fmt: skip


def test_faults_and_drained_nodes_have_rows_of_their_own_without_the_jobs_that_ran_on():
    found = spent(run(0, 4, "a"), outages=(out(3, 6, "a"), out(7, 8, "a", kind="")))
    assert amounts(found) == {("jobs", "alice"): 40.0, ("faults", ""): 20.0, ("drained", ""): 10.0, ("idle", ""): 30.0}


def test_machines_that_were_off_cost_nothing():
    assert amounts(spent(run(8, 10, "a"), outages=(out(0, 8, "a", kind="", off=True),))) == {
        ("jobs", "alice"): 20.0, ("idle", ""): 0.0,
    }  # fmt: skip


def test_nodes_without_a_known_price_are_named_and_not_guessed():
    found = spent(run(0, 4, "d", "gone"), nodes=("a", "d", "gone"))
    assert amounts(found) == {("idle", ""): 100.0}
    assert found.unpriced == {"d": 10.0, "gone": 10.0}


def test_months_are_apart_also_for_a_job_over_their_border():
    hours = 30 * 24 + 5
    found = spent(run(30 * 24 - 1, 30 * 24 + 3, "a"), hours=hours)
    assert {key: round(row.amount, 6) for key, row in found.rows.items()} == {
        MoneyKey("2026-11", "idle"): 30 * 240 - 10.0,
        MoneyKey("2026-11", "jobs", "alice", "research", "gpu"): 10.0,
        MoneyKey("2026-12", "idle"): 20.0,
        MoneyKey("2026-12", "jobs", "alice", "research", "gpu"): 30.0,
    }
    assert {key: round(row.node_hours, 6) for key, row in grouped(found, ("account",)).items()} == {
        ("2026-11", "idle", ""): 719.0, ("2026-11", "jobs", "research"): 1.0,
        ("2026-12", "idle", ""): 2.0, ("2026-12", "jobs", "research"): 3.0,
    }  # fmt: skip


HOURS = st.floats(0, 2000, allow_nan=False)


@given(st.lists(st.tuples(HOURS, HOURS), max_size=6), st.lists(HOURS, max_size=6).map(sorted))
def test_the_sum_is_all_machine_hours_times_their_rate(runs: list[tuple[float, float]], moments: list[float]):
    """Outages of a node do not overlap: slurmdbd ends the open event of a node before it adds another
    (as_mysql_node_down, src/plugins/accounting_storage/mysql/as_mysql_cluster.c)."""
    found = spent(
        *(run(min(pair), max(pair), "a", "c") for pair in runs),
        outages=tuple(out(*pair, "a") for pair in zip(moments[::2], moments[1::2], strict=False)),
        hours=2000,
        nodes=("a", "b", "c"),
    )
    assert found.total.node_hours == pytest.approx(3 * 2000)
    assert found.total.amount == pytest.approx(2000 * (10 + 10 + 1))
    assert all(row.amount > -0.01 for row in found.rows.values())
