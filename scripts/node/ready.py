"""Prove that every partition runs jobs: one job through each, side by side."""

from __future__ import annotations

import enum
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TypedDict

from system import SetupError, run, say

PATIENCE = 120  # seconds for one job that has an idle node to run on
SETTLING = 15  # seconds for slurmctld to take its nodes in, where none is idle
_WORKING = ("idle", "mixed", "allocated", "completing", "planned", "reserved")


class Probe(TypedDict):
    """A partition and on whose behalf to run in it; an empty account or QOS is the user's own, an empty user nobody."""

    partition: str
    user: str
    account: str
    qos: str


class Trial(enum.Enum):
    """What can be tried in a partition."""

    RUN = "a job"
    ASK = "whether a job would be accepted"
    NONE = "nothing"


def prove(probes: list[Probe]) -> None:
    """Run `true` once in every partition. Raises SetupError naming each partition that did not run it."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        failed = [text for text in pool.map(_prove, probes) if text]
    if failed:
        raise SetupError("\n".join(failed))


def _prove(probe: Probe) -> str:
    name = probe["partition"]
    if not probe["user"]:
        say(f"partition {name}: nobody of the stack may use it, so no job was tried")
        return ""
    trial = _trial(run("sinfo", "--noheader", "--partition", name, "--Node", "--format", "%T").split())
    if trial is Trial.NONE:
        say(f"partition {name}: no node takes jobs, so none was tried{_drained(name)}")
        return ""
    busy = trial is Trial.ASK
    command = [
        "--partition", name, "--nodes", "1", "--ntasks", "1", "--time", "1", "--job-name", "hpc-ready", "--chdir", "/",
    ]  # fmt: skip
    command += ["--account", probe["account"]] if probe["account"] else []
    command += ["--qos", probe["qos"]] if probe["qos"] else []
    program = ["sbatch", "--test-only", *command, "--wrap", "true"] if busy else ["srun", "--quiet", *command, "true"]
    try:
        done = _run(["runuser", "-u", probe["user"], "--", *program])
        end = time.monotonic() + SETTLING
        while busy and done.returncode and time.monotonic() < end:
            # A slurmctld that has just started knows of its nodes' jobs before it counts the nodes in.
            time.sleep(1)
            done = _run(["runuser", "-u", probe["user"], "--", *program])
    except subprocess.TimeoutExpired:
        run("scancel", "--partition", name, "--name", "hpc-ready")
        return f"partition {name}: a job of {probe['user']}'s did not run within {PATIENCE} s.\n{_pending(name)}"
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        return f"partition {name}: a job of {probe['user']}'s failed:\n{said}{_drained(name)}"
    say(f"partition {name}: " + ("every node is busy; a job would be accepted" if busy else "a job has run"))
    return ""


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL
    )


def _trial(states: list[str]) -> Trial:
    """What to try in a partition whose nodes are in these states, as `sinfo --format %T` has them. A pure function.

    Beside a full cluster a job would wait for hours: asking whether it could run is all that can be asked then. Nodes
    that an operator has drained are for the operator to bring back, as `nodes` has it.
    """
    if "idle" in states:
        return Trial.RUN
    return Trial.ASK if any(state.startswith(_WORKING) for state in states) else Trial.NONE


def _drained(partition: str) -> str:
    """Nodes that were drained, perhaps by that very job's prolog: Slurm tells the job only that they are not ready."""
    found = run("sinfo", "--noheader", "--partition", partition, "--list-reasons", "--format", "%N: %E").strip()
    if not found:
        return ""
    where = "/var/log/slurm/prolog.log or epilog.log on the node has the script's own words; resume it when mended"
    return f"\ndrained nodes:\n{found}" + (f"\n({where})" if "log error" in found else "")


def _pending(partition: str) -> str:
    return run("sinfo", "--partition", partition, "--Node", "--long").strip()
