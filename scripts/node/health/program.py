"""The health check of this node, as /usr/local/sbin/hpc-health runs it:

    hpc-health            all checks: HealthCheckProgram of slurm.conf. Always ends with exit code 0, because a slurmd
                          that starts runs it until it does.
    hpc-health prolog     the quick checks, before a job: exit code 1 keeps the job away from this node
    hpc-health epilog     what a job has left on GPUs
    hpc-health now        all checks, and their result as JSON on standard output

A node that fails a check is drained with a reason of kinds.py. Nothing here ends a job, or sets a node down.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from health import checks, outcome
from health.kinds import RESUMES, key, kinds, parts, reason, resumes
from health.outcome import RUN
from slurm import scheduler
from system.host import SetupError, log, printable, read_json, run, take_lock, write

PROGRAM = Path("/usr/local/sbin/hpc-health")  # HealthCheckProgram of slurm.conf
SETTINGS = Path("/etc/hpc/health.json")
"""On the machine's own disk: a check must not wait for a file system whose loss it is to report."""
KEPT_SECONDS = 60
"""A run that waits longer for another one gives up."""
SCONTROL_SECONDS = 10
# -S: no site packages; the program is started on every node every few minutes, and before each job.
_STARTER = """\
#!/bin/sh
# Written by the cluster's set-up: health checks of nodes. With --help it says more.
exec python3 -S -c '
import sys
sys.path.insert(0, "/usr/local/lib/hpc/node")
from MODULE import main
sys.exit(main(sys.argv[1:]))
' "$@"
"""


def main(arguments: list[str]) -> int:
    """Run the checks of one occasion; the exit code."""
    mode = arguments[0] if arguments else "periodic"
    if len(arguments) > 1 or mode not in ("periodic", "now", "prolog", "epilog"):
        sys.stderr.write(str(__doc__))
        return 2
    if os.geteuid() != 0:
        sys.stderr.write("hpc-health reads devices and drains nodes: run it as root\n")
        return 1
    wanted = read_settings()
    if wanted is None:
        sys.stdout.write("null\n" if mode == "now" else "")
        return 0
    try:
        return _run(mode, wanted)
    except (SetupError, OSError) as error:
        # Never the reason why a node does not start, or a job does not.
        sys.stderr.write(printable(f"hpc-health: {error}\n"))
        return 0


def _run(mode: str, wanted: dict[str, Any]) -> int:
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    RUN.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Path(RUN / "run").open("w") as lock:
        if mode == "periodic" and not take_lock(lock):
            return 0
        if mode == "now" and not take_lock(lock, seconds=KEPT_SECONDS):
            raise SetupError(f"another run has not ended in {KEPT_SECONDS} s")
        began = time.time()
        if mode == "prolog":
            found = checks.quick(wanted)
        elif mode == "epilog":
            found = checks.after_job(wanted, os.environ.get("SLURM_JOB_ID", ""))
        else:
            found = checks.all_checks(wanted)
            if (left := outcome.last_record().get("left")) is not None:
                found |= checks.left(wanted, left)
        bad = {kind: one["text"] for kind, one in found.items() if one["state"] == "failed"}
        for kind, text in bad.items():
            sys.stderr.write(printable(f"hpc-health: {kind}: {text}\n"))
        # Quick checks before a job that pass leave no trace: they cost no write and no lock.
        if mode in ("periodic", "now") or (bad and take_lock(lock, seconds=KEPT_SECONDS)):
            kept = _settle(name, mode, wanted, found, began=began)
            if mode == "now":
                sys.stdout.write(json.dumps(kept) + "\n")
    return 1 if mode == "prolog" and bad and wanted["drain"] else 0


def _settle(name: str, mode: str, wanted: dict[str, Any], found: checks.Outcomes, *, began: float) -> dict[str, Any]:
    """Do what follows from the checks, and record it."""
    bad = {kind: one["text"] for kind, one in found.items() if one["state"] == "failed"}
    before = outcome.last_record()
    known = {kind for kind, one in before.get("checks", {}).items() if one["state"] == "failed"}
    sure = {kind: text for kind, text in bad.items() if not found[kind].get("unsure") or kind in known}
    if "clock" in sure and outcome.is_common(name, "clock"):
        del sure["clock"]
        found["clock"]["text"] += "; so are most other nodes: look at the controller's clock"
    whole = mode in ("periodic", "now")
    places = {**before.get("places", {}), **{kind: one.pop("place") for kind, one in found.items() if "place" in one}}
    kept: dict[str, Any] = {
        "node": name, "time": began, "seconds": round(time.time() - began, 3), "occasion": mode,
        "checks": found if whole else {**before.get("checks", {}), **found},
        "passes": 0 if bad else before.get("passes", 0) + 1,
        "held": bool(before.get("held", True)), "places": places,
    }  # fmt: skip
    # Of which job processes are left on GPUs: until a whole run has seen that they are gone.
    if "gpu-processes" in bad and mode == "epilog":
        kept["left"] = os.environ.get("SLURM_JOB_ID", "")
    elif "left" in before and ("gpu-processes" in bad or not whole):
        kept["left"] = before["left"]
    # slurmctld is not asked at every interval of every node: only where something failed, or a node may be held.
    if wanted["drain"] and (sure or kept["held"]):
        try:
            seen = node_seen(name)
            todo = decide(
                seen["states"], seen["reason"], sure, passes=kept["passes"], resume_after=wanted["resume_after"]
            )
            if todo.name != "none":
                apply_action(name, todo.name, todo.reason)
                kept["done"] = todo.name
            ours = bool(parts(seen["reason"])) and "DRAIN" in seen["states"]
            kept["held"] = todo.name in ("drain", "reason") or (ours and todo.name != "resume")
        except SetupError as error:
            kept["why"] = printable(str(error))
    outcome.keep_record(kept)
    return kept


class Action(NamedTuple):
    """What is asked of slurmctld: drain, reason (another one for a node that is drained already), resume or none."""

    name: str
    reason: str = ""


NO_ACTION = Action("none")


def decide(states: set[str], given: str, failed: dict[str, str], *, passes: int, resume_after: int) -> Action:
    """What to do with a node in these states, drained for the reason `given` if it is, whose checks of the kinds in
    `failed` have failed; `passes`: how many runs in a row passed, this one included.

    A drain by anybody else is left alone, and no node is ever set down. A fault that nobody has looked at stays in the
    reason.
    """
    if "DRAIN" not in states:
        return Action("drain", reason(failed)) if failed else NO_ACTION
    before = parts(given)
    if not before:
        return NO_ACTION
    if failed:
        stays = {kind: text for kind, text in before.items() if kind not in RESUMES and kind not in failed}
        wanted = {**stays, **failed}
        # Figures change at every run: a new text for the same faults is not worth a write of slurmctld's state.
        return Action("reason", reason(wanted)) if set(wanted) != set(kinds(given)) else NO_ACTION
    if resumes(given) and passes >= resume_after and not states & {"DOWN", "NOT_RESPONDING", "REBOOT_ISSUED"}:
        return Action("resume")
    return NO_ACTION


def node_seen(name: str) -> scheduler.State:
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


def keep(health: dict[str, Any] | None) -> None:
    """Have the program and its settings here on a node of a cluster with health checks, else neither."""
    mine = node_settings(health, socket.gethostname()) if health else None
    if mine is None:
        for path in (PROGRAM, SETTINGS):
            if path.exists():
                path.unlink()
                log(f"removed {path}")
        return
    # Settings first: a program without them checks nothing.
    write(SETTINGS, json.dumps(mine, indent=1) + "\n")
    write(PROGRAM, starter("health.program"), mode=0o755)


def starter(module: str) -> str:
    """A program that runs `main` of a module of the set-up."""
    return _STARTER.replace("MODULE", module)


def node_settings(health: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The settings of one node: those of the cluster, and as `mine` what it must have; None for a machine that is no
    node."""
    mine = health["nodes"].get(key(name)) or health["nodes"].get(name)
    if mine is None:
        return None
    return {**{name: value for name, value in health.items() if name != "nodes"}, "mine": mine}


def read_settings(path: Path = SETTINGS) -> dict[str, Any] | None:
    """The settings of this node; None where it is not to be checked."""
    found = read_json(path, None)
    return found if isinstance(found, dict) else None
