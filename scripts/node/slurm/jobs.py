"""The jobs of slurmctld: what squeue prints of them, and what their states mean. Pure functions, which `./hpc` uses
too."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from .hostlist import expand

# Job states (squeue(1), JOB STATE CODES; job_state_string of src/common/slurm_protocol_defs.c).
WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
"""States of jobs that hold no node, though squeue may print the nodes of their last run. A job in a state that is in
neither list counts as one that holds its nodes."""
ENDED = set("BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT".split())
"""States of jobs that will not run again."""
HOLDING = "RUNNING,CONFIGURING,SUSPENDED,COMPLETING,STOPPED"
"""squeue's `--states` of jobs that have nodes."""
MAX_JOBS = 50  # of an observation, listed one by one; the others are counted


class Job(NamedTuple):
    """A job as squeue shows it. Times and durations are in Slurm's own notation."""

    id: str
    """The number that squeue shows: 7, 7_2 for a task of an array, 7+1 for a component."""
    number: str = ""
    """The number of its processes, which a task of an array has for itself."""
    user: str = ""
    account: str = ""
    state: str = ""
    elapsed: str = ""
    limit: str = ""
    """[days-]hours:minutes:seconds or UNLIMITED."""
    left: str = ""
    """The time until its limit, or UNLIMITED."""
    started: str = ""
    end: str = ""
    """The time at which its limit ends it."""
    submitted: str = ""
    nodes: str = ""
    """A host list; of a job that waits again, squeue prints the nodes of its last run."""
    count: str = ""
    """Number of nodes."""
    cpus: str = ""
    partition: str = ""
    """A pending job may name several, separated by commas."""
    reason: str = ""
    name: str = ""
    exit_code: str = ""
    """CODE:SIGNAL after its end, where it was read."""

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def completed(self) -> bool:
        """True if it has ended with exit code 0."""
        return self.state == "COMPLETED"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes that it holds now."""
        return () if self.waits or self.ended else tuple(expand(self.nodes))

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(self.partition.split(","))

    @property
    def tasks(self) -> int:
        """The number of jobs that it stands for: squeue prints the waiting tasks of an array as one."""
        return count_tasks(self.id)

    @property
    def is_held(self) -> bool:
        """True if it starts only when somebody releases it, its user or an operator.

        The words are those of job_state_reason_string (JobHeldAdmin, JobHeldUser, JobHoldMaxRequeue) and of
        src/slurmctld/job_mgr.c ("launch failed requeued held", "job requeued in held state"), from 22.05 to 26.05.
        """
        return self.waits and bool(re.search(r"held|hold", self.reason, re.IGNORECASE))

    @property
    def needs_operator(self) -> bool:
        """True if it starts only when an operator releases it. A job with the reason JobHeldUser is held by its user,
        who can release it."""
        return self.is_held and self.reason != "JobHeldUser"

    def __str__(self) -> str:
        # A job's name may contain anything, such as escape sequences and line ends.
        name = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in self.name)
        what = f"job {self.id} ({name}) of {self.user}"
        if not self.hosts:
            return f"{what}: {self.state.lower()}"
        left = "no time limit" if self.left == "UNLIMITED" else f"{self.left} left"
        return f"{what} on {self.nodes}: {self.state.lower()} for {self.elapsed}, {left}"


COLUMNS = {
    "id": "i", "number": "A", "user": "u", "account": "a", "state": "T", "elapsed": "M", "limit": "l", "left": "L",
    "started": "S", "end": "e", "submitted": "V", "nodes": "N", "count": "D", "cpus": "C", "partition": "P",
    "reason": "r", "name": "j",
}  # fmt: skip
"""Letters of squeue(1)'s format, by the fields of `Job` that it prints, in their order."""


def command(mark: str, *options: str) -> tuple[str, ...]:
    """Return the command whose output `parse` reads, for the jobs that these options of squeue choose.

    A job's name may contain anything, whole rows of other jobs too. So `mark`, which follows every field, is generated
    for each call, and no user can guess it. (Slurm of Debian 12 prints JSON of all jobs or of none, in another form
    with each release.)
    """
    columns = "".join(f"%{letter}{mark}" for letter in COLUMNS.values())
    return ("squeue", "--noheader", *options, f"--format={columns}")


def parse(text: str, mark: str) -> list[Job]:
    """Return the jobs in the output of `command`."""
    cells, width = text.split(mark)[:-1], len(COLUMNS)
    rows = (cells[at : at + width] for at in range(0, len(cells) - width + 1, width))
    return [Job(row[0].lstrip("\n"), *row[1:]) for row in rows]


def count_tasks(number: str) -> int:
    """Return the number of jobs that an id of squeue stands for: 1 for `7` or `7_2`, 6 for `7_[1-5,9%2]`."""
    count = 0
    for part in number.partition("[")[2].rstrip("]").partition("%")[0].split(","):
        first, _, last = part.partition(":")[0].partition("-")
        step = int(part.partition(":")[2] or 1) if ":" in part else 1
        if first.isdigit() and (last or first).isdigit():
            count += (int(last or first) - int(first)) // step + 1
    return count or 1


def summarize(jobs: Sequence[Job]) -> dict[str, Any]:
    """Return how many jobs are in each state, the first MAX_JOBS of them, and those that Slurm or an operator holds, as
    an observation has them."""
    states: Counter[str] = Counter()
    for job in jobs:
        states[job.state] += job.tasks
    held = [job for job in jobs if job.needs_operator]
    return {
        "states": dict(states),
        "first": [_observed(job) for job in jobs[:MAX_JOBS]],
        "held": [_observed(job) for job in held[:MAX_JOBS]],
    }


def _observed(job: Job) -> dict[str, str]:
    fields = ("id", "number", "user", "state", "limit", "count", "partition", "reason", "name")
    row = {field: getattr(job, field) for field in fields}
    return {**row, "seconds": job.elapsed, "nodes": "" if job.waits else job.nodes}
