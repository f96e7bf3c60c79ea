"""Finds jobs whose records in the database are wrong or missing, as after a kill of slurmctld, and rebuilds records.

COMPLETIONS has a line of JSON for each ended job, from jobcomp.lua. Users choose some of its values, and the user slurm
can write the file: every value is checked before it is used.
"""

import gzip
import json
import os
import pwd
import re
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from accounting.database import DATABASE, cluster_name, count_jobs, query
from slurm import scheduler
from system.host import SetupError, log, open_regular, run

# SQL contains names of tables (with the stack's checked cluster name), texts of users as hexadecimal, and numbers.
# ruff: noqa: S608

COMPLETIONS = Path("/var/log/slurm/job_completions.log")
ROTATED = 6  # weekly files that can have jobs of the last LATELY seconds
TAIL = 1 << 20  # bytes at the end of the newest files that `status` reads
MOST = 1 << 28  # bytes of a file that are read otherwise
SETTLED = 600  # seconds after which slurmctld has sent a record
LATELY = 27 * 86400  # seconds since the submission; the shortest `purge_after_months` leaves the records of a month
NEEDED = ("job_id", "submit_time", "start_time", "end_time", "job_state", "user_id", "group_id")
TEXTS = frozenset(
    "user_name account partition qos resv_name name work_dir features nodes tres_alloc_str tres_req_str comment "
    "admin_comment".split()
)
TEXT = re.compile("[\\0-\xff]*")  # bytes, each as one character
TRES = re.compile(r"([0-9]{1,10}=[0-9]{1,20}(,(?!$)|$))*")
Job = dict[str, Any]


def observe_records() -> dict[str, Any]:
    """Return the numbers of runaway jobs (running in the database only) and of ended jobs without a record."""
    table = f"{DATABASE}.`{cluster_name()}_job_table`"
    old = f"UNIX_TIMESTAMP() - {SETTLED}"
    running = query(
        f"SELECT id_job FROM {table} WHERE time_end = 0 AND deleted = 0 AND time_start > 0 AND time_start < {old};"
    )
    absent, current = _without_record(TAIL), jobs_of_slurmctld()
    return {
        "runaway": sorted({row[0] for row in running} - current, key=int),
        "unrecorded": sorted({str(job["job_id"]) for job in absent} - current, key=int),
    }


def jobs_of_slurmctld() -> set[str]:
    """Return the numbers of the jobs that slurmctld has: it may have their records in its queue."""
    return set(run("squeue", "--all", "--noheader", "--states=all", "--format=%A", timeout=3).split())


def unrecorded() -> list[Job]:
    """Return the ended jobs that neither the database nor slurmctld has."""
    absent, current = _without_record(), jobs_of_slurmctld()
    return [job for job in absent if str(job["job_id"]) not in current]


def _without_record(tail: int | None = None) -> list[Job]:
    """Return the ended jobs in the last `tail` bytes of COMPLETIONS that the database does not have.

    Ask slurmctld for its jobs after this: they include those that end meanwhile.
    """
    jobs = ended(tail)
    numbers = ",".join(["0", *(str(number) for number, _ in jobs)])
    table = f"{DATABASE}.`{cluster_name()}_job_table`"
    rows = query(f"SELECT id_job, time_submit FROM {table} WHERE id_job IN ({numbers});")
    recorded = {(int(number), int(submitted)) for number, submitted in rows}
    return [job for key, job in sorted(jobs.items()) if key not in recorded]


def ended(tail: int | None = None) -> dict[tuple[int, int], Job]:
    """Return the jobs of COMPLETIONS by number and time of submission, without those that may have been purged."""
    jobs: dict[tuple[int, int], Job] = {}
    since = time.time() - LATELY
    for line in _lines(tail):
        try:
            job = json.loads(line)
        except (ValueError, RecursionError):
            continue  # an incomplete line of a killed slurmctld
        if is_valid(job) and job["submit_time"] > since:
            jobs[job["job_id"], job["submit_time"]] = job  # the last of several lines counts
    return jobs


def is_valid(job: object) -> bool:
    """Return whether the value is a job as jobcomp.lua writes it: numbers in the database's range, and bytes."""
    return (
        isinstance(job, dict)
        and all(name in job for name in NEEDED)
        and all(
            isinstance(value, str) and TEXT.fullmatch(value)
            if name in TEXTS
            else type(value) is int and 0 <= value < 1 << 32
            for name, value in job.items()
        )
        and all(TRES.fullmatch(job.get(name, "")) for name in ("tres_alloc_str", "tres_req_str"))
    )


def _lines(tail: int | None) -> Iterator[bytes]:
    for number in range(1 if tail else ROTATED, 0, -1):
        for end in (".gz", ""):
            yield from _read(Path(f"{COMPLETIONS}.{number}{end}"), tail or MOST).split(b"\n")
    yield from _read(COMPLETIONS, tail or MOST).split(b"\n")


def _read(path: Path, most: int) -> bytes:
    """Return the end of a file; nothing if it is not a regular file or is damaged."""
    try:
        # open_regular, since the user slurm may put anything at this path.
        with open_regular(path) as file:
            if path.suffix == ".gz":
                return gzip.GzipFile(fileobj=file).read(most)
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read(most)
    except (OSError, EOFError, zlib.error):
        return b""


MARK = "rebuilt from job_completions.log"
NO_VAL = 4294967294  # slurm.h
REQUEUED = 0x400  # JOB_REQUEUE of slurm.h, a flag that the database has as a state
STATES = (
    "PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY"
).split()
# Since 24.11 slurmctld numbers rows itself: cluster << 52 | milliseconds << 10 | counter (sluid.c). Rebuilt rows have
# the milliseconds of January 1970, so that slurmctld never uses the same number.
CLUSTER_BITS, REBUILT_ROWS = 52, 1 << 36


def rebuild(payload: Mapping[str, Any]) -> None:
    """Print the ended jobs without a record, each as a JSON list in a line; with {insert: true} write the records.

    Raises SetupError while slurmctld has records that slurmdbd has not accepted yet.
    """
    if waiting := scheduler.statistics()["waiting"]:
        raise SetupError(
            f"slurmctld has {waiting} records that slurmdbd has not taken yet: have slurmdbd and MariaDB run, and wait "
            "until there are none. Nothing was changed"
        )
    jobs = unrecorded()
    if not payload["insert"]:
        for job in jobs:
            log(job_line(job))
    elif jobs:
        query("\n".join(statements(cluster_name(), jobs)))
        log(f"wrote the records of {count_jobs(len(jobs))}; sreport counts them after slurmdbd's next hourly rollup")


def job_line(job: Job) -> str:
    """Return the main values of the record of a job, as a JSON list of texts."""
    began, ended_at = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment)) if moment else "-"
        for moment in (started(job), job["end_time"])
    )
    number = state_of(job)
    name = STATES[number] if number < len(STATES) else "REQUEUED" if number == REQUEUED else str(number)
    fields = (user_name(job), text_of(job, "account") or "-", text_of(job, "partition") or "-", name, began, ended_at)
    return json.dumps([str(job["job_id"]), *fields])


def statements(cluster: str, jobs: list[Job]) -> list[str]:
    """Return SQL that inserts the records in one transaction, so that sreport counts them; existing rows stay."""
    table = f"{DATABASE}.`{cluster}_job_table`"
    since = min(started(job) or job["submit_time"] for job in jobs)
    return [
        "SET SESSION sql_mode = '';",  # as slurmdbd does: values that are too long for a column are truncated
        "START TRANSACTION;",
        f"SELECT COALESCE(MAX(job_db_inx), 0) >> {CLUSTER_BITS} << {CLUSTER_BITS} INTO @cluster FROM {table};",
        (
            f"SELECT COALESCE(MAX(job_db_inx), @cluster) INTO @row FROM {table} "
            f"WHERE job_db_inx BETWEEN @cluster AND @cluster + {REBUILT_ROWS};"
        ),
        *(_insert(cluster, table, job) for job in jobs),
        # As slurmdbd does for a job that is reported late (as_mysql_job_start).
        (
            f"UPDATE {DATABASE}.`{cluster}_last_ran_table` SET hourly_rollup = LEAST(hourly_rollup, {since}), "
            f"daily_rollup = LEAST(daily_rollup, {since}), monthly_rollup = LEAST(monthly_rollup, {since});"
        ),
        "COMMIT;",
    ]


def _insert(cluster: str, table: str, job: Job) -> str:
    begun = started(job)
    assoc = f"SELECT id_assoc FROM {DATABASE}.`{cluster}_assoc_table`"
    qos, reserved = f"SELECT id FROM {DATABASE}.qos_table", f"SELECT id_resv FROM {DATABASE}.`{cluster}_resv_table`"
    name, account, part = _sql(user_name(job)), _sql(text_of(job, "account")), _sql(text_of(job, "partition"))
    exit_code = job.get("exit_code", 0)
    array, het = job.get("array_job_id", 0), job.get("het_job_id", 0)
    row = {
        "job_db_inx": "IF(@cluster, @row := @row + 1, NULL)",
        "mod_time": "UNIX_TIMESTAMP()",
        "id_job": job["job_id"],
        "time_submit": job["submit_time"],
        "time_eligible": begun or job["submit_time"],
        "time_start": begun,
        "time_end": job["end_time"],
        "state": state_of(job),
        "exit_code": 256 if exit_code == 1 else exit_code,  # Slurm's own, and no signal (as_mysql_job_complete)
        "derived_ec": 0 if job.get("derived_ec") == NO_VAL else job.get("derived_ec", 0),
        "id_array_job": array,
        "id_array_task": job.get("array_task_id", NO_VAL) if array else NO_VAL,
        "het_job_id": het,
        "het_job_offset": job.get("het_job_offset", NO_VAL) if het else NO_VAL,
        "timelimit": job.get("time_limit", 0),
        "priority": job.get("priority", 0),
        "cpus_req": job.get("min_cpus", 0),
        "nodes_alloc": job.get("total_nodes", 0),
        "id_user": job["user_id"],
        "id_group": job["group_id"],
        # The most specific association, as slurmctld uses it; a removed user has a deleted one.
        "id_assoc": f"COALESCE(({assoc} WHERE user = {name} AND acct = {account} AND `partition` IN ('', {part}) "
        "ORDER BY deleted, `partition` = '' LIMIT 1), 0)",
        "id_qos": f"COALESCE(({qos} WHERE name = {_sql(text_of(job, 'qos'))} ORDER BY deleted LIMIT 1), 0)",
        "id_resv": f"COALESCE(({reserved} WHERE resv_name = {_sql(text_of(job, 'resv_name'))} "
        f"AND time_start <= {begun} ORDER BY time_start DESC LIMIT 1), 0)",
        "id_wckey": 0,
        "state_reason_prev": 0,
        "account": account,
        "`partition`": part,
        "job_name": _sql(text_of(job, "name") or "allocation"),
        "work_dir": _sql(text_of(job, "work_dir")),
        "constraints": _sql(text_of(job, "features")),
        "nodelist": _sql(text_of(job, "nodes") or "None assigned"),
        "tres_alloc": _sql(text_of(job, "tres_alloc_str")),
        "tres_req": _sql(text_of(job, "tres_req_str")),
        "derived_es": _sql(text_of(job, "comment")),
        "admin_comment": _sql(text_of(job, "admin_comment")),
        "system_comment": _sql(MARK),
    }
    return f"INSERT IGNORE INTO {table} ({', '.join(row)}) VALUES ({', '.join(map(str, row.values()))});"


def started(job: Job) -> int:
    """Return the start of the job; 0 if it was cancelled before, when slurmctld only had an expected start."""
    return job["start_time"] if job["start_time"] <= job["end_time"] else 0


def state_of(job: Job) -> int:
    """Return the job's state as the database has it."""
    return REQUEUED if job["job_state"] & REQUEUED else job["job_state"] & 0xFF


def user_name(job: Job) -> str:
    try:
        return text_of(job, "user_name") or pwd.getpwuid(job["user_id"]).pw_name
    except KeyError:
        return str(job["user_id"])


def text_of(job: Job, name: str) -> str:
    """Return a text of the job: jobcomp.lua writes each byte as a character, and users type UTF-8."""
    return str(job.get(name, "")).encode("latin-1").decode(errors="replace")


def _sql(value: str) -> str:
    return f"_utf8mb4 X'{value.encode().hex()}'"
