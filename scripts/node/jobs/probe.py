"""Checks that every partition runs jobs: one job in each, in parallel."""

import re
import subprocess
import time
from typing import Any

from accounting.accounts import wait_for_associations
from interface import Probe
from jobs.rxdm import DEVICES, PROFILE
from system.host import SetupError, in_parallel, log, run

TIMEOUT = 120  # seconds for one job that has an idle node to run on, in addition to its prolog
SETTLE_SECONDS = 15  # in which slurmctld may not have registered its nodes yet, where none is idle
JOB_NAME = "hpc-ready"
_CHECK_PROFILE = (
    f'[ -r {PROFILE} ] && . {PROFILE}; [ "${{NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY-}}" = {DEVICES} ] && exit; '
    f'echo "$(hostname): {PROFILE} does not set NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY={DEVICES}" >&2; exit 1'
)
_WORKING = ("idle", "mixed", "allocated", "completing", "planned", "reserved")


def prove(probes: list[Probe]) -> None:
    """Run a job in every partition: on one node, or on all idle ones if rxdm serves jobs on several.

    Users can submit jobs afterwards. Raises SetupError naming each partition that did not run its job.
    """
    wait_for_associations()
    errors = [text for text in in_parallel(_try_partition, probes, at_once=8) if text]
    if errors:
        raise SetupError("\n".join(errors))


def _try_partition(probe: Probe) -> str:
    """Run or check a job, and return the error; empty if there is none."""
    name, user = probe["partition"], probe["user"]
    if not user:
        log(f"partition {name}: nobody of the stack may use it, so no job was tried")
        return ""
    states = run("sinfo", "--noheader", "--partition", name, "--Node", "--format", "%T").split()
    trial = _trial(states)
    if not trial:
        log(f"partition {name}: no node takes jobs, so none was tried{_drained_nodes(name)}")
        return ""
    nodes = 1
    if trial == "run" and probe["rxdm"]:
        # As many idle nodes as the partition allows for one job.
        most = re.search(r"\bMaxNodes=(\d+)", run("scontrol", "show", "partition", name))
        nodes = min(states.count("idle"), int(most[1]) if most else len(states))
    options = _options(probe, nodes=nodes)
    job, failure, success = f"a job of {user}'s", f"a job of {user}'s failed", "a job has run"
    program = ["srun", "--quiet", *options, "true"]
    if trial == "ask":
        program = ["sbatch", "--test-only", *options, "--wrap", "true"]
        # sinfo marks nodes without a machine.
        all_off = all(state.endswith(("~", "%", "#")) for state in states)
        success = f"every node is {'off' if all_off else 'busy'}; a job would be accepted"
    elif nodes > 1:
        text = "tries rxdm; the first one pulls its containers, which takes minutes"
        log(f"partition {name}: a job on {nodes} nodes {text}")
        program = ["srun", "--quiet", *options, "--ntasks-per-node", "1", "sh", "-c", _CHECK_PROFILE]
        job, failure = f"a job on {nodes} nodes", f"rxdm did not do its work for a job on {nodes} nodes"
        success = f"rxdm has run on {nodes} nodes, and NCCL's profile has its exports"
    seconds = TIMEOUT + 60 * probe["minutes"]
    try:
        done = _run_as(user, program, seconds=seconds)
        end = time.monotonic() + SETTLE_SECONDS
        while trial == "ask" and done.returncode and time.monotonic() < end:
            # A slurmctld that has just started refuses jobs until its nodes have registered.
            time.sleep(1)
            done = _run_as(user, program, seconds=TIMEOUT)
    except subprocess.TimeoutExpired:
        run("scancel", "--partition", name, "--name", JOB_NAME)
        nodes_now = run("sinfo", "--partition", name, "--Node", "--long").strip()
        return f"partition {name}: {job} did not run within {seconds} s.\n{nodes_now}"
    if done.returncode:
        return f"partition {name}: {failure}:\n{(done.stderr or done.stdout).strip()}{_drained_nodes(name)}"
    log(f"partition {name}: {success}")
    if probe["rxdm"] and nodes == 1:
        log(f"partition {name}: rxdm was not tried: it serves jobs on two or more nodes, and fewer are idle")
    return ""


def _options(probe: Probe, *, nodes: int) -> list[str]:
    options = ["--partition", probe["partition"], "--nodes", str(nodes), "--ntasks", str(nodes)]
    options += ["--time", str(probe["minutes"]), "--job-name", JOB_NAME, "--chdir", "/"]
    options += ["--account", probe["account"]] if probe["account"] else []
    return options + (["--qos", probe["qos"]] if probe["qos"] else [])


def _run_as(user: str, program: list[str], *, seconds: int) -> subprocess.CompletedProcess[str]:
    command = ["runuser", "-u", user, "--", *program]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(command, timeout=seconds, check=False, **streams)


def _trial(states: list[str]) -> str:
    """Return what to try in a partition whose nodes are in these states, as `sinfo --format %T` prints them: `run` a
    job, `ask` whether one would be accepted, or nothing. A pure function.

    In a partition without idle nodes a job could wait for hours, so slurmctld is only asked whether it would accept it.
    If all nodes are drained or down, nothing is tried, and no machine is created for a trial.
    """
    if "idle" in states:
        return "run"
    return "ask" if any(state.startswith(_WORKING) for state in states) else ""


def _drained_nodes(partition: str) -> str:
    """Return the drained nodes with their reasons. The job's prolog may have drained them, and srun only prints that
    they are not ready."""
    reasons = run("sinfo", "--noheader", "--partition", partition, "--list-reasons", "--format", "%N: %E").strip()
    if not reasons:
        return ""
    where = "/var/log/slurm/prolog.log or epilog.log on the node has the script's own words; resume it when mended"
    return f"\ndrained nodes:\n{reasons}" + (f"\n({where})" if "log error" in reasons else "")
