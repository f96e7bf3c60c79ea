"""Jobs that slurmctld shows as running though they have ended: on a machine that rebooted, or while slurmctld was off.

slurmctld ends many of them when a node registers, but not jobs that began within MessageTimeout + 5 s before a boot or
within BatchStartTimeout + MessageTimeout before the registration, nor jobs of srun and salloc (job_mgr.c,
_purge_missing_jobs). These would hold their nodes until the next registration, half an hour later, until their time
limit, or for ever.
"""

import secrets
import socket
import time
from pathlib import Path
from typing import NamedTuple

from slurm import jobs, nodes, output
from system import remote_node
from system.host import SetupError, in_parallel, log, run, succeeds, wait

UNIT = "hpc-lost-jobs"
PROGRAM = f"/usr/bin/python3 {Path(__file__).parents[1]}"
SERVICE = f"""\
# Written by the cluster's set-up. Each start of slurmctld starts it, by itself too (hpc.conf beside that unit).
[Unit]
Description=End jobs that ended while slurmctld was away
After=slurmctld.service
PartOf=slurmctld.service

[Service]
ExecStart={PROGRAM} lost-jobs
Restart=on-failure
RestartSec=10
"""
SECOND_CHECK_SECONDS = 30
IN_UTC = ("env", "TZ=UTC")  # times are compared as texts, which is wrong in the hour that daylight saving time repeats
AT_ONCE = 32  # nodes whose processes are read at a time


class RunningJob(NamedTuple):
    """A running job: when it began (ISO 8601, as Slurm prints it) and where it runs."""

    number: str
    began: str
    nodes: tuple[str, ...]


def end_lost_jobs() -> None:
    """Requeue jobs from before a boot of a node of theirs, or end those that cannot be requeued."""
    # For a node that has not registered since slurmctld's start, scontrol prints the boot time `None`.
    boots = {name: node.booted for name, node in _nodes().items() if node.booted != "None"}
    _end(began_before_boot(_running(), boots), "ended with its machine")


def end_missing_jobs() -> None:
    """End jobs that slurmctld shows as running after its start, if no node of theirs has a process of them.

    It waits until slurmctld would have ended them by itself, and checks twice. Both times every node of the job must
    have answered, and its slurmd must have run.
    """
    wait("slurmctld's answer", lambda: succeeds("scontrol", "ping"), seconds=600, interval=1, unit="slurmctld")
    at_start = set(_running())
    config = output.parameters(run("scontrol", "show", "config"))
    time.sleep(sum(int(config[name].split()[0]) for name in ("BatchStartTimeout", "MessageTimeout")))
    if first := _without_processes(at_start):
        time.sleep(SECOND_CHECK_SECONDS)
        second = _without_processes(at_start)
        _end([job for job in first if job in second], "is on none of its nodes")


def _without_processes(candidates: set[RunningJob]) -> list[RunningJob]:
    """Return the candidates that run still, and of which all nodes answer and none has a process."""
    jobs = [job for job in _running() if job in candidates]
    numbers = _numbers_by_node(jobs)
    return [
        job
        for job in jobs
        if job.nodes and all(job.number not in numbers.get(node, {job.number}) for node in job.nodes)
    ]


def _end(jobs: list[RunningJob], why: str) -> None:
    for job in jobs:
        # As slurmctld does with the jobs that it finds missing. It requeues batch jobs, and refuses to requeue others.
        if succeeds("scontrol", "requeue", job.number):
            log(f"job {job.number} {why} and waits again")
        else:
            run("scancel", job.number)
            log(f"job {job.number} {why}: ended")


def began_before_boot(jobs: list[RunningJob], boots: dict[str, str]) -> list[RunningJob]:
    """Return the jobs that began before a node of theirs booted. A pure function.

    A job that really runs is never among them: slurmctld starts no job before the node's registration, and a boot time
    is no later than that.
    """
    return [job for job in jobs if any(job.began < boots.get(node, "") for node in job.nodes)]


def jobs_with_processes(processes: Path = Path("/proc")) -> set[str]:
    """Return the numbers of the jobs that have a process on this machine: a slurmstepd, one of their own, a prolog or
    an epilog."""
    numbers: set[str] = set()
    for process in processes.glob("[0-9]*"):
        try:
            # Slurm 24.11.5: all have SLURM_JOB_ID, but a slurmstepd has its step in its title: slurmstepd: [7.batch]
            title = (process / "cmdline").read_bytes().rstrip(b"\0 ")
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if title.startswith(b"slurmstepd: ["):
            numbers.add(title[13:].partition(b".")[0].decode(errors="replace"))
        for variable in variables:
            name, _, value = variable.partition(b"=")
            if name in (b"SLURM_JOB_ID", b"SLURM_JOBID"):
                numbers.add(value.decode(errors="replace"))
    return numbers


def _numbers_by_node(jobs: list[RunningJob]) -> dict[str, set[str]]:
    """Return the numbers of the jobs that have a process, for each node of `jobs` that answers and runs slurmd."""
    here, rows = socket.gethostname(), _nodes()

    def read(node: str) -> set[str] | None:
        if node == here:
            return jobs_with_processes()
        try:
            script = f"systemctl is-active --quiet slurmd && {PROGRAM} jobs"
            text = remote_node.run_on_node(node, rows[node].address, script)
        except (SetupError, KeyError):
            return None
        *numbers, end = text.split() or [""]
        return set(numbers) if end == "." else None

    nodes = sorted({node for job in jobs for node in job.nodes})
    answers = in_parallel(read, nodes, at_once=AT_ONCE)
    return {node: numbers for node, numbers in zip(nodes, answers, strict=True) if numbers is not None}


def _running() -> list[RunningJob]:
    mark = secrets.token_hex(8)
    found = jobs.parse(run(*IN_UTC, *jobs.command(mark, "--all", "--states=running")), mark)
    # Components of heterogeneous jobs (7+1) are left out, because their processes have the number of the whole job.
    return [RunningJob(job.number, job.started, job.hosts) for job in found if "+" not in job.id]


def _nodes() -> dict[str, nodes.Node]:
    return nodes.parse(run(*IN_UTC, *nodes.COMMAND))
