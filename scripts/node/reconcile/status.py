"""The reconcile loop's actions, alerts and brakes in words, for its log and its status."""

from collections.abc import Iterable
from pathlib import Path

from interface import ReconcileInput
from reconcile.brakes import Held
from reconcile.compute_engine import ComputeEngine
from reconcile.decision import Action
from reconcile.world import Case, World

LIFT = "hpc-reconcile lift"
UNUSED = {
    "stray": "no node has the name, and the reconcile loop has not made it",
    "stray-asleep": "the node is powered down, and the reconcile loop has not made the machine",
    "held-asleep": "the node is powered down, and held by a drain or a MAINT reservation. The command has the machine "
    "deleted, and ends a drain",
}
"""Rules about machines that cost and are not used, with the reason."""


def describe(action: Action, world: World) -> str:
    """Return an action and its situation in a line."""
    case = Case(world, action.nodes[0])
    states = "+".join(sorted(case.states)) or "not in slurm.conf"
    way = f" as {action.way}" if action.way else ""
    why = f" ({action.reason or case.reason})" if action.reason or case.reason else ""
    situation = f"instance {case.status or 'none'}, node {states}"
    return f"{action.do.value}{way}: {','.join(action.nodes)}: {action.rule}: {situation}{why}"


def alert(action: Action, world: World, cloud: ComputeEngine) -> dict[str, str]:
    """Return what a person has to know, and the command that helps; STACK stands for the stack's name."""
    (name,) = action.nodes
    case = Case(world, name)
    update = f"./hpc ssh STACK controller -- scontrol update NodeName={name} State="
    what, todo = describe(action, world), "./hpc logs STACK reconcile"
    if action.rule in UNUSED:
        what = f"{name}: its machine runs in {case.instance.zone} and costs, and Slurm does not use it: "
        what += UNUSED[action.rule] + (f" ({case.reason})" if case.reason else "")
        todo = cloud.delete_command(case.instance)
    if action.rule == "held-asleep":
        todo = f"{update}POWER_DOWN"
    elif action.rule == "stray-asleep" and not case.node.elastic:
        todo = f"{update}POWER_UP"
    return {"rule": action.rule, "node": name, "what": what, "todo": todo}


def brakes(settings: ReconcileInput, paused: Path, held: Iterable[Held]) -> list[dict[str, str]]:
    """Return what keeps the loop from acting, and what lifts it. `paused` is the file of a pause."""
    found: list[dict[str, str]] = []
    mode = settings["mode"]
    if mode != "act":
        todo = "set slurm.reconcile.mode: act"
        found.append({"brake": f"mode: {mode}", "text": "nothing is done", "todo": todo})
    if paused.exists():
        found.append({"brake": "paused", "text": f"{paused} is there", "todo": "hpc-reconcile unpause"})
    for brake in held:
        # The other brake, max_unavailable, lets a part through in each pass, so nobody has to act.
        if brake.brake == "actions_per_hour":
            nodes = ",".join(sorted({name for action in brake.actions for name in action.nodes}))
            text = f"{len(brake.actions)} actions wait: {nodes} ({brake.brake}: {settings['actions_per_hour']})"
            found.append({"brake": brake.brake, "text": text, "todo": LIFT})
    return found
