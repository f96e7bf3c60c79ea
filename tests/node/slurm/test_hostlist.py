"""Conversion of names to host lists and back keeps the order, as NodeName and NodeAddr are matched by position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.node.slurm import hostlist

PREFIX = st.sampled_from(["n", "dev-cpu-", "10.77.2.", "rack2-n", "a"])
NUMBER = st.integers(min_value=0, max_value=1200)
NUMBERED = st.builds(lambda prefix, number, width: f"{prefix}{number:0{width}d}", PREFIX, NUMBER, st.integers(1, 4))
NAMES = st.lists(st.one_of(NUMBERED, st.sampled_from(["login", "dev-controller", "x-"])), max_size=40)


@given(NAMES)
def test_a_compressed_list_expands_to_the_same_names_in_order(names):
    assert hostlist.expand(hostlist.compress(names)) == names


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_consecutive_numbers_are_one_range(first, count):
    names = [f"dev-cpu-{number}" for number in range(first, first + count)]
    expected = f"dev-cpu-{first}" if count == 1 else f"dev-cpu-[{first}-{first + count - 1}]"
    assert hostlist.compress(names) == expected


@pytest.mark.parametrize(
    ("names", "written"),
    [
        ([], ""),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n9", "n010"], "n[9,010]"),
        (["n3", "n1", "n2"], "n[3,1-2]"),
        (["a1", "b1", "b2"], "a1,b[1-2]"),
        (["10.77.2.254", "10.77.2.255", "10.77.3.0"], "10.77.2.[254-255],10.77.3.0"),
    ],
)
def test_compressed_lists(names, written):
    assert hostlist.compress(names) == written


def test_several_brackets_are_combined_and_the_last_varies_fastest():
    assert hostlist.expand("r[0-1]n[1,3],x") == ["r0n1", "r0n3", "r1n1", "r1n3", "x"]


def test_no_range_is_longer_than_slurm_allows():
    names = [f"n{number}" for number in range(hostlist.LARGEST_RANGE + 5)]
    assert hostlist.compress(names) == "n[0-65535,65536-65540]"


@pytest.mark.parametrize("wrong", ["n[1-", "n1]", "n[[1]]", "n[a-b]", "n[3-1]", "n[]", "a,,b", "n[0-65536]"])
def test_an_invalid_host_list_is_refused(wrong):
    with pytest.raises(ValueError, match="host list"):
        hostlist.expand(wrong)
