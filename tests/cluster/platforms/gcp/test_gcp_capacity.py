"""Ways to ask for machines: which one a stack file means, and what each is in the words of Google's API."""

import json
from dataclasses import replace

import pytest

from cluster.platforms.gcp.capacity import Affinity, Scheduling, of_machine, of_nodes
from tests.clouds import google

SHARED = "projects/other-project/reservations/big-one"


@pytest.mark.parametrize("given", ["mine", {"name": "mine"}, {"name": "mine", "placement_policy": "tight"}])
def test_a_reservation_is_told_as_it_was_written_at_its_shortest(given):
    """A stack's output `config` is compared with the next stack file's: a name alone stays one."""
    section = {"machine_type": "c2-standard-8", "count": 1, "capacity": {"reservation": given}}
    before = google(nodesets={"cpu": section})
    shown = json.loads(before.model_dump_json(exclude_unset=True))["nodesets"]["cpu"]["capacity"]["reservation"]
    assert shown == (given if "placement_policy" in given else "mine")
    assert google(nodesets={"cpu": {**section, "capacity": {"reservation": shown}}}) == before


def test_controller_and_login_machines_are_on_demand_or_spot():
    config = google(controller={"capacity": {"spot": {}}}, login={"capacity": {"on_demand": {}}})
    assert of_machine(config.controller.capacity, migrates=True) == SPOT
    on_demand = replace(STANDARD, on_host_maintenance="MIGRATE")
    assert of_machine(config.login.capacity, migrates=True) == of_machine(None, migrates=True) == on_demand


# What Google's documentation of each provisioning model has in its requests, for a machine that can't migrate.
STANDARD = Scheduling(model="STANDARD", on_host_maintenance="TERMINATE", automatic_restart=True)
SPOT = replace(STANDARD, model="SPOT", automatic_restart=False, end="STOP")
FLEX = replace(SPOT, model="FLEX_START", end="DELETE", seconds=60, affinity=Affinity(type="NO_RESERVATION"))


def of(name: str) -> Affinity:
    return Affinity(type="SPECIFIC_RESERVATION", values=(name,))


CAPACITIES = {
    "none": (None, STANDARD, True),
    "on demand": ({"on_demand": {}}, STANDARD, True),
    "close": ({"on_demand": {"placement": {"max_distance": 2}}}, replace(STANDARD, max_distance=2), False),
    "spot": ({"spot": {}}, SPOT, False),
    "spot, close": ({"spot": {"placement": {"max_distance": 1}}}, replace(SPOT, max_distance=1), False),
    "reservation": ({"reservation": "mine"}, replace(STANDARD, affinity=of("mine")), True),
    "shared reservation": ({"reservation": {"name": SHARED}}, replace(STANDARD, affinity=of(SHARED)), True),
    "close reservation": (
        {"reservation": {"name": SHARED, "placement_policy": "tight"}},
        replace(STANDARD, affinity=of(SHARED), policy="tight"),
        False,
    ),
    "calendar": (
        {"calendar": "my-week"},
        replace(STANDARD, model="RESERVATION_BOUND", end="DELETE", affinity=of("my-week")),
        False,
    ),
    "flex, days": ({"flex": {"max_run": "7-00:00:00"}}, replace(FLEX, seconds=604800), False),
    "flex, minutes": ({"flex": {"max_run": "90"}}, replace(FLEX, seconds=5400), False),
}


@pytest.mark.parametrize(("given", "asked", "migrates"), CAPACITIES.values(), ids=CAPACITIES)
def test_each_way_is_asked_for_in_googles_words(given, asked, migrates):
    # Calendars and flex start are for A3 machines alone.
    kind = "a3-megagpu-8g" if given and {"calendar", "flex"} & given.keys() else "c2-standard-8"
    section = {"machine_type": kind, "count": 1, **({"capacity": given} if given else {})}
    [way] = google(nodesets={"cpu": section}).nodesets["cpu"].ways
    assert of_nodes(way, migrates=False) == asked
    assert of_nodes(way, migrates=True) == (replace(asked, on_host_maintenance="MIGRATE") if migrates else asked)
    assert (of_nodes(way, migrates=False, elastic=True).end == "DELETE") == (asked.model != "STANDARD")
    bound = of_nodes(way, migrates=True, bound=True)
    ending = replace(asked, model="RESERVATION_BOUND", end="DELETE")
    assert not way.reservation or bound == ending
