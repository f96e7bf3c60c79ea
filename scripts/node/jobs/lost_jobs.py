"""Jobs that slurmctld believes to be running on a machine that has rebooted since they began.

slurmctld ends them by itself, but not those that began within MessageTimeout + 5 s before the boot (job_mgr.c,
_purge_missing_jobs): those would hold their nodes until their time limit, or for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm.scontrol import rows
from system.host import log, run, succeeds


@dataclass(frozen=True)
class Job:
    """A running job: when it began (ISO 8601, as Slurm prints it) and where it runs."""

    number: str
    began: str
    nodes: tuple[str, ...]


def end_lost_jobs() -> None:
    """Requeue such jobs, or end those that cannot be: what ran of them ended with the machine."""
    for job in lost(_running(), _boots()):
        # slurmctld requeues batch jobs alone, and refuses the others.
        if succeeds("scontrol", "requeue", job.number):
            log(f"job {job.number} ended with its machine and waits again")
        else:
            run("scancel", job.number)
            log(f"job {job.number} ended with its machine")


def lost(jobs: list[Job], boots: dict[str, str]) -> list[Job]:
    """The jobs that began before a node of theirs booted. A pure function.

    slurmctld takes a boot to be no later than the node's registration, and starts no job before that, so nothing that
    really runs is ever among them.
    """
    return [job for job in jobs if any(job.began < boots.get(node, "") for node in job.nodes)]


def _running() -> list[Job]:
    found: list[Job] = []
    # Not `scontrol show job`: a job's name stands amid its rows, with what a user typed.
    for line in run("squeue", "--all", "--noheader", "--states=running", "--format=%A %S %N").splitlines():
        number, began, nodes = line.split()
        found.append(Job(number, began, tuple(run("scontrol", "show", "hostnames", nodes).split())))
    return found


def _boots() -> dict[str, str]:
    boots: dict[str, str] = {}
    for words in rows(run("scontrol", "--oneliner", "--all", "show", "node")):
        # A node that has not registered since slurmctld's start has no boot time: `None`.
        if words.get("BootTime", "None") != "None":
            boots[words["NodeName"]] = words["BootTime"]
    return boots
