"""Slow nodes, found by measuring pairs: which pairs come next, and what follows from those that were measured.

First every node is in one pair. A node of a slow pair then meets one that was fast with somebody else: two rounds find
every slow node, however many nodes there are, while sound ones are enough to meet each suspect.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

SLOW = 0.9
"""Share of the fastest pair below which a pair is slow: one of eight NICs is more, and sound pairs differ by less."""
ROUNDS = 8
ROUNDS_WITHOUT_FAST = 3
"""Where no pair is fast after so many rounds, it is not a node that is slow."""
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one pair reached."""

    round: int
    nodes: Pair
    job: str
    busbw: float
    """Average at large sizes, GB/s; 0 where nothing was measured."""
    failure: str = ""
    """Why it is slow whatever others reach: below its reference, or the job failed."""


@dataclass
class Pairs:
    """All that was measured of some nodes, and what it says."""

    nodes: Sequence[str]
    measured: list[Measured] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The fastest pair, GB/s."""
        return max((one.busbw for one in self.measured), default=0.0)

    @property
    def rounds(self) -> int:
        return max((one.round for one in self.measured), default=0)

    def is_slow(self, one: Measured) -> bool:
        """Whether a pair is slow."""
        return bool(one.failure) or one.busbw < SLOW * self.best

    @property
    def sound(self) -> list[str]:
        """Nodes that were fast with somebody, so that nothing is wrong with them."""
        fast = {node for one in self.measured if not self.is_slow(one) for node in one.nodes}
        return [node for node in self.nodes if node in fast]

    @property
    def slow(self) -> list[str]:
        """Nodes that were slow with a sound one, and fast with none."""
        sound = set(self.sound)
        met = {node for one in self.measured if self.is_slow(one) and sound & set(one.nodes) for node in one.nodes}
        return [node for node in self.nodes if node in met - sound]

    @property
    def open(self) -> list[str]:
        """Nodes of which nothing is known yet."""
        known = {*self.sound, *self.slow}
        return [node for node in self.nodes if node not in known]

    @property
    def odd(self) -> list[Measured]:
        """Slow pairs of two sound nodes: the way between them."""
        sound = set(self.sound)
        return [one for one in self.measured if self.is_slow(one) and sound.issuperset(one.nodes)]

    def of(self, node: str) -> list[Measured]:
        """What was measured with a node."""
        return [one for one in self.measured if node in one.nodes]

    def next(self) -> list[Pair]:
        """Pairs to measure side by side; empty where all is known, or more pairs would not tell."""
        sound = self.sound
        if self.rounds >= (ROUNDS if sound else ROUNDS_WITHOUT_FAST):
            return []
        tried = {frozenset(one.nodes) for one in self.measured}
        found: list[Pair] = []
        used: set[str] = set()
        for node in (unknown := self.open):
            free = (one for one in sound or unknown if one not in {node, *used} and frozenset((node, one)) not in tried)
            if node not in used and (partner := next(free, "")):
                found.append((node, partner))
                used |= {node, partner}
        return found
