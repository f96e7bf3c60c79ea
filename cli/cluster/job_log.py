"""The log of a job that ran on a cluster."""

import re
import shlex

from cli.cluster.cluster import Cluster
from cli.cluster.jobs import Jobs
from cli.errors import CliError
from cluster.jobs.nccl import LOGS

_USER = re.compile("[a-z_][a-z0-9_-]*")
_OUTPUT = re.compile(r"^ +StdOut=(/.+)$", re.MULTILINE)


def read_job_log(cluster: Cluster, stack: str, job: str, most: int) -> tuple[str, str]:
    """Where the log of a job is, and its first `most` bytes, read as the user whose job it is.

    slurmctld knows a job's output for some minutes after its end (MinJobAge). Of older jobs the accounting database
    has the user, and the place is the one of `./hpc nccl run`.

    Raises:
        CliError: nobody knows the job, or its user can't read the log.
    """
    root, number = Jobs(cluster, stack, "root"), shlex.quote(job)
    # Not by `scontrol show job`: a job's name stands before its user there, and may say that it is another's.
    user = _first(root, f"squeue --noheader --states=all --jobs={number} --format=%u 2>/dev/null || true")
    if _USER.fullmatch(user):
        jobs = Jobs(cluster, stack, user)
        found = _OUTPUT.findall(jobs.run(f"scontrol show job {number} 2>/dev/null || true"))
        if found:
            return found[-1], jobs.read(found[-1], most)
    user = _first(root, f"sacct --noheader --parsable2 --allocations --jobs={number} --format=User")
    if not _USER.fullmatch(user):
        raise CliError(f"job {job}: neither slurmctld nor the accounting database of {stack} knows it.")
    jobs = Jobs(cluster, stack, user)
    path = f"{jobs.run('echo ~').strip()}/{LOGS}/{job}.log"
    try:
        return path, jobs.read(path, most)
    except CliError as error:
        todo = f"if it wrote its output elsewhere, copy that file here and name it: ./hpc nccl report FILE\n{error}"
        raise CliError(f"job {job} of {user}: its log is not {path}; {todo}") from None


def _first(jobs: Jobs, line: str) -> str:
    """The first line that a command prints, without blanks around it."""
    return jobs.run(line).strip().partition("\n")[0].strip()
