"""Rules: functions from an edit to its impact, with the effects that each may have; and what several of them share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster.config.impact import Effect, Impact, Replace
from cluster.impact.edits import Edit
from cluster.slurm import hostlist


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


def names(machines: Iterable[str]) -> str:
    """Names of machines as Slurm writes them in one: lab-cpu-[0-3]."""
    return hostlist.compress(machines)


def show_jobs(nodes: Iterable[str]) -> str:
    """The command that shows whose jobs run on nodes."""
    return f"./hpc ssh {{stack}} controller -- squeue --nodelist='{names(nodes)}'"


def recreate_controller(edit: Edit, stays: str, how: str = "the controller is recreated") -> Impact:
    """What is lost with the controller; `stays` says what is not."""
    hosted = any(section.on for section in edit.before.nodesets.values())
    return Replace(f"{how}: {stays}" + ("; jobs on the controller itself end" if hosted else ""))
