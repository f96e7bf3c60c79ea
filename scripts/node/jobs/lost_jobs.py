"""Jobs that slurmctld takes to be running, and that have ended: on a machine that rebooted, or while it was killed.

slurmctld ends many of them by itself, when a node registers: not those that began within MessageTimeout + 5 s before a
boot, nor those that began within BatchStartTimeout + MessageTimeout before the registration, nor those of srun and
salloc (job_mgr.c, _purge_missing_jobs). These would hold their nodes until the next registration, half an hour later,
until their time limit, or for ever.
"""

import socket
import time
from pathlib import Path
from typing import NamedTuple

from system import remote_node
from system.host import SetupError, in_parallel, log, run, succeeds, wait

UNIT = "hpc-lost-jobs"
PROGRAM = f"/usr/bin/python3 {Path(__file__).parents[1]}"
SERVICE = f"""\
# Written by the cluster's set-up. Each start of slurmctld starts it, by itself too (hpc.conf beside that unit).
[Unit]
Description=Submit jobs again that slurmctld forgot, end those that ended while it was away
After=slurmctld.service
PartOf=slurmctld.service

[Service]
ExecStart={PROGRAM} lost-jobs
Restart=on-failure
RestartSec=10
"""
AGAIN_SECONDS = 30
IN_UTC = ("env", "TZ=UTC")  # times are compared as texts, and in the hour that a clock of summer repeats they would lie
ASKED = 32  # nodes at a time


class Job(NamedTuple):
    """A running job: when it began (ISO 8601, as Slurm prints it) and where it runs."""

    number: str
    began: str
    nodes: tuple[str, ...]


def end_lost_jobs() -> None:
    """Requeue jobs from before a boot of a node of theirs, or end those that cannot be requeued."""
    # A node that has not registered since slurmctld's start has no boot time: `None`.
    boots = {name: row.get("BootTime", "None") for name, row in _nodes().items()}
    _end(lost(_running(), {name: boot for name, boot in boots.items() if boot != "None"}), "ended with its machine")


def end_missing_jobs() -> None:
    """End jobs that slurmctld, after its start, takes to be running, while no node of theirs has a process of them.

    Waits until slurmctld would have found out by itself, and looks twice. A job counts only where both times every
    node of it answered and its slurmd ran.
    """
    wait("slurmctld's answer", lambda: succeeds("scontrol", "ping"), seconds=600, interval=1, unit="slurmctld")
    from slurm import output

    before = set(_running())
    config = output.parameters(run("scontrol", "show", "config"))
    time.sleep(sum(int(config[name].split()[0]) for name in ("BatchStartTimeout", "MessageTimeout")))
    first = _missing_now(before)
    if first:
        time.sleep(AGAIN_SECONDS)
        again = _missing_now(before)
        _end([job for job in first if job in again], "is on none of its nodes")


def _missing_now(before: set[Job]) -> list[Job]:
    """The jobs of which all nodes answered and none has a process."""
    # One that has begun since slurmctld's start is known to it.
    jobs = [job for job in _running() if job in before]
    found = _asked(jobs)
    return [
        job for job in jobs if job.nodes and all(job.number not in found.get(node, {job.number}) for node in job.nodes)
    ]


def _end(jobs: list[Job], why: str) -> None:
    for job in jobs:
        # As slurmctld does with those that it finds. It requeues batch jobs alone, and refuses the others.
        if succeeds("scontrol", "requeue", job.number):
            log(f"job {job.number} {why} and waits again")
        else:
            run("scancel", job.number)
            log(f"job {job.number} {why}: ended")


def lost(jobs: list[Job], boots: dict[str, str]) -> list[Job]:
    """The jobs that began before a node of theirs booted. A pure function.

    slurmctld takes a boot to be no later than the node's registration, and starts no job before that, so nothing that
    really runs is ever among them.
    """
    return [job for job in jobs if any(job.began < boots.get(node, "") for node in job.nodes)]


def alive(processes: Path = Path("/proc")) -> set[str]:
    """Numbers of the jobs that have a process on this machine: their slurmstepd, their own, a prolog or an epilog."""
    found: set[str] = set()
    for process in processes.glob("[0-9]*"):
        try:
            # A slurmstepd names its step in its title: slurmstepd: [7.batch]
            title = (process / "cmdline").read_bytes().rstrip(b"\0 ")
            words = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if title.startswith(b"slurmstepd: ["):
            found.add(title[13:].partition(b".")[0].decode(errors="replace"))
        for word in words:
            name, _, value = word.partition(b"=")
            if name in (b"SLURM_JOB_ID", b"SLURM_JOBID"):
                found.add(value.decode(errors="replace"))
    return found


def _asked(jobs: list[Job]) -> dict[str, set[str]]:
    """Numbers of the jobs that have a process, for each node of `jobs` that answered and whose slurmd runs."""
    here, rows = socket.gethostname(), _nodes()

    def ask(node: str) -> set[str] | None:
        if node == here:
            return alive()
        try:
            script = f"systemctl is-active --quiet slurmd && {PROGRAM} jobs"
            text = remote_node.run_on_node(node, rows[node].get("NodeAddr", ""), script)
        except (SetupError, KeyError):
            return None
        *numbers, end = text.split() or [""]
        return set(numbers) if end == "." else None

    nodes = sorted({node for job in jobs for node in job.nodes})
    answers = in_parallel(ask, nodes, at_once=ASKED)
    return {node: found for node, found in zip(nodes, answers, strict=True) if found is not None}


def _running() -> list[Job]:
    found: list[Job] = []
    # Not `scontrol show job`: a job's name stands amid its rows, with what a user typed. A part of a heterogeneous job
    # (7+1) is left out: its processes name the whole.
    wanted = ("--all", "--noheader", "--states=running", "--format=%A %S %N %i")
    for line in run(*IN_UTC, "squeue", *wanted).splitlines():
        number, began, nodes, shown = line.split()
        if "+" not in shown:
            found.append(Job(number, began, tuple(run("scontrol", "show", "hostnames", nodes).split())))
    return found


def _nodes() -> dict[str, dict[str, str]]:
    from slurm import output

    return output.node_rows(run(*IN_UTC, "scontrol", "--oneliner", "--all", "show", "node"))
