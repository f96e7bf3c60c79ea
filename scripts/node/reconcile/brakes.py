"""Brakes of the reconcile loop: how much of what it decides may be done in one pass and in an hour."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from reconcile.decision import BY_ID, Action, Do
from reconcile.world import MAINTAINED, Case, World
from slurm import turns


@dataclass(frozen=True)
class Held:
    """Actions that a brake holds back."""

    brake: str
    actions: tuple[Action, ...]


def restrain(actions: Iterable[Action], world: World, *, remaining: int) -> tuple[list[Action], list[Held]]:
    """Return the actions that may be done now, and those that a brake holds back. A pure function.

    Actions that Slurm has requested are not held back. `remaining` is the number of actions left of this hour. In one
    pass at most `max_unavailable` of a nodeset, and two of a small one, are taken out of service or deleted. Nodes in
    service are powered down for a newer template when it is their turn (slurm/turns.py), where nodes that a person
    holds, perhaps for weeks, do not count. A node whose host has a fault is powered down in any case.
    """
    allowed: list[Action] = []
    held: dict[str, list[Action]] = {}
    counts: Counter[str] = Counter()
    actions = list(actions)
    replaced = _replacements(actions, world)
    for action in actions:
        if not BY_ID[action.rule].counts or action.do is Do.ALERT:
            allowed.append(action)
            continue
        nodes = [node for node in world.nodes.values() if node.nodeset == action.nodeset]
        most = max(2, int(world.max_unavailable * len(nodes)))
        if _takes_turn(action) and action.nodes[0] not in replaced:
            most = 0
        if action.rule == "maintain":
            # One that got a job just before it was drained holds up no other.
            waits = [node.name for node in nodes if node.reason.startswith(MAINTAINED)]
            most = 0 if any(not Case(world, name).busy for name in waits) else 1
        if remaining <= 0:
            held.setdefault("actions_per_hour", []).append(action)
        elif counts[action.nodeset] >= most:
            held.setdefault("max_unavailable", []).append(action)
        else:
            counts[action.nodeset] += 1
            remaining -= 1
            allowed.append(action)
    return allowed, [Held(brake, tuple(actions)) for brake, actions in held.items()]


def _takes_turn(action: Action) -> bool:
    return action.do is Do.ASAP and action.rule != "fault-elastic"


def _replacements(actions: Iterable[Action], world: World) -> set[str]:
    """Return the nodes whose machine may be replaced by one of a newer template now."""

    def member(name: str) -> turns.Member:
        node = world.nodes[name]
        return turns.Member((node.nodeset,), Case(world, name).busy, node.ends)

    waiting = {action.nodes[0]: member(action.nodes[0]) for action in actions if _takes_turn(action)}
    if not waiting:
        return set()
    off = {"DOWN", "DRAIN", "POWER_DOWN", "POWERING_DOWN"}
    out = [name for name, node in world.nodes.items() if node.states & off and not Case(world, name).held_by_others]
    sizes = Counter(node.nodeset for node in world.nodes.values())
    return set(turns.next_turns(waiting, map(member, out), sizes, world.max_unavailable))
