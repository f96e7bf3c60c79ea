"""What follows from checks: to drain the node, to add to its reason, to resume it, or nothing. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

from health.kinds import RESUMES, kinds, parts, reason, resumes


class Action(NamedTuple):
    """What is asked of slurmctld: drain, reason (another one for a node that is drained already), resume or none."""

    name: str
    reason: str = ""


NOTHING = Action("none")


def action(states: set[str], given: str, failed: dict[str, str], *, passes: int, resume_after: int) -> Action:
    """What to do with a node in these states, drained for the reason `given` if it is, whose checks of the kinds in
    `failed` have failed; `passes`: how many runs in a row passed, this one included.

    A drain by anybody else is left alone, and no node is ever set down. A fault that nobody has looked at stays in the
    reason.
    """
    if "DRAIN" not in states:
        return Action("drain", reason(failed)) if failed else NOTHING
    before = parts(given)
    if not before:
        return NOTHING
    if failed:
        stays = {kind: text for kind, text in before.items() if kind not in RESUMES and kind not in failed}
        wanted = {**stays, **failed}
        # Figures change at every run: a new text for the same faults is not worth a write of slurmctld's state.
        return Action("reason", reason(wanted)) if set(wanted) != set(kinds(given)) else NOTHING
    if resumes(given) and passes >= resume_after and not states & {"DOWN", "NOT_RESPONDING", "REBOOT_ISSUED"}:
        return Action("resume")
    return NOTHING
