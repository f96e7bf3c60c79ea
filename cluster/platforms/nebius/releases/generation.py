"""Generations of Soperator: versions whose charts take the same values."""

from enum import Enum

Number = tuple[int, ...]
"""A version in order: 4.1.7 is (4, 1, 7)."""


class Generation(Enum):
    """Versions whose charts take the same values."""

    GEN1 = "gen1"
    """Before 1.22: one kind of workers, in the SlurmCluster; controllers have a count; a periodic NCCL test."""
    GEN2 = "gen2"
    """1.22 to 2.x: one controller, active checks; workers still in the SlurmCluster."""
    GEN3 = "gen3"
    """From 3.0 on: workers are NodeSets of a chart of their own, partitions name them."""


def number(version: str) -> Number:
    """A version of numbers, as a tuple that compares; a leading v, and what follows the numbers, are left out."""
    plain = version.removeprefix("v").partition("-")[0].partition("+")[0]
    return tuple(int(one) for one in plain.split(".") if one.isdecimal())


def generation(version: str) -> Generation:
    """The generation of a version of Soperator."""
    if number(version) < (1, 22):
        return Generation.GEN1
    return Generation.GEN2 if number(version) < (3,) else Generation.GEN3
