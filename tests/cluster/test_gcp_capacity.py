"""Ways to ask for machines: each says what Google's API wants of it, and none can say what belongs to another."""

import dataclasses
import json

import pytest

from cluster.platforms.gcp.capacity import (
    Affinity,
    Calendar,
    Flex,
    OnDemand,
    Reserved,
    Scheduling,
    Spot,
    Way,
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
    "shared reservation": ({"reservation": SHARED}, Reserved(name=SHARED)),
    "reservation as a mapping": ({"reservation": {"name": "my-reservation"}}, Reserved(name="my-reservation")),
    "close reservation": (
        {"reservation": {"name": SHARED, "placement_policy": "tight"}},
        Reserved(name=SHARED, policy="tight"),
    ),
    "calendar": ({"calendar": "my-week"}, Calendar(name="my-week")),
}


def nodes(capacity: dict[str, object] | None) -> object:
    # Calendars are for A3 machines alone.
    kind = "a3-megagpu-8g" if capacity and "calendar" in capacity else "c2-standard-8"
    section = {"machine_type": kind, "count": 1, **({"capacity": capacity} if capacity else {})}
    return of_nodes(google(nodesets={"cpu": section}).nodesets["cpu"].capacity)


@pytest.mark.parametrize(("given", "way"), CAPACITIES.values(), ids=CAPACITIES)
def test_the_file_says_one_way(given, way):
    assert nodes(given) == way


@pytest.mark.parametrize("given", ["mine", {"name": "mine"}, {"name": "mine", "placement_policy": "tight"}])
def test_a_reservation_is_told_as_it_was_written_at_its_shortest(given):
    """A stack's output `config` is compared with the next stack file's: a name alone stays one."""
    section = {"machine_type": "c2-standard-8", "count": 1, "capacity": {"reservation": given}}
    before = google(nodesets={"cpu": section})
    shown = json.loads(before.model_dump_json(exclude_unset=True))["nodesets"]["cpu"]["capacity"]["reservation"]
    assert shown == (given if "placement_policy" in given else "mine")
    assert google(nodesets={"cpu": {**section, "capacity": {"reservation": shown}}}) == before


@pytest.mark.parametrize(("limit", "seconds"), [("7-00:00:00", 604800), ("12:00:00", 43200), ("90", 5400)])
def test_flex_start_is_told_in_seconds(limit, seconds):
    config = google(
        nodesets={"gpu": {"machine_type": "a3-megagpu-8g", "count": 1, "capacity": {"flex": {"max_run": limit}}}}
    )
    assert of_nodes(config.nodesets["gpu"].capacity) == Flex(seconds=seconds)


def test_controller_and_login_machines_are_on_demand_or_spot():
    config = google(controller={"capacity": {"spot": {}}}, login={"capacity": {"on_demand": {}}})
    assert of_machine(config.controller.capacity) == Spot()
    assert of_machine(config.login.capacity) == OnDemand()
    assert of_machine(None) == OnDemand()


# What Google's documentation of each provisioning model has in its requests, for a machine with GPUs and one without.
TOLD = {
    "on demand": (OnDemand(), "STANDARD", ("TERMINATE", "MIGRATE"), True, None),
    "close": (OnDemand(max_distance=2), "STANDARD", ("TERMINATE", "TERMINATE"), True, None),
    "spot": (Spot(), "SPOT", ("TERMINATE", "TERMINATE"), False, "STOP"),
    "reservation": (Reserved(name="r"), "STANDARD", ("TERMINATE", "MIGRATE"), True, None),
    "close reservation": (Reserved(name="r", policy="p"), "STANDARD", ("TERMINATE", "TERMINATE"), True, None),
    "flex": (Flex(seconds=60), "FLEX_START", ("TERMINATE", "TERMINATE"), False, "DELETE"),
    "calendar": (Calendar(name="c"), "RESERVATION_BOUND", ("TERMINATE", "TERMINATE"), True, "DELETE"),
}


@pytest.mark.parametrize(("way", "model", "maintenance", "restart", "end"), TOLD.values(), ids=TOLD)
def test_each_way_is_told_in_googles_words(way, model, maintenance, restart, end):
    for migrates, kept in zip((False, True), maintenance, strict=True):
        told = way.scheduling(migrates=migrates)
        assert (told.model, told.on_host_maintenance, told.automatic_restart, told.end) == (model, kept, restart, end)


def test_a_reservation_is_named_and_flex_start_takes_none():
    def affinity(way: Way) -> Affinity | None:
        return way.scheduling(migrates=False).affinity

    assert affinity(Reserved(name=SHARED)) == Affinity(type="SPECIFIC_RESERVATION", values=(SHARED,))
    assert affinity(Calendar(name="my-week")) == Affinity(type="SPECIFIC_RESERVATION", values=("my-week",))
    assert affinity(Flex(seconds=60)) == Affinity(type="NO_RESERVATION")
    assert affinity(OnDemand()) is None
    assert affinity(Spot()) is None


def test_only_flex_start_ends_by_the_clock():
    assert Flex(seconds=60).scheduling(migrates=False).seconds == 60
    ways = [OnDemand(), Spot(), Reserved(name="r"), Calendar(name="c")]
    assert {way.scheduling(migrates=False).seconds for way in ways} == {None}


def test_what_does_not_belong_to_a_way_can_not_be_said():
    fields = {way: {one.name for one in dataclasses.fields(way)} for way in (OnDemand, Spot, Reserved, Flex, Calendar)}
    assert fields == {
        OnDemand: {"max_distance"},
        Spot: {"max_distance"},
        Reserved: {"name", "policy"},
        Flex: {"seconds"},
        Calendar: {"name", "ends"},
    }
    with pytest.raises(TypeError):
        Spot(name="my-reservation")  # type: ignore[call-arg]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Reserved(name="r").name = "s"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Scheduling(model="SPOT", on_host_maintenance="TERMINATE", automatic_restart=False).model = "STANDARD"  # type: ignore[misc]
