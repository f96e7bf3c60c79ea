"""What an outside check did, what differs, and which assumptions it holds."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest


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
    assumptions: Sequence[str]
    """Ids of those that it can hold."""
    done: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    blind: dict[str, str] = field(default_factory=dict)
    """Assumptions whose tests pass with the wrong one too, and how that was seen."""
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
        """Assumptions that this test holds if it passes, and no other test that names them fails."""
        if stray := [name for name in ids if name not in self.assumptions]:
            pytest.fail(f"{stray[0]} is not in tests/outside/mutations.py", pytrace=False)
        self._held_of_test += ids

    def refused(self) -> list[str]:
        """Differences of this test that are not accepted."""
        return [str(difference) for difference in self._of_test if not difference.accepted]

    def passed(self) -> None:
        """This test has passed."""
        self._passed += self._held_of_test

    def failed(self, named: Iterable[str]) -> None:
        """This test has failed, which names these assumptions; it may have come to none of them."""
        self._failed.update(named, self._held_of_test)

    @property
    def held(self) -> list[str]:
        """Assumptions that the tests so far hold."""
        return [name for name in dict.fromkeys(self._passed) if name not in self._failed and name not in self.blind]

    def report(self) -> Iterator[str]:
        """Lines for the end of a run."""
        yield from (f"did: {text}" for text in self.done)
        for accepted, label in ((False, "DIFFERS"), (True, "differs, accepted")):
            yield from (f"{label}: {difference}" for difference in self.differences if difference.accepted is accepted)
        yield from (f"HOLDS NOTHING: {name}: {why}" for name, why in self.blind.items())
        yield from (f"holds: {name}" for name in self.held)
        yield from (f"NOT HELD by this run: {name}" for name in self.assumptions if name not in self.held)
