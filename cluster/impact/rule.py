"""Rules: functions from an edit to its impact, with the effects that each may have."""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.config.impact import Effect, Impact
from cluster.impact.edits import Edit


@dataclass(frozen=True, eq=False)
class Rule:
    """What an edit of a field does, where that depends on the values."""

    find: Callable[[Edit], Impact | None]
    possible: tuple[Effect, ...]
    """What it may come to, for whoever reads before there is an edit."""

    def __call__(self, edit: Edit) -> Impact | None:
        """The impact; None of an edit that changes nothing."""
        return self.find(edit)


def rule(*possible: Effect) -> Callable[[Callable[[Edit], Impact | None]], Rule]:
    """Make a function a rule, which may come to these effects."""
    return lambda find: Rule(find, possible)
