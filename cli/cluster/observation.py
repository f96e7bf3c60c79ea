"""Reads an observation from every machine of a cluster, in parallel."""

import json
import re
from collections.abc import Iterable

from cli.access import remote
from cli.cluster.cluster import Cluster
from cluster.observe.observation import ClusterObservation, MachineObservation, Observation
from scripts.node.interface import ROLES

SECONDS = 8.0
"""Time limit of one machine: twice its own limit (scripts/node/collect.py), to leave time for the connection."""
EACH = 0.2
"""The limit in a large cluster is this times the number of its machines: those of a rehearsal share the processors of
one host."""
LONGER = 3
"""Factor of the limit for a second try of machines that were late, as they are on a busy host."""
OBSERVE = "echo; HPC_TIMEOUT_FACTOR={factor:.3g} exec python3 /usr/local/lib/hpc/node look"
"""The line feed shows that the machine accepted the connection."""
_NO_SUCH_PHASE = 2
_NO_PROGRAM = ("can't open file", "can't find '__main__'")
OLD, GONE = "its set-up is of an earlier version", "its set-up is gone"


def observe(cluster: Cluster, *, seconds: float | None = None) -> ClusterObservation:
    """Return the observations of all machines of a cluster, those that do not answer included.

    `seconds` is the time limit of each machine. Without it, machines that are late get a second try with a longer
    limit."""
    usual = timeout(len(cluster.targets))
    machines = _observe(cluster, cluster.targets, seconds or usual, factor=(seconds or usual) / usual)
    if not seconds and (late := [name for name, machine in machines.items() if machine.needs_longer_timeout]):
        for name, machine in _observe(cluster, late, LONGER * usual, factor=LONGER).items():
            if machine.has_facts or not machines[name].has_facts:
                machines[name] = machine
    return ClusterObservation(stack=cluster.stack, machines=tuple(sorted(machines.values(), key=_rank)))


def _observe(cluster: Cluster, names: Iterable[str], seconds: float, *, factor: float) -> dict[str, MachineObservation]:
    targets = [cluster.targets[name] for name in names]
    answers = remote.gather(
        targets, cluster.admin_key, OBSERVE.format(factor=factor), seconds=seconds, connect_seconds=seconds
    )
    return {name: _observation(name, cluster.targets[name].roles, done) for name, done in answers.items()}


def _rank(machine: MachineObservation) -> tuple[int, list[tuple[str, int]]]:
    """Return the sort key of a machine: by its role, and cpu-9 before cpu-10, so that host lists are short."""
    rank = min(ROLES.index(role) for role in ROLES if role in machine.roles)
    return rank, [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", machine.name)]


def timeout(machines: int) -> float:
    """Return the time limit of each machine of a cluster with so many."""
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
