"""Carries the records of current jobs over a restore, from the live database into the restored one.

slurmctld finds a job's record by its row number (job_db_inx). In the restored tables that row may be missing, if the
job began after the backup, or belong to another job, if the cluster was recreated since: slurmctld would then write the
end into another job's record. The same holds for ended jobs as long as slurmctld remembers them (MinJobAge), since it
reports their end again at its start. A job that ran when the backup was made has ended since, or never will.
"""

# Not by `sacctmgr archive load`, which loads no jobs that still run, and gives no row its number again.
# Names of tables are constants of ours with the stack's checked cluster name, all else are numbers from the database.
# ruff: noqa: S608

import time
from collections.abc import Iterator
from datetime import datetime

from accounting.database import query, tables
from system.host import SetupError, run

PARTS = ("job_table", "step_table", "suspend_table")
CANCELLED = 4  # JOB_CANCELLED in slurm.h
Jobs = list[tuple[int, int]]  # number and time of submission, in seconds since 1970, which identify a job
# Rows that nobody has used, beyond those of a table that can't be read any more.
MARGIN = 1_000_000
# Whether a row is the same job's on both sides.
SAME = "a.id_job = b.id_job AND a.time_submit = b.time_submit"


def over(cluster: str, *, live: str, fresh: str, date: str) -> Iterator[str]:
    """Carry them from database `live` to `fresh`; yields what was done. `date` is when the backup was made."""
    here, there, known = tables(live), tables(fresh), alive()
    job = f"{cluster}_job_table"
    # Damaged tables are what restores are for.
    why = "" if job in here else "their table is gone"
    if not why:
        try:
            carried = _carry(cluster, live, fresh, here & there, known)
        except SetupError as error:
            why = str(error).splitlines()[-1]
        else:
            if carried:
                yield f"kept what is recorded of {count(carried)} that slurmctld has, or that ended since the backup"
    free = "SELECT COALESCE(MAX(auto_increment), 0) FROM information_schema.tables"
    row = "0" if why else query(f"{free} WHERE table_schema = '{live}' AND table_name = '{job}';")[0][0]
    query(go_on_from(f"{fresh}.`{job}`", int(row)))
    if why:
        yield f"jobs that began after the backup, and go on, have no record now: {why}"
    moment = int(datetime.strptime(date, "%Y-%m-%dT%H:%M:%S%z").timestamp())
    ended = int(query(close(cluster, fresh, moment, known))[-1][0])
    if ended:
        yield f"{count(ended)} that ran or waited when the backup was made: gone, and recorded as cancelled"


def _carry(cluster: str, live: str, fresh: str, both: set[str], known: Jobs) -> int:
    job = f"{cluster}_job_table"
    wanted = query(pick(cluster, live, fresh, known))
    if not wanted:
        return 0
    rows = ",".join(number for (number,) in wanted)
    statements = ["START TRANSACTION;", *make_way(cluster, live, fresh, rows)]
    for part in PARTS:
        name = f"{cluster}_{part}"
        if name in both:
            columns = ",".join(f"`{column}`" for column in _columns(live, name) & _columns(fresh, name))
            statements.append(
                f"REPLACE INTO {fresh}.`{name}` ({columns}) "
                f"SELECT {columns} FROM {live}.`{name}` WHERE job_db_inx IN ({rows});"
            )
    if {f"{cluster}_assoc_table", "qos_table"} <= both:
        statements += translate(cluster, live, fresh, rows)
    query("\n".join([*statements, "COMMIT;"]))
    if "tres_table" in both:
        _resources(live, fresh, job, rows)
    return len(wanted)


def pick(cluster: str, live: str, fresh: str, known: Jobs) -> str:
    """SQL for the rows to carry: of jobs that slurmctld has, and of those that had not ended at the backup."""
    job = f"{cluster}_job_table"
    theirs = f" OR (a.id_job, a.time_submit) IN ({_pairs(known)})" if known else ""
    return (
        f"SELECT a.job_db_inx FROM {live}.`{job}` a LEFT JOIN {fresh}.`{job}` b "
        f"ON a.job_db_inx = b.job_db_inx AND {SAME} "
        f"WHERE a.deleted = 0 AND (a.time_end = 0 OR b.time_end = 0{theirs});"
    )


def go_on_from(job: str, row: int) -> str:
    """SQL that gives no row number again that slurmctld may remember; the highest known is that before `row`, or none.

    MariaDB makes it one more than the highest there is, if that is more.
    """
    if row:
        return f"ALTER TABLE {job} AUTO_INCREMENT = {row};"
    return (
        f"SELECT COALESCE(MAX(job_db_inx), 0) + {MARGIN} INTO @row FROM {job}; "
        f"EXECUTE IMMEDIATE CONCAT('ALTER TABLE {job} AUTO_INCREMENT = ', @row);"
    )


def make_way(cluster: str, live: str, fresh: str, rows: str) -> list[str]:
    """SQL that moves other jobs' restored records from these row numbers to new ones."""
    job = f"{cluster}_job_table"
    most = "(SELECT COALESCE(MAX(job_db_inx), 0) FROM {}.`{}`)"
    found = [
        f"SET @free = GREATEST({most.format(live, job)}, {most.format(fresh, job)});",
        (
            f"CREATE TEMPORARY TABLE {fresh}.moves AS SELECT b.job_db_inx AS old, (@free := @free + 1) AS new "
            f"FROM {fresh}.`{job}` b JOIN {live}.`{job}` a ON a.job_db_inx = b.job_db_inx "
            f"WHERE b.job_db_inx IN ({rows}) AND NOT ({SAME});"
        ),
    ]
    for part in PARTS:
        name = f"{fresh}.`{cluster}_{part}`"
        found.append(f"UPDATE {name} t JOIN {fresh}.moves m ON t.job_db_inx = m.old SET t.job_db_inx = m.new;")
    return found


def translate(cluster: str, live: str, fresh: str, rows: str) -> list[str]:
    """SQL that gives carried records the restored database's own numbers of account and QOS."""
    job, assoc = f"{cluster}_job_table", f"{cluster}_assoc_table"
    mine = f"WHERE j.job_db_inx IN ({rows});"
    return [
        (
            f"UPDATE {fresh}.`{job}` j JOIN {live}.`{assoc}` a ON a.id_assoc = j.id_assoc JOIN {fresh}.`{assoc}` b "
            "ON a.user = b.user AND a.acct = b.acct AND a.`partition` = b.`partition` "
            f"SET j.id_assoc = b.id_assoc {mine}"
        ),
        (
            f"UPDATE {fresh}.`{job}` j JOIN {live}.qos_table a ON a.id = j.id_qos JOIN {fresh}.qos_table b "
            f"ON a.name = b.name SET j.id_qos = b.id {mine}"
        ),
    ]


def close(cluster: str, fresh: str, moment: int, known: Jobs) -> str:
    """SQL that ends the restored records of jobs that slurmctld does not know, and gives how many these were."""
    job, step = f"{fresh}.`{cluster}_job_table`", f"{fresh}.`{cluster}_step_table`"
    others = f" AND (id_job, time_submit) NOT IN ({_pairs(known)})" if known else ""
    return (
        f"UPDATE {job} SET time_end = GREATEST(time_start, {moment}), state = {CANCELLED} WHERE time_end = 0{others}; "
        f"SET @ended = ROW_COUNT(); "
        f"UPDATE {step} s JOIN {job} j ON s.job_db_inx = j.job_db_inx SET s.time_end = j.time_end, "
        f"s.state = {CANCELLED} WHERE s.time_end = 0 AND j.time_end != 0; SELECT @ended;"
    )


def alive() -> Jobs:
    """Every job that slurmctld has: those that wait, run, or have ended a while ago."""
    found: Jobs = []
    for line in run("squeue", "--noheader", "--all", "--states=all", "--array", "--format=%A %V").splitlines():
        number, _, submitted = line.strip().partition(" ")
        if number.isdigit() and submitted[:1].isdigit():
            found.append((int(number), int(time.mktime(time.strptime(submitted, "%Y-%m-%dT%H:%M:%S")))))
    return found


def resources(text: str, numbers: dict[str, str]) -> str:
    """A list of resources by number, `1=2,1001=1`, in other numbers; what has none there is left out."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return ",".join(f"{numbers[number]}={count}" for number, _, count in pairs if number in numbers)


def _resources(live: str, fresh: str, job: str, rows: str) -> None:
    """Translate the resources of carried records, where GPUs have other numbers in the restored database."""
    old = {(kind, name): number for number, kind, name in query(f"SELECT id, type, name FROM {live}.tres_table;")}
    new = {(kind, name): number for number, kind, name in query(f"SELECT id, type, name FROM {fresh}.tres_table;")}
    numbers = {number: new[key] for key, number in old.items() if key in new}
    if all(before == after for before, after in numbers.items()) and len(numbers) == len(old):
        return
    found = query(f"SELECT job_db_inx, tres_alloc, tres_req FROM {fresh}.`{job}` WHERE job_db_inx IN ({rows});")
    query(
        "\n".join(
            f"UPDATE {fresh}.`{job}` SET tres_alloc = '{resources(alloc, numbers)}', "
            f"tres_req = '{resources(req, numbers)}' WHERE job_db_inx = {row};"
            for row, alloc, req in found
        )
    )


def count(number: int) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} job{'' if number == 1 else 's'}"


def _pairs(known: Jobs) -> str:
    return ", ".join(f"({number}, {submitted})" for number, submitted in known)


def _columns(database: str, table: str) -> set[str]:
    where = f"WHERE table_schema = '{database}' AND table_name = '{table}'"
    return {name for (name,) in query(f"SELECT column_name FROM information_schema.columns {where};")}
