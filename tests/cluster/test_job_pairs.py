"""Slow nodes by pairs: every slow one is found, no sound one is named, and two rounds are enough."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cluster.jobs.nccl import ROUNDS_WITHOUT_FAST, Measured, Pairs

FAST = 188.0


def played(count: int, bad: set[int], *, share: float = 0.25, failure: str = "", ways: frozenset[str] = frozenset()):
    """All rounds on nodes of which some are slow, or only the way between two; what was found."""
    found = Pairs([f"n-{number}" for number in range(count)])
    slow = {f"n-{number}" for number in bad}
    while pairs := found.next():
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs), "each node is in one pair of a round"
        for number, pair in enumerate(pairs):
            hit = bool(slow & set(pair)) or ways == set(pair)
            found.measured.append(
                Measured(
                    round=found.rounds + (number == 0), nodes=pair, job="1",
                    busbw=FAST * (share if hit else 1.0), failure=failure if hit else "",
                )
            )  # fmt: skip
    return found


@given(st.integers(4, 200), st.data(), st.sampled_from([0.0, 0.25, 0.875]))
def test_one_slow_node_is_found_in_two_rounds(count: int, data: st.DataObject, share: float):
    assume(count != 5)  # three suspects, where two are sound
    bad = data.draw(st.integers(0, count - 1))
    found = played(count, {bad}, share=share)
    assert (found.slow, found.open, found.odd) == ([f"n-{bad}"], [], [])
    assert found.rounds == 2
    assert len(found.sound) == count - 1


@given(st.integers(2, 200))
def test_sound_nodes_take_one_round(count: int):
    found = played(count, set())
    assert (found.slow, found.open, len(found.sound)) == ([], [], count)
    # An odd one meets a node of another pair.
    assert (found.rounds, len(found.measured)) == (1 + count % 2, math.ceil(count / 2))


@given(st.integers(4, 60), st.data())
def test_every_slow_node_is_found_while_one_pair_is_fast(count: int, data: st.DataObject):
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 2))
    assume(any({2 * pair, 2 * pair + 1}.isdisjoint(bad) for pair in range(count // 2)))
    found = played(count, bad)
    sound = {f"n-{number}" for number in range(count) if number not in bad}
    assert set(found.slow) <= {f"n-{number}" for number in bad}
    assert set(found.sound) == sound or found.open
    if len(bad) * 3 < count:
        assert set(found.slow) == {f"n-{number}" for number in bad}
    if 4 * len(bad) + 2 <= count:  # each suspect has a sound partner at once
        assert found.rounds <= 2


@given(st.integers(3, 40))
def test_where_all_fail_no_node_is_named(count: int):
    found = played(count, set(range(count)), failure="TCP's level")
    assert (found.slow, found.sound, len(found.open)) == ([], [], count)
    assert found.rounds <= ROUNDS_WITHOUT_FAST


def test_slow_nodes_in_every_first_pair_are_found_where_there_is_a_reference():
    found = played(4, {1, 2}, failure="below the reference")
    assert found.slow == ["n-1", "n-2"]


def test_two_nodes_of_which_one_is_slow_can_not_be_told_apart():
    found = played(2, {1}, failure="below the reference")
    assert (found.slow, found.open, found.rounds) == ([], ["n-0", "n-1"], 1)


def test_a_slow_way_between_two_sound_nodes_is_no_slow_node():
    found = played(8, set(), share=0.5, ways=frozenset({"n-2", "n-3"}))
    assert (found.slow, found.open) == ([], [])
    assert [one.nodes for one in found.odd] == [("n-2", "n-3")]


@pytest.mark.parametrize(("share", "slow"), [(0.95, []), (0.875, ["n-3"])])
def test_one_of_eight_nics_is_enough(share: float, slow: list[str]):
    assert played(6, {3}, share=share).slow == slow
