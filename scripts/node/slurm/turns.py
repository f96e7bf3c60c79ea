"""Turns of nodes that are taken out of service a part at a time: an `up` that recreates machines, and the reconcile
loop, which powers them down for a newer template, ask here which nodes are next."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple


class Member(NamedTuple):
    """A node that waits for its turn, or has it: its groups (partitions, or its nodeset), whether it has jobs, and when
    the last of them ends at the latest, in seconds since the epoch."""

    groups: Collection[str]
    busy: bool
    ends: float = 0.0


def next_turns(
    waiting: Mapping[str, Member], out: Iterable[Member], sizes: Mapping[str, int], part: float
) -> list[str]:
    """Return the waiting nodes whose turn it is, in the order of their turns. `out` are those that have it. A pure
    function.

    Nodes without jobs come first, in the order of `waiting`, then busy ones in the order in which their jobs end. At
    most `part` of each group, and at least one node, is out of service without jobs at a time. A node that is drained
    while its jobs run holds up no node without jobs, only further busy ones: it may last for hours.
    """
    without_jobs: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for member in out:
        every.update(member.groups)
        without_jobs.update(() if member.busy else member.groups)
    turns: list[str] = []
    for name, member in sorted(waiting.items(), key=lambda item: (item[1].busy, item[1].ends if item[1].busy else 0.0)):
        counts = every if member.busy else without_jobs
        if any(counts[group] >= max(1, int(part * sizes[group])) for group in member.groups):
            continue
        turns.append(name)
        every.update(member.groups)
        without_jobs.update(() if member.busy else member.groups)
    return turns
