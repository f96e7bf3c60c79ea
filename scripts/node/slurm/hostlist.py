"""Conversion of names to Slurm's host lists and back, such as `dev-cpu-[0-3,7],dev-gpu-0`.

Both directions keep the order, because `NodeName=` and `NodeAddr=` lists are matched by position, and zero padding:
`n[08-10]` is n08, n09, n10, as in Slurm's hostlist.c.
"""

import itertools
import re
from collections.abc import Iterable

_TRAILING_NUMBER = re.compile(r"^(?P<prefix>.*?)(?P<digits>[0-9]+)$", re.DOTALL)
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"^([0-9]+)(?:-([0-9]+))?$")

LARGEST_RANGE = 65536
"""Slurm refuses a longer range in one bracket (MAX_RANGE, src/common/hostlist.c)."""


def compress(names: Iterable[str]) -> str:
    """Return the shortest host list that expands to these names in the same order.

    Consecutive names with the same prefix share a bracket, and consecutive numbers become a range.
    """
    groups: list[tuple[str, list[tuple[str, str]]]] = []
    for name in names:
        match = _TRAILING_NUMBER.match(name)
        if match is None:
            groups.append((name, []))
            continue
        prefix, digits = match.group("prefix"), match.group("digits")
        if not groups or groups[-1][0] != prefix or not groups[-1][1]:
            groups.append((prefix, []))
        ranges = groups[-1][1]
        if ranges and _follows(ranges[-1], digits):
            ranges[-1] = (ranges[-1][0], digits)
        else:
            ranges.append((digits, digits))
    return ",".join(_write(prefix, ranges) for prefix, ranges in groups)


def _follows(current: tuple[str, str], digits: str) -> bool:
    first, last = current
    if int(digits) - int(first) >= LARGEST_RANGE:
        return False
    # All numbers of a range have the width of the first: 9-10 is 9, 10; 09-10 is 09, 10.
    return digits == str(int(last) + 1).zfill(len(first))


def _write(prefix: str, ranges: list[tuple[str, str]]) -> str:
    if not ranges:
        return prefix
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return prefix + ranges[0][0]
    inside = ",".join(first if first == last else f"{first}-{last}" for first, last in ranges)
    return f"{prefix}[{inside}]"


def expand(hostlist: str) -> list[str]:
    """Return the names of a host list. Several brackets in one name are combined, and the last one varies fastest.

    Raises ValueError, naming the wrong part, for unbalanced brackets and for ranges that are not numeric, run backwards
    or are longer than Slurm allows.
    """
    names: list[str] = []
    for item in _split(hostlist):
        choices: list[list[str]] = []
        for match in _PART.finditer(item):
            inside, plain = match.groups()
            choices.append([plain] if inside is None else _numbers(inside, item))
        names.extend("".join(parts) for parts in itertools.product(*choices))
    return names


def _split(hostlist: str) -> list[str]:
    items, start, depth = [], 0, 0
    for position, character in enumerate(hostlist):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise ValueError(f"host list {hostlist!r}: brackets do not match at position {position}")
        if character == "," and depth == 0:
            items.append(hostlist[start:position])
            start = position + 1
    if depth:
        raise ValueError(f"host list {hostlist!r}: a bracket is never closed")
    items.append(hostlist[start:])
    if items == [""]:
        return []
    if "" in items:
        raise ValueError(f"host list {hostlist!r}: a name between two commas is empty")
    return items


def _numbers(inside: str, item: str) -> list[str]:
    numbers: list[str] = []
    for piece in inside.split(","):
        match = _RANGE.match(piece)
        if match is None:
            raise ValueError(f"host list {item!r}: {piece!r} is no number and no range such as 0-3")
        first, last = match.group(1), match.group(2) or match.group(1)
        if not 0 <= int(last) - int(first) < LARGEST_RANGE:
            raise ValueError(f"host list {item!r}: range {piece!r} runs backwards or exceeds {LARGEST_RANGE} hosts")
        numbers.extend(str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return numbers
