"""The price of a configuration: its sums are those of its rows, its own rates come first, and nothing is guessed."""

import time
from datetime import date
from typing import Any

import pytest

from cluster import roster
from cluster.catalog.prices import HOURS, OWN
from cluster.config import ClusterConfig
from cluster.cost.estimate import Estimate, Row, differences, estimate
from cluster.cost.nodes import budget_input, node_prices
from tests.clouds import A3, MANAGED, google
from tests.cluster import stacks

CLOUDS = [name for name in stacks.EVERY if stacks.load(name)["hpc:cluster"]["platform"] != "local"]
ELASTIC: dict[str, Any] = A3 | {"count": {"min": 2, "max": 16}, "capacity": [{"reservation": "mine"}, "spot"]}
NETWORK = {"gpu_cidr": "10.0.0.0/17"}


def a3(capacity: Any = None, **changes: Any) -> ClusterConfig:
    nodeset = ELASTIC | ({"capacity": capacity} if capacity else {})
    partitions = {"main": {"nodesets": ["a3"], "default": True, "max_time": "1-00:00:00"}}
    return google(**{"nodesets": {"a3": nodeset}, "partitions": partitions, "network": NETWORK, **changes})


def row(found: Estimate, item: str, *, elastic: bool = False) -> Row:
    (one,) = [row for row in found.rows if row.part.item == item and row.part.elastic == elastic]
    return one


@pytest.mark.parametrize("name", CLOUDS)
def test_sums_are_those_of_the_rows(name: str):
    found = estimate(stacks.config(name))
    hours = {(row.part.elastic, row.part.what, row.part.item): row.hour or 0 for row in found.rows}
    assert len(hours) == len(found.rows), "equal parts are one row"
    assert found.most == pytest.approx(sum(hours.values()))
    assert found.always == pytest.approx(sum(hour for (elastic, *_), hour in hours.items() if not elastic))
    assert {part.item for part in found.unknown} == {row.part.item for row in found.rows if row.hour is None}


def test_a_rehearsal_costs_nothing():
    assert estimate(stacks.config("dev")).rows == ()


def test_nodes_cost_their_machines_gpus_disks_and_local_ssds():
    found = estimate(a3())
    # 92.21427 of the machine, 6000 GB of local SSD at 0.08 and 200 GB of pd-ssd at 0.17 for 730 hours.
    each = 92.21427 + (6000 * 0.08 + 200 * 0.17) / HOURS
    assert found.node_hour("a3") == pytest.approx(each)
    assert found.node_hour("a3", elastic=True) == pytest.approx(each)
    assert found.most - found.always == pytest.approx(14 * each + 14 * 0.0014)
    assert found.node_hour("none") is None


def test_each_node_has_the_sizes_of_slurm_and_the_price_of_its_machine():
    found = a3(nodesets={"a3": ELASTIC, "cpu": {"machine_type": "n2-standard-8", "count": 1}},
               partitions={"main": {"nodesets": ["a3", "cpu"], "default": True, "max_time": "1-00:00:00"}})  # fmt: skip
    currency, nodes = node_prices(found)
    assert currency == "USD"
    assert list(nodes) == [*roster.static_names(found, "a3"), *roster.elastic_names(found, "a3"), "cloud-cpu-0"]
    assert len(nodes) == 17
    a3_node, cpu = nodes["cloud-a3-15"], nodes["cloud-cpu-0"]
    assert (a3_node.cpus, a3_node.gpus, a3_node.hour) == (208, 8, estimate(found).node_hour("a3", elastic=True))
    assert (cpu.gpus, cpu.hour) == (0, estimate(found).node_hour("cpu"))
    assert not any(node.hour for node in node_prices(stacks.config("dev"))[1].values())


def test_attached_gpus_are_parts():
    found = estimate(google(zone="us-west4-a", nodesets={"t4": {"machine_type": "n1-standard-4", "count": 3,
                                                               "gpus": {"type": "t4", "count": 2}}}))  # fmt: skip
    assert row(found, "gpu-t4").hour == pytest.approx(6 * 0.37)


def test_the_dearest_way_counts_and_an_unknown_one_is_unknown():
    assert row(estimate(a3(["spot"])), "a3-megagpu-8g", elastic=True).rate
    spot, both = (estimate(a3(ways)) for ways in (["spot"], ["spot", "on_demand"]))
    assert row(spot, "a3-megagpu-8g", elastic=True).hour == pytest.approx(14 * 28.17013)
    assert row(both, "a3-megagpu-8g", elastic=True).hour == pytest.approx(14 * 92.21427)
    flex = estimate(a3(["spot", "flex"]))
    assert row(flex, "a3-megagpu-8g", elastic=True).rate is None
    assert flex.node_hour("a3", elastic=True) is None
    assert "a3-megagpu-8g" in {part.item for part in flex.unknown}


def test_rates_of_the_stack_file_come_first_and_fill_gaps():
    pricing = {"rates": {"a3-megagpu-8g": 61.0, "exascaler-license": 2.0}}
    found = estimate(a3(storage={"lustre": {"kind": "exascaler"}}, pricing=pricing))
    rate = row(found, "a3-megagpu-8g").rate
    assert rate
    assert (rate.value, rate.source, rate.dated) == (61.0, OWN, None)
    assert row(found, "exascaler-license").hour == 5 * 2.0
    assert found.unknown == ()


def test_a_rate_of_the_stack_file_has_the_unit_of_its_item_where_no_source_has_its_price():
    """None has prices of flex start, nor of V100."""
    found = estimate(a3(["flex"], pricing={"rates": {"a3-megagpu-8g": 61.0, "local-ssd": 0.08}}))
    ssd = row(found, "local-ssd", elastic=True)
    assert ssd.rate
    assert (ssd.rate.unit, ssd.month) == ("GB month", pytest.approx(14 * 6000 * 0.08))
    assert found.node_hour("a3", elastic=True) == pytest.approx(61 + (6000 * 0.08 + 200 * 0.17) / HOURS)
    v100 = {"machine_type": "n1-standard-4", "count": 1, "gpus": {"type": "v100", "count": 2}}
    rate = row(estimate(google(nodesets={"gpu": v100}, pricing={"rates": {"gpu-v100": 2.5}})), "gpu-v100")
    assert (rate.rate and rate.rate.unit, rate.hour) == ("GPU hour", 5.0)


def test_a_part_without_a_known_price_leaves_the_others_of_its_node_in_the_budget():
    """As in the sum of a preview: a disk without a price must not make a machine cost nothing."""
    config = a3(["flex"], pricing={"rates": {"a3-megagpu-8g": 61.0}}, budget={"month": 900.0})
    found, given = estimate(config), budget_input(config)
    assert given
    assert given["unpriced"] == ["local-ssd"]
    assert given["nodes"]["a3"] == pytest.approx(61 + 200 * 0.17 / HOURS)
    assert found.most - found.always == pytest.approx(14 * (given["nodes"]["a3"] + 0.0014))
    assert found.node_hour("a3", elastic=True) is None


def test_committed_use_reduces_machines_alone():
    plain, less = (
        estimate(a3(pricing=pricing))
        for pricing in (None, {"committed_use": {"discount_percent": 40, "share_percent": 50}})
    )
    for before, after in zip(plain.rows, less.rows, strict=True):
        assert before.hour is not None
        factor = 0.8 if before.part.group == "machines" else 1
        assert after.hour == pytest.approx(before.hour * factor), before


def test_list_prices_are_converted_and_own_rates_are_not():
    euro = estimate(a3(pricing={"currency": "EUR", "exchange_rate": 0.5, "rates": {"pd-ssd": 0.2}}))
    plain = estimate(a3())
    assert euro.currency == "EUR"
    hours = [row(found, "a3-megagpu-8g").hour for found in (plain, euro)]
    assert hours[0] == pytest.approx(2 * (hours[1] or 0))
    assert {row.rate.value for row in euro.rows if row.part.item == "pd-ssd" and row.rate} == {0.2}


def test_protected_parts_go_on_costing():
    found = estimate(a3(storage={"lustre": MANAGED}, network=NETWORK | {"services_cidr": "10.128.0.0/20"}))
    assert found.protected == pytest.approx(36000 * 0.34 + 100 * 0.17)
    free = estimate(a3(storage={"lustre": MANAGED}, network=NETWORK | {"services_cidr": "10.128.0.0/20"},
                       deletion_protection=False))  # fmt: skip
    assert free.protected == 0


def test_a_gateway_costs_no_more_beyond_its_limit():
    small, large = (estimate(google(nodesets={"cpu": {"count": count}})) for count in (4, 400))
    assert row(small, "nat").hour == pytest.approx(6 * 0.0014)
    assert row(large, "nat").hour == pytest.approx(0.044)


def test_the_difference_of_an_edit_is_that_of_the_sums():
    before, after = estimate(a3()), estimate(a3(login={"count": 3}, controller={"machine_type": "n2-standard-8"}))
    found = differences(before, after)
    assert {difference.part.what for difference in found} == {"controller", "login", "Cloud NAT"}
    change = sum((difference.after or 0) - (difference.before or 0) for difference in found)
    assert change == pytest.approx((after.most - before.most) * HOURS)
    assert differences(before, before) == []


def test_old_prices_are_found_by_their_date():
    found = estimate(a3())
    assert found.old(date(2026, 11, 28)) == ()
    assert len(found.old(date(2028, 1, 1))) == len(found.rows)


def test_a_large_cluster_is_priced_within_50_ms():
    config = google(nodesets={"cpu": {"count": 1000}})
    estimate(config)  # reads the rows, once
    best = min(_seconds(config) for _ in range(5))
    assert best < 0.05


def _seconds(config: ClusterConfig) -> float:
    begin = time.process_time()
    estimate(config)
    return time.process_time() - begin
