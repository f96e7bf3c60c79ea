"""A value of a stack file is one value in Slurm's files, never a line: a line may name a program that root starts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.findings import ConfigError
from cluster.load.parse import parse
from cluster.slurm.files import render, render_slurmdbd
from cluster.slurm.text import document, word

ANY = st.text(st.characters(categories=None), min_size=1)
ENDS = [*map(chr, (*range(0x20), 0x7F, 0x85, 0xA0, 0x2028, 0x2029)), '"', "#"]


def config(value: str, place: str) -> dict[str, Any]:
    nodeset: dict[str, Any] = {"count": 1}
    partition: dict[str, Any] = {"nodesets": ["cpu"], "default": True}
    slurm: dict[str, Any] = {}
    settings = {"SchedulerParameters": value} if place == "slurm.extra" else {"CpuBind": value}
    settings = {"Alternate": value} if place == "partition.conf" else settings
    {"slurm.extra": slurm, "nodeset.conf": nodeset, "partition.conf": partition}[place][
        {"slurm.extra": "extra", "nodeset.conf": "node_conf", "partition.conf": "conf"}[place]
    ] = settings
    return {
        "hpc:cluster": {
            "platform": "local", "name": "lab", "slurm": slurm, "nodesets": {"cpu": nodeset},
            "partitions": {"cpu": partition},
        }
    }  # fmt: skip


PLACES = ["slurm.extra", "nodeset.conf", "partition.conf"]


@pytest.mark.parametrize("place", PLACES)
def test_a_good_value_is_taken(place: str):
    assert "bf_max_job_test=1000" in "".join(render(parse(config("bf_max_job_test=1000", place))).values())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("end", ENDS)
def test_one_that_ends_a_line_or_a_value_is_refused(place: str, end: str):
    """U+2028 was taken, and the machine made two lines of it: Epilog=/home/alice/x ran as root."""
    with pytest.raises(ConfigError) as refused:
        parse(config(f"x{end}Epilog=/home/alice/x", place))
    assert "printable ASCII" in str(refused.value)


@pytest.mark.parametrize("place", PLACES)
def test_one_that_would_swallow_the_next_line_is_refused(place: str):
    with pytest.raises(ConfigError, match="at its end"):
        parse(config("x\\", place))


@given(ANY, st.sampled_from(PLACES))
def test_whatever_is_taken_makes_no_line_and_no_other_setting(value: str, place: str):
    def lines(told: dict[str, Any]) -> list[str]:
        whole = parse(told)
        return [line for text in (*render(whole).values(), render_slurmdbd(whole, "x")) for line in text.splitlines()]

    try:
        found = lines(config(value, place))
    except ConfigError:
        return
    assert len(found) == len(lines(config("x", place)))
    assert all(line.isascii() for line in found)


@given(ANY)
def test_the_renderer_itself_writes_no_line_that_a_value_brings(value: str):
    """Whatever was let in before."""
    try:
        found = document("head", [f"Name={word(value)}\n"])
    except ValueError:
        return
    assert len(found.splitlines()) == 3


@pytest.mark.parametrize("line", ["a\tb", "a\u2028b", "a\rb", "\x1b[2J", "caf\u00e9"])
def test_nor_any_that_is_no_plain_text(line: str):
    with pytest.raises(ValueError, match="printable ASCII"):
        document("head", [f"{line}\n"])
