"""Ways to ask for machines: which one a stack file means, and what each is in the words of Google's API."""

import json
from dataclasses import replace

import pytest

from cluster.platforms.gcp.capacity import (
    Affinity,
    Calendar,
    Flex,
    OnDemand,
    Reserved,
    Scheduling,
    Spot,
    of_machine,
    of_nodes,
)
from tests.clouds import google

SHARED = "projects/other-project/reservations/big-one"
CAPACITIES = {
    "none": (None, OnDemand()),
    "on demand": ({"on_demand": {}}, OnDemand()),
    "close": ({"on_demand": {"placement": {"max_distance": 2}}}, OnDemand(max_distance=2)),
    "spot": ({"spot": {}}, Spot()),
    "spot, close": ({"spot": {"placement": {"max_distance": 1}}}, Spot(max_distance=1)),
    "reservation": ({"reservation": "my-reservation"}, Reserved(name="my-reservation")),
    "shared reservation": ({"reservation": {"name": SHARED}}, Reserved(name=SHARED)),
    "close reservation": (
        {"reservation": {"name": SHARED, "placement_policy": "tight"}},
        Reserved(name=SHARED, policy="tight"),
    ),
    # Calendars and flex start are for A3 machines alone.
    "calendar": ({"calendar": "my-week"}, Calendar(name="my-week")),
    "flex, days": ({"flex": {"max_run": "7-00:00:00"}}, Flex(seconds=604800)),
    "flex, minutes": ({"flex": {"max_run": "90"}}, Flex(seconds=5400)),
}


@pytest.mark.parametrize(("given", "way"), CAPACITIES.values(), ids=CAPACITIES)
def test_the_file_says_one_way(given, way):
    kind = "a3-megagpu-8g" if isinstance(way, Calendar | Flex) else "c2-standard-8"
    section = {"machine_type": kind, "count": 1, **({"capacity": given} if given else {})}
    assert [of_nodes(one) for one in google(nodesets={"cpu": section}).nodesets["cpu"].ways] == [way]


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
    assert of_machine(config.controller.capacity) == Spot()
    assert of_machine(config.login.capacity) == OnDemand()
    assert of_machine(None) == OnDemand()


# What Google's documentation of each provisioning model has in its requests, for a machine that can't migrate.
STANDARD = Scheduling(model="STANDARD", on_host_maintenance="TERMINATE", automatic_restart=True)
SPOT = replace(STANDARD, model="SPOT", automatic_restart=False, end="STOP")
FLEX = replace(SPOT, model="FLEX_START", end="DELETE", seconds=60, affinity=Affinity(type="NO_RESERVATION"))


def of(name: str) -> Affinity:
    return Affinity(type="SPECIFIC_RESERVATION", values=(name,))


@pytest.mark.parametrize(
    ("way", "told", "migrates"),
    [
        (OnDemand(), STANDARD, True),
        (OnDemand(max_distance=2), STANDARD, False),
        (Spot(), SPOT, False),
        (Reserved(name=SHARED), replace(STANDARD, affinity=of(SHARED)), True),
        (Reserved(name="r", policy="p"), replace(STANDARD, affinity=of("r")), False),
        (
            Reserved(name="r", bound=True),
            replace(STANDARD, model="RESERVATION_BOUND", end="DELETE", affinity=of("r")),
            False,
        ),
        (Flex(seconds=60), FLEX, False),
        (Calendar(name="c"), replace(STANDARD, model="RESERVATION_BOUND", end="DELETE", affinity=of("c")), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_way_is_told_in_googles_words(way, told, migrates):
    assert way.scheduling(migrates=False) == told
    assert way.scheduling(migrates=True) == (replace(told, on_host_maintenance="MIGRATE") if migrates else told)
