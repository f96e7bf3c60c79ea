"""What a verdict is: a pure function from an edit to its consequence; and words that several share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cluster.impact.impact import Consequence, Effect, replace
from cluster.slurm import hostlist

if TYPE_CHECKING:
    from cluster.impact.edits import Edit

Verdict = Callable[["Edit"], Consequence]
POSSIBLE: dict[Verdict, tuple[Effect, ...]] = {}
"""What each verdict may come to, for whoever reads before there is an edit."""

STATE_STAYS = "Slurm's state, with the jobs that wait, and job records are in a folder of their own and stay"
"""On local."""
_RECORDS_STAY = (
    "Slurm's state, job records, /opt/apps and home folders are on its state disk and stay; jobs on other machines run "
    "on, and wait for files that are there"
)


def among(*effects: Effect) -> Callable[[Verdict], Verdict]:
    """Say what a verdict may come to."""

    def note(verdict: Verdict) -> Verdict:
        POSSIBLE[verdict] = effects
        return verdict

    return note


def names(machines: Iterable[str]) -> str:
    """Names of machines as Slurm writes them in one: lab-cpu-[0-3]."""
    return hostlist.compress(machines)


def who_is_there(nodes: Iterable[str]) -> str:
    """The command that shows whose jobs run on nodes."""
    return f"./hpc ssh {{stack}} controller -- squeue --nodelist='{names(nodes)}'"


def controller_anew(edit: Edit, how: str = "the controller is made anew") -> Consequence:
    """What the controller takes with it when it goes, and what stays."""
    hosted = any(section.on for section in edit.before.nodesets.values())
    own = "; jobs on the controller itself end" if hosted else ""
    stays = f"{STATE_STAYS}; jobs on other machines run on" if edit.after.platform == "local" else _RECORDS_STAY
    return replace(f"{how}: {stays}{own}")
