"""Drains a node on which a health check has failed, and resumes it when its checks pass again.

A fault calls for a repair of the machine by the reconcile loop (a reboot, another host, or another machine) if one
finding is enough: where a document of NVIDIA's says that the GPU is not to be used, an outcome is `certain`. Any other
fault has to be found twice in one boot, five minutes apart or more: a job that has broken the driver, or a switch that
restarts, is over by then.
"""

import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from health import outcome
from health.kinds import MACHINE, RESUMES, kinds_of_reason, may_resume, parse_reason, reason
from health.outcome import Outcome
from slurm import scheduler
from system import cluster_state
from system.host import SetupError, printable, run

SCONTROL_SECONDS = 10
CONFIRM_SECONDS = 300


def apply_results(
    name: str, mode: str, wanted: dict[str, Any], found: dict[str, Outcome], *, began: float
) -> dict[str, Any]:
    """Drain or resume a node as the results of its checks require, and record them."""
    bad = {kind: result["text"] for kind, result in found.items() if result["state"] == "failed"}
    before = outcome.last_record()
    known = {kind for kind, result in before.get("checks", {}).items() if result["state"] == "failed"}
    whole = mode in ("periodic", "now")
    # Two runs in a row: not the end of a job, seconds after a run that may have met the same moment.
    sure = {kind: text for kind, text in bad.items() if not found[kind].get("unsure") or (whole and kind in known)}
    if "clock" in sure and outcome.is_common(name, "clock"):
        del sure["clock"]
        found["clock"]["text"] += "; so are most other nodes: look at the controller's clock"
    places = {kind: result.pop("place") for kind, result in found.items() if "place" in result}
    kept: dict[str, Any] = {"node": name, "time": began, "seconds": round(time.time() - began, 3), "occasion": mode}
    kept["checks"] = found if whole else {**before.get("checks", {}), **found}
    # Another boot may be of another machine, or of a repaired one: what was found before it proves nothing.
    kept["boot"] = cluster_state.boot_id()
    here = before if before.get("boot") == kept["boot"] else {}
    kept["passes"] = 0 if bad else here.get("passes", 0) + 1
    kept |= update_repairs(here if here.get("held") else {}, found, now=began)
    kept |= {"held": bool(before.get("held", True)), "places": {**before.get("places", {}), **places}}
    # Of which job processes are left on GPUs: until a whole run has seen that they are gone.
    if "gpu-processes" in bad and mode == "epilog":
        kept["left"] = os.environ.get("SLURM_JOB_ID", "")
    elif "left" in before and ("gpu-processes" in bad or not whole):
        kept["left"] = before["left"]
    # slurmctld is not asked at every interval of every node: only where something failed, or a node may be held.
    if wanted["drain"] and (sure or kept["held"]):
        try:
            seen = read_node_state(name)
            passes, enough = kept["passes"], wanted["resume_after"]
            todo = decide(seen["states"], seen["reason"], sure, passes=passes, resume_after=enough)
            if todo.name != "none":
                apply_action(name, todo.name, todo.reason)
                kept["done"] = todo.name
                if wanted["requeue"] and any(found[kind].get("certain") for kind in sure):
                    scheduler.requeue_jobs(name, todo.reason)
            ours = bool(parse_reason(seen["reason"])) and "DRAIN" in seen["states"]
            kept["held"] = todo.name in ("drain", "reason") or (ours and todo.name != "resume")
            if not kept["held"]:
                # Somebody has resumed the node: what it was drained for is theirs to judge.
                kept |= update_repairs({}, found, now=began)
        except SetupError as error:
            kept["why"] = printable(str(error))
    outcome.keep_record(kept)
    return kept


class Action(NamedTuple):
    """A request to slurmctld: drain, reason (another one for a node that is drained already), resume or none."""

    name: str
    reason: str = ""


NO_ACTION = Action("none")


def decide(states: set[str], given: str, failed: dict[str, str], *, passes: int, resume_after: int) -> Action:
    """Return what to do with a node in these states, drained for the reason `given` if it is, whose checks of the kinds
    in `failed` have failed; `passes`: how many runs in a row passed, this one included.

    A drain by anybody else is left alone, and no node is ever set down. A fault that nobody has looked at stays in the
    reason.
    """
    if "DRAIN" not in states:
        return Action("drain", reason(failed)) if failed else NO_ACTION
    before = parse_reason(given)
    if not before:
        return NO_ACTION
    if failed:
        stays = {kind: text for kind, text in before.items() if kind not in RESUMES and kind not in failed}
        wanted = {**stays, **failed}
        # Figures change at every run: a new text for the same faults is not worth a write of slurmctld's state.
        return Action("reason", reason(wanted)) if set(wanted) != set(kinds_of_reason(given)) else NO_ACTION
    if may_resume(given) and passes >= resume_after and not states & {"DOWN", "NOT_RESPONDING", "REBOOT_ISSUED"}:
        return Action("resume")
    return NO_ACTION


def read_node_state(name: str) -> scheduler.State:
    """The node's state. Raises SetupError: slurmctld does not answer, or has no such node."""
    found = scheduler.parse_nodes(run("scontrol", "--oneliner", "show", "node", name, timeout=SCONTROL_SECONDS))
    if name not in found:
        raise SetupError(f"slurmctld does not know {name}")
    return found[name]


def apply_action(name: str, action: str, reason: str) -> None:
    """Drain a node, change its reason, or resume it. Raises SetupError: slurmctld refused."""
    words = {
        "drain": ["State=DRAIN", f"Reason={reason}"],
        "reason": [f"Reason={reason}"],
        "resume": ["State=RESUME"],
    }[action]
    run("scontrol", "update", f"NodeName={name}", *words, timeout=SCONTROL_SECONDS)


def update_repairs(before: Mapping[str, Any], found: Mapping[str, Outcome], *, now: float) -> dict[str, Any]:
    """Return what a run's record says of repair. `before` is the last record of this boot, where the node was held,
    `found` what this run has found. A pure function.

    `faults`: since when each fault of the machine is known; `repair`: those that call for one. What a pass proves
    nothing about stays until the machine has booted again: a Xid is logged once.
    """
    failed = {kind for kind, outcome in found.items() if outcome["state"] == "failed"} & MACHINE
    passed = {kind for kind in found if kind not in failed and kind in RESUMES}
    since: dict[str, float] = {kind: at for kind, at in before.get("faults", {}).items() if kind not in passed}
    since = {**dict.fromkeys(sorted(failed), now), **since}
    called = {kind for kind in before.get("repair", ()) if kind not in passed}
    called |= {kind for kind in failed if found[kind].get("certain") or now - since[kind] >= CONFIRM_SECONDS}
    return {"faults": since, "repair": sorted(called)}
