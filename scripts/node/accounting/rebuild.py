"""Writes the records of ended jobs into the database that a killed slurmctld took with it, beside the running cluster.

Steps and their usage are not among what slurmctld notes of a job at its end: these stay lost.
"""

# Names of tables are constants of ours with the stack's checked cluster name, texts of users are hexadecimal.
# ruff: noqa: S608

from __future__ import annotations

import json
import pwd
import time
from collections.abc import Mapping
from typing import Any

from accounting import records
from accounting.backup import DATABASE, cluster_name, query
from accounting.merge_jobs import count
from slurm import scheduler
from system.host import SetupError, log

MARK = "rebuilt from job_completions.log"
NO_VAL = 4294967294  # slurm.h
REQUEUED = 0x400  # JOB_REQUEUE of slurm.h, a flag that the database has as a state
STATES = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
# Since 24.11 slurmctld numbers rows itself: cluster << 52 | milliseconds << 10 | counter (sluid.c). Rows of ours have
# the milliseconds of January 1970, so that none is in the way of one that slurmctld has yet to send.
CLUSTER_BITS, OURS = 52, 1 << 36


def rebuild(payload: Mapping[str, Any]) -> None:
    """Print the ended jobs without a record, each a JSON list in a line; with {insert: true} write these records."""
    if waiting := scheduler.statistics()["waiting"]:
        raise SetupError(
            f"slurmctld has {waiting} records that slurmdbd has not taken yet: have slurmdbd and MariaDB run, and wait "
            "until there are none. Nothing was changed"
        )
    jobs = records.unrecorded()
    if not payload["insert"]:
        for job in jobs:
            log(line(job))
    elif jobs:
        query("\n".join(statements(cluster_name(), jobs)))
        log(f"wrote the records of {count(len(jobs))}; sreport counts them after slurmdbd's next hourly rollup")


def line(job: records.Job) -> str:
    """What a record will say, a JSON list of texts."""
    began, ended = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment)) if moment else "-"
        for moment in (start(job), job["end_time"])
    )
    number = state(job)
    name = STATES[number] if number < len(STATES) else "REQUEUED" if number == REQUEUED else str(number)
    told = (user(job), text(job, "account") or "-", text(job, "partition") or "-", name, began, ended)
    return json.dumps([str(job["job_id"]), *told])


def statements(cluster: str, jobs: list[records.Job]) -> list[str]:
    """SQL that inserts the records, and has sreport count them; all of it, or nothing. A row that is there stays."""
    table = f"{DATABASE}.`{cluster}_job_table`"
    since = min(start(job) or job["submit_time"] for job in jobs)
    return [
        "SET SESSION sql_mode = '';",  # as slurmdbd does: what is too long for a column is cut
        "START TRANSACTION;",
        f"SELECT COALESCE(MAX(job_db_inx), 0) >> {CLUSTER_BITS} << {CLUSTER_BITS} INTO @cluster FROM {table};",
        (
            f"SELECT COALESCE(MAX(job_db_inx), @cluster) INTO @row FROM {table} "
            f"WHERE job_db_inx BETWEEN @cluster AND @cluster + {OURS};"
        ),
        *(_insert(cluster, table, job) for job in jobs),
        # As slurmdbd does where it hears of a job late (as_mysql_job_start).
        (
            f"UPDATE {DATABASE}.`{cluster}_last_ran_table` SET hourly_rollup = LEAST(hourly_rollup, {since}), "
            f"daily_rollup = LEAST(daily_rollup, {since}), monthly_rollup = LEAST(monthly_rollup, {since});"
        ),
        "COMMIT;",
    ]


def _insert(cluster: str, table: str, job: records.Job) -> str:
    begun = start(job)
    assoc = f"SELECT id_assoc FROM {DATABASE}.`{cluster}_assoc_table`"
    qos, reserved = f"SELECT id FROM {DATABASE}.qos_table", f"SELECT id_resv FROM {DATABASE}.`{cluster}_resv_table`"
    name, account, part = _sql(user(job)), _sql(text(job, "account")), _sql(text(job, "partition"))
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
        "state": state(job),
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
        # The most special association, as slurmctld takes it; of a user who has left there is one that is deleted.
        "id_assoc": f"COALESCE(({assoc} WHERE user = {name} AND acct = {account} AND `partition` IN ('', {part}) "
        "ORDER BY deleted, `partition` = '' LIMIT 1), 0)",
        "id_qos": f"COALESCE(({qos} WHERE name = {_sql(text(job, 'qos'))} ORDER BY deleted LIMIT 1), 0)",
        "id_resv": f"COALESCE(({reserved} WHERE resv_name = {_sql(text(job, 'resv_name'))} AND time_start <= {begun} "
        "ORDER BY time_start DESC LIMIT 1), 0)",
        "id_wckey": 0,
        "state_reason_prev": 0,
        "account": account,
        "`partition`": part,
        "job_name": _sql(text(job, "name") or "allocation"),
        "work_dir": _sql(text(job, "work_dir")),
        "constraints": _sql(text(job, "features")),
        "nodelist": _sql(text(job, "nodes") or "None assigned"),
        "tres_alloc": _sql(text(job, "tres_alloc_str")),
        "tres_req": _sql(text(job, "tres_req_str")),
        "derived_es": _sql(text(job, "comment")),
        "admin_comment": _sql(text(job, "admin_comment")),
        "system_comment": _sql(MARK),
    }
    return f"INSERT IGNORE INTO {table} ({', '.join(row)}) VALUES ({', '.join(map(str, row.values()))});"


def start(job: records.Job) -> int:
    """When it began; 0 for one that was cancelled before, whose start slurmctld only expected."""
    return job["start_time"] if job["start_time"] <= job["end_time"] else 0


def state(job: records.Job) -> int:
    """Its state as the database has it."""
    return REQUEUED if job["job_state"] & REQUEUED else job["job_state"] & 0xFF


def user(job: records.Job) -> str:
    """The name of its user."""
    try:
        return text(job, "user_name") or pwd.getpwuid(job["user_id"]).pw_name
    except KeyError:
        return str(job["user_id"])


def text(job: records.Job, name: str) -> str:
    """A text of it: jobcomp.lua writes bytes, which are UTF-8 where users have typed them."""
    return str(job.get(name, "")).encode("latin-1").decode(errors="replace")


def _sql(value: str) -> str:
    return f"_utf8mb4 X'{value.encode().hex()}'"
