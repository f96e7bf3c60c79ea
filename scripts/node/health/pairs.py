"""Which nodes are measured with which, and whose network is slow: one slow pair does not say which of the two it is.

Pure functions. A node is good if it was fast with anybody, and slow if it was slow with somebody who is good and fast
with nobody. GoogleCloudPlatform/cluster-health-scanner has the same two passes (ENABLE_TWO_PASS_STRATEGY).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Pair = tuple[str, str]
Measured = Mapping[Pair, bool]
"""Whether a pair was fast."""
ROUNDS = 3


def good(measured: Measured) -> set[str]:
    """Nodes that were fast with anybody."""
    return {name for pair, fast in measured.items() if fast for name in pair}


def slow(measured: Measured) -> dict[str, str]:
    """Slow nodes, each with a good one that it was slow with."""
    sound = good(measured)
    found: dict[str, str] = {}
    for pair, fast in measured.items():
        for name, other in (pair, pair[::-1]):
            if not fast and name not in sound and other in sound:
                found.setdefault(name, other)
    return found


def undecided(measured: Measured) -> set[str]:
    """Nodes of slow pairs of which neither can be told: no good node was measured with them."""
    return {name for pair in measured for name in pair} - good(measured) - set(slow(measured))


def next_pairs(nodes: Iterable[str], measured: Measured) -> list[Pair]:
    """Disjoint pairs to measure next, so that every node is decided: with a good one if there is any, never with the
    same one again. Empty when all are, or nothing more can be found out."""
    sound, bad = good(measured), slow(measured)
    every = sorted(nodes)
    open_ = [name for name in every if name not in sound and name not in bad]
    partners = [name for name in every if name in sound]
    found: list[Pair] = []
    used: set[str] = set()
    for name in open_:
        if name in used:
            continue
        others = [*(one for one in partners), *(one for one in open_ if one != name)]
        free = (one for one in others if one not in used and _unmeasured((name, one), measured))
        other = next(free, None)
        if other is not None:
            found.append((name, other))
            used |= {name, other}
    return found


def _unmeasured(pair: Pair, measured: Measured) -> bool:
    return pair not in measured and pair[::-1] not in measured
