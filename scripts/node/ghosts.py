"""Jobs that slurmctld believes to be running on a machine that has rebooted since they began.

slurmctld ends them by itself, but not those that began within MessageTimeout + 5 s before the boot (job_mgr.c,
_purge_missing_jobs): those would hold their nodes until their time limit, or for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from scontrol import rows
from system import run, say, succeeds


@dataclass(frozen=True)
class Job:
    """A running job: when it began (ISO 8601, as Slurm prints it) and where it runs."""

    number: str
    began: str
    nodes: tuple[str, ...]
    batch: bool


def lay_to_rest() -> None:
    """Requeue such jobs, or end those that cannot be: what ran of them ended with the machine."""
    for job in ghosts(_running(), _boots()):
        if job.batch and succeeds("scontrol", "requeue", job.number):
            say(f"job {job.number} ended with its machine and waits again")
        else:
            run("scancel", job.number)
            say(f"job {job.number} ended with its machine")


def ghosts(jobs: list[Job], boots: dict[str, str]) -> list[Job]:
    """The jobs that began before a node of theirs booted. A pure function.

    slurmctld takes a boot to be no later than the node's registration, and starts no job before that, so nothing that
    really runs is ever among them.
    """
    return [job for job in jobs if any(job.began < boots.get(node, "") for node in job.nodes)]


def _running() -> list[Job]:
    found: list[Job] = []
    for words in rows(run("scontrol", "--oneliner", "show", "job")):
        if words.get("JobState") == "RUNNING":
            nodes = run("scontrol", "show", "hostnames", words["NodeList"]).split()
            found.append(Job(words["JobId"], words["StartTime"], tuple(nodes), words.get("BatchFlag") == "1"))
    return found


def _boots() -> dict[str, str]:
    boots: dict[str, str] = {}
    for words in rows(run("scontrol", "--oneliner", "--all", "show", "node")):
        # A node that has not registered since slurmctld's start has no boot time: `None`.
        if words.get("BootTime", "None") != "None":
            boots[words["NodeName"]] = words["BootTime"]
    return boots
