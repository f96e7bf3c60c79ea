"""The log of a job that ran on a cluster."""

import re
import shlex

from cli.cluster.cluster import Cluster
from cli.cluster.jobs import Jobs
from cli.errors import CliError
from cluster.jobs.nccl import LOGS

_USER = re.compile(r"\bUserId=([a-z_][a-z0-9_-]*)\(")
_OUTPUT = re.compile(r"\bStdOut=(/\S+)")


def read_job_log(cluster: Cluster, stack: str, job: str, most: int) -> tuple[str, str]:
    """Where the log of a job is, and its first `most` bytes, read as the user whose job it is.

    slurmctld knows a job's output for some minutes after its end (MinJobAge). Of older jobs the accounting database
    has the user, and the place is the one of `./hpc nccl run`.

    Raises:
        CliError: nobody knows the job, or its user can't read the log.
    """
    root = Jobs(cluster, stack, "root")
    shown = root.run(f"scontrol show job --oneliner {job} 2>/dev/null || true")
    if (user := _USER.search(shown)) and (output := _OUTPUT.search(shown)):
        return output[1], Jobs(cluster, stack, user[1]).read(output[1], most)
    line = f"sacct --noheader --parsable2 --allocations --jobs={shlex.quote(job)} --format=User"
    name = root.run(line).strip().partition("\n")[0]
    if not re.fullmatch("[a-z_][a-z0-9_-]*", name):
        raise CliError(f"job {job}: neither slurmctld nor the accounting database of {stack} knows it.")
    jobs = Jobs(cluster, stack, name)
    path = f"{jobs.run('echo ~').strip()}/{LOGS}/{job}.log"
    try:
        return path, jobs.read(path, most)
    except CliError as error:
        todo = f"if it wrote its output elsewhere, copy that file here and name it: ./hpc nccl report FILE\n{error}"
        raise CliError(f"job {job} of {name}: its log is not {path}; {todo}") from None
