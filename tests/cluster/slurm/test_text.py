"""A value of a stack file is one value in Slurm's files, and never a line, which may name a program that root runs."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.findings import ConfigError
from cluster.slurm.files import render, render_slurmdbd
from cluster.slurm.text import document, word
from tests.cluster.stacks import Changes, cluster, extra, nodeset, partition

ANY = st.text(st.characters(categories=None), min_size=1)
ENDS = [*map(chr, (*range(0x20), 0x7F, 0x85, 0xA0, 0x2028, 0x2029)), '"', "#"]


PLACES: dict[str, Callable[[str], Changes]] = {
    "slurm.extra": lambda value: extra(SchedulerParameters=value),
    "nodeset.conf": lambda value: nodeset(node_conf={"CpuBind": value}),
    "partition.conf": lambda value: partition(conf={"Alternate": value}),
}


def written(place: str, value: str) -> list[str]:
    """Return the lines of all files of a cluster with the value at a place."""
    found = cluster(**PLACES[place](value))
    return [line for text in (*render(found).values(), render_slurmdbd(found, "x")) for line in text.splitlines()]


@pytest.mark.parametrize("place", PLACES)
def test_a_valid_value_is_written(place: str):
    assert "bf_max_job_test=1000" in "".join(written(place, "bf_max_job_test=1000"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("end", ENDS)
def test_a_value_that_ends_a_line_or_itself_is_refused(place: str, end: str):
    """U+2028 was accepted once, and read as a line end by the machine: Epilog=/home/alice/x ran as root."""
    with pytest.raises(ConfigError) as refused:
        written(place, f"x{end}Epilog=/home/alice/x")
    assert "printable ASCII" in str(refused.value)


@pytest.mark.parametrize("place", PLACES)
def test_a_value_that_joins_the_next_line_is_refused(place: str):
    with pytest.raises(ConfigError, match="at its end"):
        written(place, "x\\")


@given(ANY, st.sampled_from([*PLACES]))
def test_an_accepted_value_adds_no_line(value: str, place: str):
    try:
        found = written(place, value)
    except ConfigError:
        return
    assert len(found) == len(written(place, "x"))
    assert all(line.isascii() for line in found)


@given(ANY)
def test_the_renderer_writes_no_additional_line(value: str):
    """Also of values that validators would refuse."""
    try:
        found = document("head", [f"Name={word(value)}\n"])
    except ValueError:
        return
    assert len(found.splitlines()) == 3


@pytest.mark.parametrize("line", ["a\tb", "a\u2028b", "a\rb", "\x1b[2J", "caf\u00e9"])
def test_the_renderer_writes_only_printable_ascii(line: str):
    with pytest.raises(ValueError, match="printable ASCII"):
        document("head", [f"{line}\n"])
