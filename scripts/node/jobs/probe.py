"""Prove that every partition runs jobs: one job through each, side by side."""

from __future__ import annotations

import enum
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from interface import Probe
from jobs.rxdm import DEVICES, PROFILE
from system.host import SetupError, log, run

TIMEOUT = 120  # seconds for one job that has an idle node to run on, beside its prolog
SETTLING = 15  # seconds for slurmctld to take its nodes in, where none is idle
JOB = "hpc-ready"
_LOOK = (
    f'[ -r {PROFILE} ] && . {PROFILE}; [ "${{NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY-}}" = {DEVICES} ] && exit; '
    f'echo "$(hostname): {PROFILE} does not set NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY={DEVICES}" >&2; exit 1'
)
_WORKING = ("idle", "mixed", "allocated", "completing", "planned", "reserved")


class Trial(enum.Enum):
    """What can be tried in a partition."""

    RUN = "a job"
    ASK = "whether a job would be accepted"
    NONE = "nothing"


def prove(probes: list[Probe]) -> None:
    """Run a job once in every partition: on one node, or on all idle ones where rxdm serves jobs on several.

    Raises SetupError naming each partition that did not run it.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        failed = [text for text in pool.map(_prove, probes) if text]
    if failed:
        raise SetupError("\n".join(failed))


def _prove(probe: Probe) -> str:
    name = probe["partition"]
    if not probe["user"]:
        log(f"partition {name}: nobody of the stack may use it, so no job was tried")
        return ""
    states = run("sinfo", "--noheader", "--partition", name, "--Node", "--format", "%T").split()
    trial = _trial(states)
    if trial is Trial.NONE:
        log(f"partition {name}: no node takes jobs, so none was tried{_drained(name)}")
        return ""
    if trial is Trial.RUN and probe["rxdm"] and (nodes := _idle(name, states)) > 1:
        return _prove_rxdm(probe, nodes)
    busy = trial is Trial.ASK
    command = _options(probe, nodes=1)
    program = ["sbatch", "--test-only", *command, "--wrap", "true"] if busy else ["srun", "--quiet", *command, "true"]
    seconds = _timeout(probe)
    try:
        done = _run(["runuser", "-u", probe["user"], "--", *program], seconds=seconds)
        end = time.monotonic() + SETTLING
        while busy and done.returncode and time.monotonic() < end:
            # A slurmctld that has just started has its nodes' jobs before it counts the nodes in.
            time.sleep(1)
            done = _run(["runuser", "-u", probe["user"], "--", *program])
    except subprocess.TimeoutExpired:
        run("scancel", "--partition", name, "--name", JOB)
        return f"partition {name}: a job of {probe['user']}'s did not run within {seconds} s.\n{_pending(name)}"
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        return f"partition {name}: a job of {probe['user']}'s failed:\n{said}{_drained(name)}"
    log(f"partition {name}: " + ("every node is busy; a job would be accepted" if busy else "a job has run"))
    if probe["rxdm"]:
        log(f"partition {name}: rxdm was not tried: it serves jobs on two or more nodes, and fewer are idle")
    return ""


def _prove_rxdm(probe: Probe, nodes: int) -> str:
    """Run a job on so many nodes, and look for NCCL's profile in it."""
    name, seconds = probe["partition"], _timeout(probe)
    log(f"partition {name}: a job on {nodes} nodes tries rxdm; the first one pulls its containers, which takes minutes")
    options = _options(probe, nodes=nodes)
    program = ["srun", "--quiet", *options, "--ntasks-per-node", "1", "sh", "-c", _LOOK]
    try:
        done = _run(["runuser", "-u", probe["user"], "--", *program], seconds=seconds)
    except subprocess.TimeoutExpired:
        run("scancel", "--partition", name, "--name", JOB)
        return f"partition {name}: a job on {nodes} nodes did not run within {seconds} s.\n{_pending(name)}"
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        return f"partition {name}: rxdm did not do its work for a job on {nodes} nodes:\n{said}{_drained(name)}"
    log(f"partition {name}: rxdm has run on {nodes} nodes, and NCCL's profile has its exports")
    return ""


def _idle(partition: str, states: list[str]) -> int:
    """On how many nodes a job can run at once: those that are idle, as many as the partition allows."""
    most = re.search(r"\bMaxNodes=(\d+)", run("scontrol", "show", "partition", partition))
    return min(states.count("idle"), int(most[1]) if most else len(states))


def _timeout(probe: Probe) -> int:
    return TIMEOUT + 60 * probe["minutes"]


def _options(probe: Probe, *, nodes: int) -> list[str]:
    options = ["--partition", probe["partition"], "--nodes", str(nodes), "--ntasks", str(nodes)]
    options += ["--time", str(probe["minutes"]), "--job-name", JOB, "--chdir", "/"]
    options += ["--account", probe["account"]] if probe["account"] else []
    return options + (["--qos", probe["qos"]] if probe["qos"] else [])


def _run(command: list[str], *, seconds: int = TIMEOUT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL
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
    """Nodes that were drained, perhaps by that job's prolog: to the job Slurm prints only that they are not ready."""
    found = run("sinfo", "--noheader", "--partition", partition, "--list-reasons", "--format", "%N: %E").strip()
    if not found:
        return ""
    where = "/var/log/slurm/prolog.log or epilog.log on the node has the script's own words; resume it when mended"
    return f"\ndrained nodes:\n{found}" + (f"\n({where})" if "log error" in found else "")


def _pending(partition: str) -> str:
    return run("sinfo", "--partition", partition, "--Node", "--long").strip()
