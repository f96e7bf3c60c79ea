"""Jobs whose records in the database are not what became of them, as after a kill of slurmctld.

They are named, and no record is made of what COMPLETIONS says: a job's name and folder stand in its lines as they are,
line breaks too, so that a user can write lines that look like another user's jobs.
"""

# The name of the table is the stack's checked cluster name, all else are numbers.
# ruff: noqa: S608

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from accounting.backup import DATABASE, cluster_name, query
from system.host import run

COMPLETIONS = Path("/var/log/slurm/job_completions")  # slurmctld's plain copy, written when a job ends (JobCompLoc)
TAIL = 1 << 20  # bytes of it that are looked at
SETTLED = 600  # seconds after which a record is no longer on its way
LATELY = 27 * 86400  # seconds: the shortest `purge_after_months` leaves the records of a month
_ENDED = re.compile(
    rb"^JobId=([0-9]+) UserId=.*? EndTime=([0-9T:-]{19}) NodeList=.*? ExitCode=[0-9]+:[0-9]+ $",
    re.MULTILINE | re.DOTALL,
)


def observe() -> dict[str, Any]:
    """Numbers of runaways, which the database takes to be running, and of ended jobs that it does not know."""
    table = f"{DATABASE}.`{cluster_name()}_job_table`"
    old = f"UNIX_TIMESTAMP() - {SETTLED}"
    known = set(run("squeue", "--all", "--noheader", "--states=all", "--format=%A", timeout=3).split())
    running = query(
        f"SELECT id_job FROM {table} WHERE time_end = 0 AND deleted = 0 AND time_start > 0 AND time_start < {old};"
    )
    numbers = ended()
    found = query(f"SELECT DISTINCT id_job FROM {table} WHERE id_job IN ({','.join(['0', *numbers])});")
    return {
        "runaway": sorted({row[0] for row in running} - known, key=int),
        # Those that slurmctld still remembers may wait in its queue.
        "unrecorded": sorted(set(numbers) - {row[0] for row in found} - known, key=int),
    }


def ended() -> list[str]:
    """Numbers of jobs at the end of COMPLETIONS, each once; not of those whose records may have been purged since."""
    if not COMPLETIONS.exists():
        return []
    with COMPLETIONS.open("rb") as file:
        file.seek(max(0, COMPLETIONS.stat().st_size - TAIL))
        text = file.read()
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - LATELY)).encode()
    return list(dict.fromkeys(number.decode() for number, end in _ENDED.findall(text) if end > since))
