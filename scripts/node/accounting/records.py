"""Jobs whose records in the database are not what became of them, as after a kill of slurmctld.

What became of them is in COMPLETIONS, one line of JSON for each job that ended, from jobcomp.lua. Its values are the
users' own, and the user slurm can write there: none is used before it was checked.
"""

# The name of the table is the stack's checked cluster name, all else are numbers.
# ruff: noqa: S608

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accounting.backup import DATABASE, cluster_name, query
from system.host import run

COMPLETIONS = Path("/var/log/slurm/job_completions.log")
ROTATED = 6  # weekly files that have jobs of LATELY
TAIL = 1 << 20  # bytes at the end of the newest ones that are looked at for `status`
MOST = 1 << 28  # bytes of a file that are looked at otherwise
SETTLED = 600  # seconds after which a record is no longer on its way
LATELY = 27 * 86400  # seconds since the submission: the shortest `purge_after_months` leaves the records of a month
NEEDED = ("job_id", "submit_time", "start_time", "end_time", "job_state", "user_id", "group_id")
TEXTS = frozenset(
    "user_name account partition qos resv_name name work_dir features nodes tres_alloc_str tres_req_str comment "
    "admin_comment".split()
)
TEXT = re.compile("[\\0-\xff]*")  # bytes, each as one character
TRES = re.compile(r"([0-9]{1,10}=[0-9]{1,20}(,(?!$)|$))*")
Job = dict[str, Any]


def observe() -> dict[str, Any]:
    """Numbers of runaways, which the database takes to be running, and of ended jobs that it does not know."""
    table = f"{DATABASE}.`{cluster_name()}_job_table`"
    old = f"UNIX_TIMESTAMP() - {SETTLED}"
    running = query(
        f"SELECT id_job FROM {table} WHERE time_end = 0 AND deleted = 0 AND time_start > 0 AND time_start < {old};"
    )
    absent, here = _absent(TAIL), known()
    return {
        "runaway": sorted({row[0] for row in running} - here, key=int),
        "unrecorded": sorted({str(job["job_id"]) for job in absent} - here, key=int),
    }


def known() -> set[str]:
    """Numbers of the jobs that slurmctld knows: the records of these may wait in its queue."""
    return set(run("squeue", "--all", "--noheader", "--states=all", "--format=%A", timeout=3).split())


def unrecorded() -> list[Job]:
    """The ended jobs that neither the database nor slurmctld knows."""
    absent, here = _absent(), known()
    return [job for job in absent if str(job["job_id"]) not in here]


def _absent(tail: int | None = None) -> list[Job]:
    """The ended jobs that the database does not know, of `tail` bytes at the end of COMPLETIONS. slurmctld is asked for
    those that it knows afterwards: a job that ends meanwhile is one of these."""
    jobs = ended(tail)
    numbers = ",".join(["0", *(str(number) for number, _ in jobs)])
    table = f"{DATABASE}.`{cluster_name()}_job_table`"
    rows = query(f"SELECT id_job, time_submit FROM {table} WHERE id_job IN ({numbers});")
    found = {(int(number), int(submitted)) for number, submitted in rows}
    return [job for key, job in sorted(jobs.items()) if key not in found]


def ended(tail: int | None = None) -> dict[tuple[int, int], Job]:
    """Jobs of COMPLETIONS, by number and time of submission; not of those whose records may have been purged since."""
    found: dict[tuple[int, int], Job] = {}
    since = time.time() - LATELY
    for line in _lines(tail):
        try:
            job = json.loads(line)
        except (ValueError, RecursionError):
            continue  # half a line, of a slurmctld that was killed meanwhile
        if is_sound(job) and job["submit_time"] > since:
            found[job["job_id"], job["submit_time"]] = job  # of several, slurmctld's last word
    return found


def is_sound(job: object) -> bool:
    """Whether it is a job as jobcomp.lua writes one: numbers that the database takes, and bytes."""
    return (
        isinstance(job, dict)
        and all(name in job for name in NEEDED)
        and all(_fits(value, TEXT if name in TEXTS else None) for name, value in job.items())
        and all(TRES.fullmatch(job.get(name, "")) for name in ("tres_alloc_str", "tres_req_str"))
    )


def _fits(value: object, text: re.Pattern[str] | None) -> bool:
    if text:
        return isinstance(value, str) and text.fullmatch(value) is not None
    return type(value) is int and 0 <= value < 1 << 32


def _lines(tail: int | None) -> Iterator[bytes]:
    for number in range(1 if tail else ROTATED, 0, -1):
        for end in (".gz", ""):
            yield from _read(Path(f"{COMPLETIONS}.{number}{end}"), tail or MOST).split(b"\n")
    yield from _read(COMPLETIONS, tail or MOST).split(b"\n")


def _read(path: Path, most: int) -> bytes:
    """The end of a file; nothing of what is none, or is damaged."""
    try:
        # The user slurm may put anything in its place: no link is followed, no pipe waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return b""
            if path.suffix == ".gz":
                return gzip.GzipFile(fileobj=file).read(most)
            file.seek(max(0, found.st_size - most))
            return file.read(most)
    except (OSError, EOFError, zlib.error):
        return b""
