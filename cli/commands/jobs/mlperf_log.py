"""Logs of MLPerf that are on a cluster: found by their jobs, and brought here without what a report does not need."""

import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from cli.cluster.jobs import Jobs
from cli.errors import CliError
from cluster.catalog.mlperf import STORAGE
from cluster.report.mlperf_log import PATTERNS

_MOST = 200_000_000
"""Bytes of lines that are brought here: those of 400,000 intervals."""
_BEGINNING = 300
"""Bytes of the first line that are brought here: they show what a file is that is no log."""
_NUMBERED = re.compile(rb"([0-9]{1,12}):(.*)", re.DOTALL)


def find(jobs: Jobs, number: str, data: str) -> str:
    """The log of a job, or the path itself of one that is there.

    Raises CliError: there is none; slurmctld does not have the job any more, and it is in none of the data folders.
    """
    path = number if number.startswith("/") else _of_job(jobs, number, data)
    file = shlex.quote(path)
    if not jobs.run(f"if [ -f {file} ] && [ -r {file} ]; then echo there; fi").strip():
        raise CliError(f"{path} is no file on the cluster that {jobs.user} can read.")
    return path


def _of_job(jobs: Jobs, number: str, data: str) -> str:
    if not number.isascii() or not number.isdigit():
        raise CliError(f"{number!r} is no job: with --stack, name the number of one, or the path of a log there.")
    folders = [data] if data else [one.path for one in STORAGE.values()]
    places = " ".join(f"{shlex.quote(one)}/logs/{number}_*.out" for one in folders)
    line = (
        f"scontrol --oneliner show job {number} 2>/dev/null | sed -n 's/.* StdOut=\\([^ ]*\\).*/\\1/p'; "
        f"ls -1 -- {places} 2>/dev/null || true"
    )
    found = [one for one in jobs.run(line).splitlines() if one.startswith("/")]
    if not found:
        raise CliError(
            f"no log of job {number} is in {' or '.join(f'{one}/logs' for one in folders)}, and slurmctld does not "
            "know it any more. Name its data folder with --data, or the log's path instead of the job."
        )
    return found[0]


@contextmanager
def fetched(jobs: Jobs, path: str) -> Iterator[BinaryIO]:
    """A copy of a log: its beginning, the lines that a report needs at their own places, and empty lines for others. It
    is empty if the log is not there yet."""
    pattern = "|".join(re.escape(one.decode()).replace(r"\ ", " ") for one in PATTERNS)
    file = shlex.quote(path)
    first = f"head -c {_BEGINNING} {file} | head -n 1 | awk '{{ print \"1:\" $0 }}'"
    wanted = f"grep -anE -- {shlex.quote(pattern)} {file}"
    text = jobs.run(f"{{ {first} ; {wanted} ; }} 2>/dev/null | head -c {_MOST} || true", 600)
    rows = text.encode("utf-8", "replace").split(b"\n")
    if rows[1:] and rows[1].startswith(b"1:"):
        del rows[0]  # the first line is one that a report needs
    with tempfile.TemporaryFile() as copy:
        last = 0
        for row in rows:
            if found := _NUMBERED.fullmatch(row):
                number = int(found[1])
                copy.write(b"\n" * max(0, number - last - 1) + found[2] + b"\n")
                last = number
        copy.seek(0)
        yield copy
