"""Ways to ask for machines: which one a stack file means, and what each is in the words of Google's API."""

import json

import pytest

from cluster.platforms.gcp.capacity import of_machine
from tests.clouds import google


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
    spot, login, default = (
        of_machine(way, migrates=True) for way in (config.controller.capacity, config.login.capacity, None)
    )
    assert (spot.model, spot.on_host_maintenance, spot.automatic_restart) == ("SPOT", "TERMINATE", False)
    assert (login.model, login.on_host_maintenance, login.automatic_restart) == ("STANDARD", "MIGRATE", True)
    assert login == default
