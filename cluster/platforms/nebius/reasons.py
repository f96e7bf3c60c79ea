"""Why Soperator drains nodes, and who has to act, by the beginning of the reason.

Sources, nebius/soperator 4.1.7: internal/consts/slurm.go (prefixes), internal/controller/soperatorchecks/
slurm_nodes_controller.go (what the operator does), helm/slurm-cluster/slurm_scripts (checks of jobs and nodes),
helm/soperator-activechecks/values.yaml, docs/active-checks.md. Before 1.22: images/jail/gpubench/main.go and
images/worker/scripts/gpu_healthcheck.sh of 1.15.3, images/worker/gpubench/main.go of 1.20.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.observe.actor import Actor

OPERATOR_SECONDS = 2 * 3600
"""For the operator program and Kubernetes' auto repair: a node is replaced within an hour. Longer than that something
holds it up."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One kind of reason."""

    beginning: str
    """Of the reason, without quotes."""
    what: str
    """Its meaning, as a clause."""
    actor: Actor
    todo: str
    """What the actor does."""
    replaces: bool = False
    """Whether the operator acts only where it may replace nodes (checks.manager.enableNodeReplacement of
    helm-soperatorchecks, off unless it is set)."""


# The first that fits: longer beginnings stand before those that they begin with.
REASONS: Sequence[Reason] = (
    Reason(
        beginning="Kill task failed",
        what="processes of a job did not end when it was killed",
        actor=Actor.OPERATOR,
        todo="it reboots the node and resumes it",
    ),
    Reason(
        beginning="[compute_maintenance] node replacement process",
        what="Nebius has scheduled maintenance of its host, and the node is being replaced",
        actor=Actor.OPERATOR,
        todo="it waits for the jobs, has the instance recreated and resumes the node",
    ),
    Reason(
        beginning="[compute_maintenance] node reboot process",
        what="the node is being rebooted",
        actor=Actor.OPERATOR,
        todo="it waits for the jobs, reboots the node and resumes it",
    ),
    Reason(
        beginning="[compute_maintenance]",
        what="Nebius has scheduled maintenance of its host",
        actor=Actor.OPERATOR,
        todo="it resumes the node after the maintenance",
    ),
    Reason(
        beginning="[hardware_problem]",
        what="the extensive check found broken hardware",
        actor=Actor.OPERATOR,
        todo="it has the instance recreated once the node is idle, and resumes the node",
        replaces=True,
    ),
    Reason(
        beginning="[node_problem]",
        what="a health check of the node failed",
        actor=Actor.OPERATOR,
        todo="it checks the node again, or has its instance recreated, and resumes the node",
        replaces=True,
    ),
    Reason(
        beginning="[user_problem]",
        what="users' processes, files or containers hold what jobs need",
        actor=Actor.USER,
        todo="remove what the reason names; the next health check, within minutes, resumes the node",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Action:
    """Who has to act on a drained node, and how."""

    actor: Actor
    what: str
    todo: str
    known: bool
    """Whether the reason is one of Soperator's."""


def action(reason: str, seconds: float | None, *, replacement: bool) -> Action:
    """Who acts on a node that is drained with this reason since so many seconds, if that is known. `replacement` is
    whether the operator may replace nodes."""
    text = reason.strip().strip("\"'")
    found = next((one for one in REASONS if text.startswith(one.beginning)), None)
    if found is None:
        what = "somebody has drained it" if text else "it is drained, and no reason is given"
        return Action(actor=Actor.ADMIN, what=what, todo="resume it once the reason is gone", known=False)
    if found.actor is not Actor.OPERATOR:
        return Action(actor=found.actor, what=found.what, todo=found.todo, known=True)
    if found.replaces and not replacement:
        todo = "the operator program may not replace nodes here: ask for another host, or resume it once it is well"
        return Action(actor=Actor.SUPPORT, what=found.what, todo=todo, known=True)
    if seconds is not None and seconds > OPERATOR_SECONDS:
        todo = f"the operator program should have acted by now ({found.todo}); ask why it has not"
        return Action(actor=Actor.SUPPORT, what=found.what, todo=todo, known=True)
    return Action(actor=Actor.OPERATOR, what=found.what, todo=found.todo, known=True)
