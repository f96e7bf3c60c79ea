"""Spare nodes: which are held back from jobs, and that reservations follow the nodes' states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interface import Spares
from reconcile import spares
from slurm.scheduler import State

NODES = {"a": "IDLE", "b": "ALLOCATED", "c": "IDLE", "d": "MIXED"}
STATES = (
    "IDLE", "MIXED", "ALLOCATED", "IDLE+RESERVED", "IDLE+DRAIN", "ALLOCATED+DRAIN", "DOWN", "DOWN+NOT_RESPONDING",
    "IDLE+CLOUD+POWERED_DOWN", "DOWN+CLOUD+POWERED_DOWN", "IDLE+DRAIN+REBOOT_ISSUED",
)  # fmt: skip


def states(nodes: dict[str, str]) -> dict[str, State]:
    return {name: State(states=set(given.split("+")), reason="", partitions=[]) for name, given in nodes.items()}


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
def test_which_nodes_are_held(changed, held, count, chosen):
    assert spares.choose(states(NODES | changed), held, count) == chosen


@given(st.lists(st.sampled_from(STATES), max_size=6), st.sets(st.integers(0, 5)), st.integers(0, 6))
def test_never_more_than_asked_for_only_sound_ones_and_a_second_pass_changes_nothing(given_states, held, count):
    nodes = states({str(number): text for number, text in enumerate(given_states)})
    chosen = spares.choose(nodes, {str(number) for number in held}, count)
    assert len(chosen) <= count
    assert not any(nodes[name]["states"] & {"DOWN", "DRAIN"} for name in chosen)
    assert spares.choose(nodes, chosen, count) == chosen


def test_reservations_follow_the_nodes_and_others_stay(monkeypatch: pytest.MonkeyPatch):
    there = {"hpc-spare-a", "hpc-spare-gone", "hpc-end-a", "maintenance"}
    nodes = dict(NODES)
    monkeypatch.setattr(spares.reservations, "names", lambda: sorted(there))
    monkeypatch.setattr(spares.reservations, "delete", there.discard)
    monkeypatch.setattr(spares.reservations, "hold", lambda name, _: there.add(name))
    monkeypatch.setattr(spares.scheduler, "states", lambda: states(nodes))
    wanted = {"cpu": Spares(nodes=["a", "b", "c", "d"], count=1)}
    spares.keep(wanted)
    assert there == {"hpc-spare-a", "hpc-end-a", "maintenance"}
    nodes["b"] = "DOWN"
    spares.keep(wanted)
    assert there == {"hpc-end-a", "maintenance"}
    nodes["b"] = "IDLE"
    spares.keep(wanted)
    assert there == {"hpc-spare-c", "hpc-end-a", "maintenance"}
    spares.keep({})
    assert there == {"hpc-end-a", "maintenance"}
