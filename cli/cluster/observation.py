"""Asks every machine of a cluster how it is, side by side."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cli.access import remote
from cli.cluster.cluster import Cluster, from_outputs
from cluster.observe.observation import ClusterObservation, MachineObservation, Observation
from scripts.node.interface import ROLES

SECONDS = 8.0
"""Time limit of one machine's answer: twice its own (scripts/node/collect.py), for the connection's sake."""
EACH = 0.2
"""Seconds of two cores that one machine of a rehearsal needs: many on one host wait for each other."""
LONGER = 3
"""Times as long for machines that were late: on a busy host they answer at a second try."""
LOOK = "echo; HPC_TIMEOUT_FACTOR={factor:.3g} exec python3 /usr/local/lib/hpc/node look"
"""The line feed says that the machine let us in."""
_NO_SUCH_PHASE = 2
_NO_PROGRAM = ("can't open file", "can't find '__main__'")
OLD, GONE = "its set-up is of an earlier version", "its set-up is gone"


def observe(stack: str, outputs: Mapping[str, Any], *, seconds: float | None = None) -> ClusterObservation:
    """The observations of all machines of a stack, also of those that do not answer. Each is given `seconds`; if none
    are given, machines that are late are asked once more, with a longer deadline. Raises CliError: the stack is not
    up."""
    cluster = from_outputs(stack, outputs)
    usual = timeout(len(cluster.targets))
    seen = _ask(cluster, cluster.targets, seconds or usual, factor=(seconds or usual) / usual)
    if not seconds and (again := [name for name, machine in seen.items() if machine.deserves_longer]):
        for name, machine in _ask(cluster, again, LONGER * usual, factor=LONGER).items():
            seen[name] = machine if machine.has_facts or not seen[name].has_facts else seen[name]
    return ClusterObservation(stack=stack, machines=tuple(sorted(seen.values(), key=_rank)))


def _ask(cluster: Cluster, names: Iterable[str], seconds: float, *, factor: float) -> dict[str, MachineObservation]:
    targets = [cluster.targets[name] for name in names]
    answers = remote.gather(
        targets, cluster.admin_key, LOOK.format(factor=factor), seconds=seconds, connect_seconds=seconds
    )
    return {name: _observation(name, cluster.targets[name].roles, done) for name, done in answers.items()}


def _rank(machine: MachineObservation) -> tuple[int, list[tuple[str, int]]]:
    """In the order of roles; cpu-9 before cpu-10, so that host lists are short."""
    rank = min(ROLES.index(role) for role in ROLES if role in machine.roles)
    return rank, [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", machine.name)]


def timeout(machines: int) -> float:
    """Seconds that each of so many machines is given."""
    return max(SECONDS, EACH * machines)


def _observation(name: str, roles: tuple[str, ...], done: remote.CommandResult) -> MachineObservation:
    facts: Observation = {}
    why = ""
    if not done.reached:
        why = _last(done.err) or "no answer"
    elif done.code:
        why = _failure(done)
    else:
        try:
            facts = json.loads(done.out)
        except ValueError:
            why = f"its answer can't be read: {done.out[:80]!r}"
    return MachineObservation(
        name=name,
        roles=roles,
        reached=done.reached,
        why=why,
        late=done.late,
        old=why == OLD,
        facts=facts,
        asked=done.asked,
        answered=done.answered,
    )


def _failure(done: remote.CommandResult) -> str:
    """Return why a machine that was reached returned no observation."""
    # Python ends with the same code where it finds no program at all.
    if done.code == _NO_SUCH_PHASE and not any(words in done.err for words in _NO_PROGRAM):
        return OLD
    return GONE if done.code == _NO_SUCH_PHASE else _last(done.err) or f"exit code {done.code}"


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
