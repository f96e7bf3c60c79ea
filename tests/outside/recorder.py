"""What an outside check did, what differs, and which rows of the ledger it holds."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.outside.ledger import OUTSIDE, Belief


@dataclass(frozen=True)
class Difference:
    id: str
    text: str
    accepted: bool

    def __str__(self) -> str:
        return f"{self.id}: {self.text}"


@dataclass
class Recorder:
    """Of one check."""

    name: str
    ledger: Sequence[Belief]
    done: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    blind: dict[str, str] = field(default_factory=dict)
    """Rows whose tests pass with a wrong belief too, and how that was seen."""
    _passed: list[str] = field(default_factory=list)
    _failed: set[str] = field(default_factory=set)
    _of_test: list[Difference] = field(default_factory=list)
    _held_of_test: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Begin one test of the check."""
        self._of_test, self._held_of_test = [], []

    def did(self, text: str) -> None:
        """Something was compared: say what and how much."""
        self.done.append(text)

    def differs(self, id: str, text: str, *, accepted: bool = False) -> None:  # noqa: A002
        """The artifact and this program differ. The test fails at its end, unless the difference is accepted."""
        difference = Difference(id, text, accepted)
        self.differences.append(difference)
        self._of_test.append(difference)

    def holds(self, *ids: str) -> None:
        """Rows of the ledger that this test holds if it passes, and no other test that names them fails."""
        own = {belief.id for belief in self.ledger if f"{OUTSIDE}{self.name}" in belief.held}
        if stray := [row for row in ids if row not in own]:
            pytest.fail(
                f"no row of the ledger with the id {stray[0]} has {OUTSIDE}{self.name} in `held`", pytrace=False
            )
        self._held_of_test += ids

    def refused(self) -> list[str]:
        """Differences of this test that are not accepted."""
        return [str(difference) for difference in self._of_test if not difference.accepted]

    def passed(self) -> None:
        """This test has passed."""
        self._passed += self._held_of_test

    def failed(self, named: Iterable[str]) -> None:
        """This test has failed, which names these rows; it may have come to none of them."""
        self._failed.update(named, self._held_of_test)

    @property
    def held(self) -> list[str]:
        """Rows that the tests so far hold."""
        return [row for row in dict.fromkeys(self._passed) if row not in self._failed and row not in self.blind]

    def report(self) -> Iterator[str]:
        """Lines for the end of a run."""
        yield from (f"did: {text}" for text in self.done)
        for accepted, label in ((False, "DIFFERS"), (True, "differs, accepted")):
            yield from (f"{label}: {difference}" for difference in self.differences if difference.accepted is accepted)
        yield from (f"HOLDS NOTHING: {row}: {why}" for row, why in self.blind.items())
        yield from (f"holds: {row}" for row in self.held)
        named = [belief.id for belief in self.ledger if f"{OUTSIDE}{self.name}" in belief.held]
        yield from (f"NOT HELD by this run: {row}" for row in named if row not in self.held)
