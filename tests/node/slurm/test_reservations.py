"""Reservations of spare nodes: which nodes are chosen, and that reservations follow the nodes' states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interface import Spares
from slurm import reservations

NODES = {"a": "IDLE", "b": "ALLOCATED", "c": "IDLE", "d": "MIXED"}
STATES = (
    "IDLE", "MIXED", "ALLOCATED", "IDLE+RESERVED", "IDLE+DRAIN", "ALLOCATED+DRAIN", "DOWN", "DOWN+NOT_RESPONDING",
    "IDLE+CLOUD+POWERED_DOWN", "DOWN+CLOUD+POWERED_DOWN", "IDLE+DRAIN+REBOOT_ISSUED",
)  # fmt: skip


def states(nodes: dict[str, str]) -> dict[str, set[str]]:
    return {name: set(given.split("+")) for name, given in nodes.items()}


@pytest.mark.parametrize(
    ("changed", "held", "count", "chosen"),
    [
        ({}, (), 1, {"c"}),
        ({}, (), 2, {"a", "c"}),
        ({}, ("d",), 1, {"d"}),
        ({"a": "IDLE+DRAIN"}, ("c",), 1, set()),
        ({"a": "IDLE+DRAIN"}, ("c",), 2, {"c"}),
        ({"c": "DOWN"}, ("c",), 1, set()),
        ({"c": "IDLE+DRAIN+REBOOT_ISSUED"}, ("a",), 1, {"a"}),
        ({"a": "IDLE+CLOUD+POWERED_DOWN"}, (), 1, {"a"}),
        ({"a": "IDLE+CLOUD+POWERED_DOWN", "c": "IDLE+CLOUD+RESERVED"}, ("c",), 1, {"a"}),
        ({"a": "IDLE+CLOUD+POWERED_DOWN", "c": "IDLE+CLOUD+POWERED_DOWN"}, ("a",), 1, {"a"}),
        ({"a": "DOWN+CLOUD+POWERED_DOWN"}, ("c",), 1, {"c"}),
        ({}, ("c",), 0, set()),
    ],
)
def test_which_nodes_are_chosen_as_spares(changed, held, count, chosen):
    assert reservations.choose_spares(states(NODES | changed), held, count) == chosen


@given(st.lists(st.sampled_from(STATES), max_size=6), st.sets(st.integers(0, 5)), st.integers(0, 6))
def test_spares_are_working_nodes_up_to_the_count_and_stay_in_the_next_pass(given_states, held, count):
    nodes = states({str(number): text for number, text in enumerate(given_states)})
    chosen = reservations.choose_spares(nodes, {str(number) for number in held}, count)
    assert len(chosen) <= count
    assert not any(nodes[name] & {"DOWN", "DRAIN"} for name in chosen)
    assert reservations.choose_spares(nodes, chosen, count) == chosen


def test_reservations_of_spares_follow_the_nodes_and_others_stay(monkeypatch: pytest.MonkeyPatch):
    there = {"hpc-spare-a", "hpc-spare-gone", "hpc-end-a", "maintenance"}

    def scontrol(_scontrol: str, verb: str, *words: str, **_: object) -> str:
        named = [word.partition("=")[2] for word in words if word.startswith("ReservationName=")]
        {"create": there.update, "delete": there.difference_update}.get(verb, set)(named)
        return "".join(f"ReservationName={name} StartTime=x\n" for name in there)

    monkeypatch.setattr(reservations, "run", scontrol)
    wanted = {"cpu": Spares(nodes=["a", "b", "c", "d"], count=1)}
    for changed, held in (({}, {"a"}), ({"b": "DOWN"}, set()), ({"b": "IDLE"}, {"c"})):
        reservations.keep_spares(wanted, states(NODES | changed))
        assert there == {"hpc-end-a", "maintenance", *(f"hpc-spare-{name}" for name in held)}
    reservations.keep_spares({}, {})
    assert there == {"hpc-end-a", "maintenance"}
