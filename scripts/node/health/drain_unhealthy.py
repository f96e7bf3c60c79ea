"""Drains a node on which a health check has failed, and resumes it when its checks pass again.

Some faults require a repair of the machine by the reconcile loop: a reboot, another host or another machine. A
`certain` outcome, for which NVIDIA's documents say that the GPU must not be used, requires it at once. Any other fault
must be found twice in one boot, at least five minutes apart: a job that broke the driver, or the restart of a switch,
is over by then.
"""

import os
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from health import outcome
from health.check_kinds import MACHINE, RESUMES, may_resume, parse_reason, reason
from health.outcome import Outcome
from slurm import nodes, scheduler
from slurm.nodes import Node
from system import cluster_state
from system.host import SetupError, printable, run

SCONTROL_SECONDS = 10
CONFIRM_SECONDS = 300


def apply_results(
    name: str, mode: str, wanted: dict[str, Any], found: dict[str, Outcome], *, began: float
) -> dict[str, Any]:
    """Drain or resume a node as the results of its checks require, and record them."""
    failed = {kind: result["text"] for kind, result in found.items() if result["state"] == "failed"}
    before = outcome.last_record()
    failed_before = {kind for kind, result in before.get("checks", {}).items() if result["state"] == "failed"}
    is_full_run = mode in ("periodic", "now")
    # An `unsure` failure drains at the second full run in a row. The epilog of a job is no second run: it may come
    # seconds after the first.
    faults = {
        kind: text
        for kind, text in failed.items()
        if not found[kind].get("unsure") or (is_full_run and kind in failed_before)
    }
    if "clock" in faults and outcome.is_common(name, "clock"):
        del faults["clock"]
        found["clock"]["text"] += "; so are most other nodes: look at the controller's clock"
    places = {kind: result.pop("place") for kind, result in found.items() if "place" in result}
    record: dict[str, Any] = {"node": name, "time": began, "seconds": round(time.time() - began, 3), "occasion": mode}
    record["checks"] = found if is_full_run else {**before.get("checks", {}), **found}
    # Another boot may be of another or a repaired machine: earlier results prove nothing.
    record["boot"] = cluster_state.boot_id()
    this_boot = before if before.get("boot") == record["boot"] else {}
    record["passes"] = 0 if failed else this_boot.get("passes", 0) + 1
    record |= update_repairs(this_boot if this_boot.get("held") else {}, found, now=began)
    record |= {"held": bool(before.get("held", True)), "places": {**before.get("places", {}), **places}}
    # The job that left processes on GPUs, until a full run finds that they have ended.
    if "gpu-processes" in failed and mode == "epilog":
        record["left"] = os.environ.get("SLURM_JOB_ID", "")
    elif "left" in before and ("gpu-processes" in failed or not is_full_run):
        record["left"] = before["left"]
    # Asks slurmctld only if a check failed or the node may be held: not for every node at every interval.
    if wanted["drain"] and (faults or record["held"]):
        try:
            node = read_node(name)
            passes, resume_after = record["passes"], wanted["resume_after"]
            action = decide(node.states, node.reason, faults, passes=passes, resume_after=resume_after)
            if action.name != "none":
                apply_action(name, action.name, action.reason)
                record["done"] = action.name
                if wanted["requeue"] and any(found[kind].get("certain") for kind in faults):
                    scheduler.requeue_jobs(name, action.reason)
            drained = bool(parse_reason(node.reason)) and node.drained
            record["held"] = action.name in ("drain", "reason") or (drained and action.name != "resume")
            if not record["held"]:
                # Somebody has resumed the node, and with it accepted the faults that it was drained for.
                record |= update_repairs({}, found, now=began)
        except SetupError as error:
            record["why"] = printable(str(error))
    outcome.keep_record(record)
    return record


class DrainRequest(NamedTuple):
    """A request to slurmctld: drain, reason (a new one for a drained node), resume or none."""

    name: str
    reason: str = ""


NO_ACTION = DrainRequest("none")


def decide(
    states: Collection[str], current: str, failed: dict[str, str], *, passes: int, resume_after: int
) -> DrainRequest:
    """Return the action for a node with these states and this `current` reason, on which the checks in `failed` failed.

    `passes` is the number of runs in a row without a failure, including this one. A drain by anybody else is left
    alone, and no node is ever set down. Faults that need a repair stay in the reason.
    """
    if "DRAIN" not in states:
        return DrainRequest("drain", reason(failed)) if failed else NO_ACTION
    before = parse_reason(current)
    if not before:
        return NO_ACTION
    if failed:
        lasting = {kind: text for kind, text in before.items() if kind not in RESUMES and kind not in failed}
        faults = {**lasting, **failed}
        # Figures change at every run: new figures of the same faults are not worth a write of slurmctld's state.
        return DrainRequest("reason", reason(faults)) if set(faults) != set(before) else NO_ACTION
    lost = {"DOWN", "NOT_RESPONDING", "REBOOT_ISSUED"}.intersection(states)
    if may_resume(current) and passes >= resume_after and not lost:
        return DrainRequest("resume")
    return NO_ACTION


def read_node(name: str) -> Node:
    """Return the node. Raises SetupError if slurmctld does not answer or has no such node."""
    found = nodes.parse(run(*nodes.COMMAND, name, timeout=SCONTROL_SECONDS))
    if name not in found:
        raise SetupError(f"slurmctld does not know {name}")
    return found[name]


def apply_action(name: str, action: str, reason: str) -> None:
    """Drain a node, change its reason, or resume it. Raises SetupError if slurmctld refuses."""
    changes = {
        "drain": ["State=DRAIN", f"Reason={reason}"],
        "reason": [f"Reason={reason}"],
        "resume": ["State=RESUME"],
    }[action]
    run("scontrol", "update", f"NodeName={name}", *changes, timeout=SCONTROL_SECONDS)


def update_repairs(before: Mapping[str, Any], found: Mapping[str, Outcome], *, now: float) -> dict[str, Any]:
    """Return `faults` (the time since which each fault of the machine is known) and `repair` (those that require one).

    `before` is the last record of this boot if the node was held, `found` the outcomes of this run. A fault that a pass
    proves nothing about stays until the next boot: the kernel logs a Xid once. A pure function.
    """
    failed = {kind for kind, outcome in found.items() if outcome["state"] == "failed"} & MACHINE
    passed = {kind for kind in found if kind not in failed and kind in RESUMES}
    since: dict[str, float] = {kind: at for kind, at in before.get("faults", {}).items() if kind not in passed}
    since = {**dict.fromkeys(sorted(failed), now), **since}
    repair = {kind for kind in before.get("repair", ()) if kind not in passed}
    repair |= {kind for kind in failed if found[kind].get("certain") or now - since[kind] >= CONFIRM_SECONDS}
    return {"faults": since, "repair": sorted(repair)}
