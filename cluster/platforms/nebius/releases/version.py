"""Versions of charts in order."""

Number = tuple[int, ...]
"""A version in order: 4.1.7 is (4, 1, 7)."""


def number(version: str) -> Number:
    """A version of numbers, as a tuple that compares; a leading v, and what follows the numbers, are left out."""
    plain = version.removeprefix("v").partition("-")[0].partition("+")[0]
    return tuple(int(one) for one in plain.split(".") if one.isdecimal())
