"""What the reconcile loop asks of slurmctld, and slurmctld on this machine."""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from health import acceptance
from reconcile import flex
from slurm import hostlist, output, scheduler
from system.host import run

YOUNG_SECONDS = 60  # after slurmctld's start its nodes have not registered yet


class Slurm(Protocol):
    """The requests of the loop to slurmctld."""

    def young(self) -> str:
        """Why slurmctld is not to be relied on now; empty if it is."""
        ...

    def nodes(self) -> tuple[dict[str, dict[str, str]], dict[str, tuple[str, ...]]]:
        """Rows of all nodes by name, and the jobs that hold each."""
        ...

    def update(self, names: Sequence[str], state: str, reason: str) -> None:
        """Change nodes. Raises SetupError."""
        ...

    def comment(self, jobs: Sequence[str], text: str) -> None:
        """Write the AdminComment of jobs that `nodes` has shown. Raises SetupError."""
        ...

    def hasten(self, jobs: Sequence[str]) -> None:
        """Have jobs that were requeued begin again as soon as they can. Raises SetupError."""
        ...

    def keep_ends(self, ends: Mapping[str, float]) -> None:
        """Have no job placed on nodes past these times, at which their machines are deleted. Raises SetupError."""
        ...

    def measure(self, name: str) -> str:
        """Have a node measured that is to be resumed, which resumes it; what that waits for, and empty where the stack
        has no measurement of it. Raises SetupError."""
        ...


class Scontrol:
    """slurmctld on this machine, by its commands."""

    def __init__(self) -> None:
        self._comments: dict[str, str] = {}

    def young(self) -> str:
        started = run("systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "--value", "slurmctld").strip()
        if not started.strip("0"):
            return "slurmctld does not run on this machine"
        age = time.monotonic() - int(started) / 1e6
        return f"slurmctld has run for {age:.0f} s" if age < YOUNG_SECONDS else ""

    def nodes(self) -> tuple[dict[str, dict[str, str]], dict[str, tuple[str, ...]]]:
        rows = output.rows(run("scontrol", "--oneliner", "--all", "show", "node"))
        wanted = f"--Format=JobID:|,NodeList:|,{scheduler.COMMENT}"
        text = run("squeue", "--noheader", "--all", f"--states={scheduler.RUNS}", wanted)
        jobs: dict[str, tuple[str, ...]] = {}
        self._comments = {}
        for number, hosts, comment in (line.split("|", 2) for line in text.split("\n") if line.count("|") > 1):
            self._comments[number] = comment
            for name in hostlist.expand(hosts):
                jobs[name] = (*jobs.get(name, ()), number)
        return {row["NodeName"]: row for row in rows if "NodeName" in row}, jobs

    def update(self, names: Sequence[str], state: str, reason: str) -> None:
        words = ([f"State={state}"] if state else []) + ([f"Reason={reason}"] if reason else [])
        run("scontrol", "update", f"NodeName={','.join(names)}", *words)

    def comment(self, jobs: Sequence[str], text: str) -> None:
        scheduler.comment_jobs({job: self._comments.get(job, "") for job in jobs}, text)

    def hasten(self, jobs: Sequence[str]) -> None:
        scheduler.hasten(jobs)

    def keep_ends(self, ends: Mapping[str, float]) -> None:
        flex.keep_ends(ends)

    def measure(self, name: str) -> str:
        return acceptance.begin(name)
