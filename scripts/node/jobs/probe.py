"""Prove that every partition runs jobs: one job through each, side by side."""

import re
import subprocess
import time
from typing import Any

from accounting.accounts import wait_for_associations
from interface import Probe
from jobs.rxdm import DEVICES, PROFILE
from system.host import SetupError, in_parallel, log, run

TIMEOUT = 120  # seconds for one job that has an idle node to run on, beside its prolog
SETTLING = 15  # seconds for slurmctld to take its nodes in, where none is idle
JOB = "hpc-ready"
_LOOK = (
    f'[ -r {PROFILE} ] && . {PROFILE}; [ "${{NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY-}}" = {DEVICES} ] && exit; '
    f'echo "$(hostname): {PROFILE} does not set NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY={DEVICES}" >&2; exit 1'
)
_WORKING = ("idle", "mixed", "allocated", "completing", "planned", "reserved")


def prove(probes: list[Probe]) -> None:
    """Run a job once in every partition: on one node, or on all idle ones where rxdm serves jobs on several.

    Users can submit jobs then, too. Raises SetupError naming each partition that did not run it.
    """
    wait_for_associations()
    failed = [text for text in in_parallel(_prove, probes, at_once=8) if text]
    if failed:
        raise SetupError("\n".join(failed))


def _prove(probe: Probe) -> str:
    """Try a job; the reason where it did not run."""
    name, user = probe["partition"], probe["user"]
    if not user:
        log(f"partition {name}: nobody of the stack may use it, so no job was tried")
        return ""
    states = run("sinfo", "--noheader", "--partition", name, "--Node", "--format", "%T").split()
    trial = _trial(states)
    if not trial:
        log(f"partition {name}: no node takes jobs, so none was tried{_drained(name)}")
        return ""
    nodes = _idle(name, states) if trial == "run" and probe["rxdm"] else 1
    options = _options(probe, nodes=nodes)
    job, failure, end = f"a job of {user}'s", f"a job of {user}'s failed", "a job has run"
    program = ["srun", "--quiet", *options, "true"]
    if trial == "ask":
        program, end = (
            ["sbatch", "--test-only", *options, "--wrap", "true"],
            f"every node is {'off' if _all_off(states) else 'busy'}; a job would be accepted",
        )
    elif nodes > 1:
        text = "tries rxdm; the first one pulls its containers, which takes minutes"
        log(f"partition {name}: a job on {nodes} nodes {text}")
        program = ["srun", "--quiet", *options, "--ntasks-per-node", "1", "sh", "-c", _LOOK]
        job, failure = f"a job on {nodes} nodes", f"rxdm did not do its work for a job on {nodes} nodes"
        end = f"rxdm has run on {nodes} nodes, and NCCL's profile has its exports"
    seconds = TIMEOUT + 60 * probe["minutes"]
    try:
        done = _run(user, program, seconds=seconds)
        settled = time.monotonic() + SETTLING
        while trial == "ask" and done.returncode and time.monotonic() < settled:
            # A slurmctld that has just started has its nodes' jobs before it counts the nodes in.
            time.sleep(1)
            done = _run(user, program, seconds=TIMEOUT)
    except subprocess.TimeoutExpired:
        run("scancel", "--partition", name, "--name", JOB)
        nodes_now = run("sinfo", "--partition", name, "--Node", "--long").strip()
        return f"partition {name}: {job} did not run within {seconds} s.\n{nodes_now}"
    if done.returncode:
        return f"partition {name}: {failure}:\n{(done.stderr or done.stdout).strip()}{_drained(name)}"
    log(f"partition {name}: {end}")
    if probe["rxdm"] and nodes == 1:
        log(f"partition {name}: rxdm was not tried: it serves jobs on two or more nodes, and fewer are idle")
    return ""


def _idle(partition: str, states: list[str]) -> int:
    """On how many nodes a job can run at once: those that are idle, as many as the partition allows."""
    most = re.search(r"\bMaxNodes=(\d+)", run("scontrol", "show", "partition", partition))
    return min(states.count("idle"), int(most[1]) if most else len(states))


def _options(probe: Probe, *, nodes: int) -> list[str]:
    options = ["--partition", probe["partition"], "--nodes", str(nodes), "--ntasks", str(nodes)]
    options += ["--time", str(probe["minutes"]), "--job-name", JOB, "--chdir", "/"]
    options += ["--account", probe["account"]] if probe["account"] else []
    return options + (["--qos", probe["qos"]] if probe["qos"] else [])


def _run(user: str, program: list[str], *, seconds: int) -> subprocess.CompletedProcess[str]:
    command = ["runuser", "-u", user, "--", *program]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(command, timeout=seconds, check=False, **streams)


def _trial(states: list[str]) -> str:
    """Return what to try in a partition whose nodes are in these states, as `sinfo --format %T` has them: to run a job,
    to ask whether one would be accepted, or nothing. A pure function.

    Beside a full cluster a job would wait for hours: asking whether it could run is all that can be asked then. Nodes
    that an operator has drained are for the operator to bring back, as `nodes` has it. Nor is a machine started for it.
    """
    if "idle" in states:
        return "run"
    return "ask" if any(state.startswith(_WORKING) for state in states) else ""


def _all_off(states: list[str]) -> bool:
    """Return whether no node of a partition has a machine, by sinfo's marks."""
    return all(state.endswith(("~", "%", "#")) for state in states)


def _drained(partition: str) -> str:
    """Nodes that were drained, perhaps by that job's prolog: to the job Slurm prints only that they are not ready."""
    found = run("sinfo", "--noheader", "--partition", partition, "--list-reasons", "--format", "%N: %E").strip()
    if not found:
        return ""
    where = "/var/log/slurm/prolog.log or epilog.log on the node has the script's own words; resume it when mended"
    return f"\ndrained nodes:\n{found}" + (f"\n({where})" if "log error" in found else "")
