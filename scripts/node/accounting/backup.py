"""Backups of the accounting database, and restores: a gzipped SQL dump with a description and a checksum.

    -- hpc accounting backup 1
    -- {"cluster": ..., "slurm": ..., "date": ..., "jobs": ..., "managed": ...}
    ... the output of mariadb-dump ...
    -- sha256 SUM                     over every byte before this line

So a file that is incomplete, or not a backup, is refused before it is used. `zcat FILE | mariadb DATABASE` loads it
without this program.

A restore replaces the database while slurmctld and its jobs continue. It loads the backup into a second database. Then
it stops slurmdbd (slurmctld queues its records), dumps the live database, carries the records of current jobs over,
exchanges the tables in one statement, and starts slurmdbd. The next run completes an interrupted one: nothing is
removed before its copy is complete.
"""

import contextlib
import functools
import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from accounting import accounts
from accounting.database import DATABASE, cluster_name, count_jobs, query, sacctmgr_show, tables
from slurm import scheduler, slurmctld
from system import cluster_state
from system.host import SetupError, folder, listens, log, run, succeeds, wait, write

# Slurm's own tools can't do this: `sacctmgr dump` has no job records, `sacctmgr archive dump` purges those that it
# writes, and `sacctmgr archive load` loads no running jobs and does not keep row numbers.
# SQL contains names of tables (constants with the stack's checked cluster name) and numbers from the database.
# ruff: noqa: S608

FIRST_LINE = "-- hpc accounting backup 1\n"
LAST_LINE = "-- sha256 "
# The first line of dumps by MariaDB's clients since 2024; older clients fail on it.
SANDBOX = b"/*M!999999\\- enable the sandbox mode */"
CHARACTER_SET = "--default-character-set=utf8mb4"
DUMP_OPTIONS = ("--single-transaction", "--quick", "--skip-lock-tables", "--hex-blob", CHARACTER_SET)
FOLDER = Path("/var/lib/hpc/accounting")  # for root only: uploaded backups, and backups before a restore
MADE = cluster_state.FOLDER / "backup-made"  # outlives the controller's machine, as the database does
FRESH, REPLACED = "slurm_acct_db_fresh", "slurm_acct_db_replaced"
LONGEST = 1 << 24  # bytes of the line that describes a backup: it names the stack's accounts and users
START_SECONDS = 3600.0  # slurmdbd converts an older release's tables before it listens
SLURM_CONF = Path("/etc/slurm/slurm.conf")
HIGHEST_JOB_ID = 67_000_000  # default of MaxJobId (slurm.conf(5)), after which numbers start again at FirstJobId
JOB_ID_MARK = "# For one job, after a restore:"


def header() -> dict[str, Any]:
    """Return the description at the beginning of a backup."""
    cluster = cluster_name()
    jobs = f"{cluster}_job_table"
    count = query(f"SELECT COUNT(*) FROM {DATABASE}.`{jobs}`;")[0][0] if jobs in tables(DATABASE) else "0"
    return {
        "cluster": cluster,
        "slurm": run("slurmctld", "-V").split()[-1],
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "jobs": int(count),
        # The accounts, users and QOS of the stack, so that a restore leaves those of others alone.
        "managed": json.loads(accounts.MANAGED.read_text()) if accounts.MANAGED.exists() else None,
    }


def write_backup(out: IO[bytes]) -> None:
    """Write a consistent backup, while slurmdbd and others continue to use the database.

    Raises SetupError with the database's message if it fails. The incomplete file has no last line, and is refused.
    """
    program = shutil.which("mariadb-dump") or shutil.which("mysqldump")
    if not program:
        raise SetupError("there is neither mariadb-dump nor mysqldump on this machine")
    whole = hashlib.sha256()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6, mtime=0) as packed:

        def put(line: bytes) -> None:
            whole.update(line)
            packed.write(line)

        put(FIRST_LINE.encode())
        put(f"-- {json.dumps(header(), sort_keys=True)}\n".encode())
        command = [program, *DUMP_OPTIONS, DATABASE]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
            with process:
                for line in process.stdout or ():
                    if not line.startswith(SANDBOX):
                        put(line)
            errors.seek(0)
            message = errors.read().decode(errors="replace").strip()
        if process.returncode:
            raise SetupError(f"`{' '.join(command)}` failed with exit code {process.returncode}: {message}")
        packed.write(f"{LAST_LINE}{whole.hexdigest()}\n".encode())
    out.flush()


def send() -> None:
    """Write a backup to standard output, and record its time for the metric of its age."""
    write_backup(sys.stdout.buffer)
    write(MADE, f"{time.time():.0f}\n", quiet=True)


def load(file: Path, database: str) -> None:
    """Load a backup into a new database. Raises SetupError with the database's own message.

    MariaDB's client can run lines of a file as shell commands (`\\! COMMAND`), here as root. In binary mode it has no
    commands but `delimiter` and `charset`, in every release (mariadb(1)). The sandbox, which forbids them too, exists
    since 10.5.25, 10.6.18, 10.11.8 and 11.4.2 (MDEV-21778).
    """
    query(f"DROP DATABASE IF EXISTS {database}; CREATE DATABASE {database};")
    sandbox = ["--sandbox"] if "--sandbox" in run("mariadb", "--no-defaults", "--help") else []
    command = ["mariadb", *sandbox, "--binary-mode", "--batch", CHARACTER_SET, database]
    with tempfile.TemporaryFile() as errors, file.open("rb") as packed:
        reader = subprocess.Popen(["gzip", "--decompress", "--stdout"], stdin=packed, stdout=subprocess.PIPE)
        process = subprocess.run(command, stdin=reader.stdout, stdout=subprocess.DEVNULL, stderr=errors, check=False)
        if reader.stdout:
            reader.stdout.close()
        reader.wait()
        errors.seek(0)
        message = errors.read().decode(errors="replace").strip()
    if process.returncode:
        raise SetupError(f"the backup could not be loaded: {message}")


class _OutputThatMayClose(io.TextIOBase):
    """Standard output whose errors are ignored, so that a restore is completed if the connection is lost."""

    def __init__(self, out: io.TextIOBase) -> None:
        self._out = out

    def write(self, text: str) -> int:
        try:
            return self._out.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._out.flush()


def restore(payload: dict[str, Any]) -> None:
    """Replace the accounting database with a backup: {file, sha256, desired}.

    `desired` has the stack's accounts, users and QOS, as for phase `accounting`. Raises SetupError. Until the tables
    are exchanged, the live database is unchanged.
    """
    sys.stdout = _OutputThatMayClose(sys.stdout)  # type: ignore[assignment]
    folder(FOLDER, mode=0o700)
    file = FOLDER / payload["file"]
    cluster = cluster_name()
    backup = check_backup(file, payload["sha256"], cluster)
    running_before = running_jobs()
    load(file, FRESH)
    if f"{cluster}_job_table" not in tables(FRESH):
        raise SetupError(f"the backup has no jobs of cluster {cluster}; nothing was changed")
    log(f"loaded the backup of {backup['date']} beside the database")
    run("systemctl", "stop", "slurmdbd")
    log("stopped slurmdbd; slurmctld keeps what there is to record")
    try:
        log(f"what was there is kept on the controller: {back_up_current()}")
        for line in carry_jobs_over(cluster, live=DATABASE, fresh=FRESH, date=backup["date"]):
            log(line)
        keep_cluster_id(cluster)
        swap_tables()
    finally:
        # The tables are complete, whether they are the old or the new ones.
        run("systemctl", "start", "slurmdbd")
    wait("slurmdbd", lambda: listens(slurmctld.SLURMDBD_PORT), seconds=START_SECONDS, interval=0.3, unit="slurmdbd")
    wait("sacctmgr's answer", lambda: has_cluster(cluster), seconds=180, interval=0.3, unit="slurmdbd")
    log("slurmdbd runs with the restored records")
    # Apply the stack's changes since the backup again.
    write(accounts.MANAGED, json.dumps(backup["managed"] or accounts.NOTHING, indent=1) + "\n", quiet=True)
    accounts.converge(payload["desired"])
    # slurmctld identifies accounts, users and resources by their ids in the database, which it reads at its start.
    restart_slurmctld(int(query(f"SELECT COALESCE(MAX(id_job), 0) FROM {DATABASE}.`{cluster}_job_table`;")[0][0]))
    wait("slurmctld's registration", lambda: registered(cluster), seconds=180, interval=0.5, unit="slurmctld")
    lost = running_before - running_jobs()
    if lost:
        raise SetupError(f"these jobs ran before and do not now; they may have ended meanwhile: {', '.join(lost)}")
    query(f"DROP DATABASE IF EXISTS {REPLACED}; DROP DATABASE IF EXISTS {FRESH};")
    for done in (file, file.with_name(f"{file.name}.json")):
        done.unlink(missing_ok=True)
    jobs_restored = count_jobs(backup["jobs"])
    log(f"restored the records of {jobs_restored} as of {backup['date']}; running ones go on: {len(running_before)}")


def check_backup(file: Path, digest: str, cluster: str) -> dict[str, Any]:
    """Return the description of an uploaded backup. Raises SetupError if it is incomplete or of another cluster."""
    try:
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise SetupError("the backup did not arrive whole; nothing was changed. Run the same command again")
        with gzip.open(file, "rb") as plain:
            first, second = plain.readline(LONGEST).decode(), plain.readline(LONGEST).decode()
        header = json.loads(second.partition("-- ")[2]) if first == FIRST_LINE else {}
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise SetupError(f"the backup can't be read: {error}; nothing was changed") from None
    if header.get("cluster") != cluster:
        raise SetupError(f"the backup is of {header.get('cluster')!r}, this is {cluster!r}; nothing was changed")
    return header


def back_up_current() -> Path:
    """Back up the live database while slurmdbd is stopped, and return the file."""
    target = FOLDER / f"before-restore-{time.strftime('%Y%m%d-%H%M%S')}.sql.gz"
    part = target.with_suffix(".part")
    for leftover in FOLDER.glob("before-restore-*.part"):
        leftover.unlink()  # of an interrupted run
    query(f"CREATE DATABASE IF NOT EXISTS {DATABASE};")
    with part.open("wb") as out:
        part.chmod(0o600)
        write_backup(out)
    part.rename(target)
    return target


def swap_tables() -> None:
    """Replace the live tables by the restored ones, in one statement."""
    old, new = sorted(tables(DATABASE)), sorted(tables(FRESH))
    moves = [f"{DATABASE}.`{name}` TO {REPLACED}.`{name}`" for name in old]
    moves += [f"{FRESH}.`{name}` TO {DATABASE}.`{name}`" for name in new]
    # An interrupted run may have left tables there. Its backup of the live database was complete before.
    query(f"DROP DATABASE IF EXISTS {REPLACED}; CREATE DATABASE {REPLACED};")
    query(f"RENAME TABLE {', '.join(moves)};")
    log(f"put {len(new)} restored tables in the place of {len(old)}")


def keep_cluster_id(cluster: str) -> None:
    """Set the cluster's id in the restored tables to the stored one of slurmctld, which does not start with another.

    Releases before 24.05 have no such id.
    """
    stored = slurmctld.STATE / "clustername"
    number = stored.read_text().strip().replace("\n", "|").partition("|")[2] if stored.exists() else ""
    columns = query(
        "SELECT column_name FROM information_schema.columns WHERE column_name = 'id' "
        f"AND table_schema = '{FRESH}' AND table_name = 'cluster_table';"
    )
    if number.isdigit() and columns:
        query(f"UPDATE {FRESH}.cluster_table SET id = {number} WHERE name = '{cluster}';")


def running_jobs() -> set[str]:
    """Return the numbers of the running jobs."""
    return set(run("squeue", "--noheader", "--states=running", "--format=%A").split())


def has_cluster(cluster: str) -> bool:
    """Return whether slurmdbd answers and has the cluster."""
    with contextlib.suppress(SetupError):
        return [cluster] in sacctmgr_show("cluster", "cluster")
    return False


def registered(cluster: str) -> bool:
    """Return whether slurmctld is registered with slurmdbd, and answers."""
    rows = sacctmgr_show(f"cluster {cluster}", "controlport")
    return rows not in ([], [["0"]]) and succeeds("scontrol", "ping")


def restart_slurmctld(recorded: int) -> None:
    """Restart slurmctld, whose jobs continue, so that the number of the next job is above `recorded`.

    sacct shows only the newer one of two jobs with the same number.
    """
    if not next_job_id(run("scontrol", "show", "config")) <= recorded < HIGHEST_JOB_ID:
        _restart()
        return
    # slurmctld reads FirstJobId when it numbers the first job after its start, and counts on from there. So slurm.conf
    # has the parameter until one job has a number.
    before = SLURM_CONF.read_text()
    write(SLURM_CONF, with_first_job_id(before, recorded + 1), quiet=True)
    try:
        _restart()
        # slurmctld refuses jobs until it has the accounts.
        job = ["sbatch", "--parsable", "--hold", "--job-name=hpc-restore", "--chdir=/", "--output=/dev/null"]
        job += ["--wrap", "true"]
        is_accepted = functools.partial(succeeds, *job, "--test-only")
        wait("slurmctld's next job number", is_accepted, seconds=180, interval=0.5, unit="slurmctld")
        number = run(*job).split(";")[0].strip()
        run("scancel", number)
        log(f"the next job is number {int(number) + 1}: above the restored ones")
    finally:
        write(SLURM_CONF, without_first_job_id(before), quiet=True)
        run("scontrol", "reconfigure")


def next_job_id(config: str) -> int:
    """Return NEXT_JOB_ID in the output of `scontrol show config`; 0 if the release does not print it."""
    match = re.search(r"^NEXT_JOB_ID\s*=\s*(\d+)", config, re.MULTILINE)
    return int(match[1]) if match else 0


def with_first_job_id(conf: str, number: int) -> str:
    """Return slurm.conf with the number of the next job."""
    return f"{without_first_job_id(conf).rstrip()}\n{JOB_ID_MARK}\nFirstJobId={number}\n"


def without_first_job_id(conf: str) -> str:
    """Return slurm.conf without that number, which an interrupted run may have left there."""
    return conf.partition(f"{JOB_ID_MARK}\n")[0]


def _restart() -> None:
    run("systemctl", "restart", "slurmctld")
    scheduler.wait_until_answers()
    log("restarted slurmctld; jobs go on")


# Carrying job records over a restore. slurmctld finds the record of a job by its row number (job_db_inx). In the
# restored tables that row may be missing, if the job began after the backup, or belong to another job, if the cluster
# was recreated since: slurmctld would then write the end into another job's record. The same holds for ended jobs as
# long as slurmctld remembers them (MinJobAge), since it reports their end again at its start. A job that ran when the
# backup was made, and that slurmctld does not have, has ended since.

JOB_TABLES = ("job_table", "step_table", "suspend_table")
CANCELLED = 4  # JOB_CANCELLED in slurm.h
Jobs = list[tuple[int, int]]  # number and time of submission (seconds since 1970), which identify a job
# Unused row numbers that are skipped if the table with the highest one can't be read any more.
MARGIN = 1_000_000
# SQL: both rows are of the same job.
SAME = "a.id_job = b.id_job AND a.time_submit = b.time_submit"


def carry_jobs_over(cluster: str, *, live: str, fresh: str, date: str) -> Iterator[str]:
    """Carry records of current jobs from database `live` to `fresh`, made at `date`; yield a line for each change."""
    live_tables, fresh_tables, known = tables(live), tables(fresh), jobs_of_slurmctld()
    job = f"{cluster}_job_table"
    # The live tables may be damaged: that is why backups are restored.
    why = "" if job in live_tables else "their table is gone"
    if not why:
        try:
            carried = _carry_rows(cluster, live, fresh, live_tables & fresh_tables, known)
        except SetupError as error:
            why = str(error).splitlines()[-1]
        else:
            if carried:
                jobs = count_jobs(carried)
                yield f"kept what is recorded of {jobs} that slurmctld has, or that ended since the backup"
    free = "SELECT COALESCE(MAX(auto_increment), 0) FROM information_schema.tables"
    row = "0" if why else query(f"{free} WHERE table_schema = '{live}' AND table_name = '{job}';")[0][0]
    query(set_next_row(f"{fresh}.`{job}`", int(row)))
    if why:
        yield f"jobs that began after the backup, and go on, have no record now: {why}"
    moment = int(datetime.strptime(date, "%Y-%m-%dT%H:%M:%S%z").timestamp())
    ended = int(query(close_unknown(cluster, fresh, moment, known))[-1][0])
    if ended:
        yield f"{count_jobs(ended)} that ran or waited when the backup was made: gone, and recorded as cancelled"


def _carry_rows(cluster: str, live: str, fresh: str, common: set[str], known: Jobs) -> int:
    """Copy the rows to carry of the tables that both databases have; return how many jobs were copied."""
    job = f"{cluster}_job_table"
    picked = query(pick_rows(cluster, live, fresh, known))
    if not picked:
        return 0
    rows = ",".join(number for (number,) in picked)
    statements = ["START TRANSACTION;", *free_row_numbers(cluster, live, fresh, rows)]
    for part in JOB_TABLES:
        name = f"{cluster}_{part}"
        if name in common:
            columns = ",".join(f"`{column}`" for column in _columns(live, name) & _columns(fresh, name))
            statements.append(
                f"REPLACE INTO {fresh}.`{name}` ({columns}) "
                f"SELECT {columns} FROM {live}.`{name}` WHERE job_db_inx IN ({rows});"
            )
    if {f"{cluster}_assoc_table", "qos_table"} <= common:
        statements += translate_ids(cluster, live, fresh, rows)
    query("\n".join([*statements, "COMMIT;"]))
    if "tres_table" in common:
        _translate_carried_resources(live, fresh, job, rows)
    return len(picked)


def pick_rows(cluster: str, live: str, fresh: str, known: Jobs) -> str:
    """Return SQL for the rows to carry: of jobs that slurmctld has, or that had not ended when the backup was made."""
    job = f"{cluster}_job_table"
    of_slurmctld = f" OR (a.id_job, a.time_submit) IN ({_pairs(known)})" if known else ""
    return (
        f"SELECT a.job_db_inx FROM {live}.`{job}` a LEFT JOIN {fresh}.`{job}` b "
        f"ON a.job_db_inx = b.job_db_inx AND {SAME} "
        f"WHERE a.deleted = 0 AND (a.time_end = 0 OR b.time_end = 0{of_slurmctld});"
    )


def set_next_row(job: str, row: int) -> str:
    """Return SQL that makes `row` the next row number, so that none is used again that slurmctld may remember.

    Without `row` the highest number is unknown, and MARGIN numbers are skipped. MariaDB never sets it below the highest
    existing one.
    """
    if row:
        return f"ALTER TABLE {job} AUTO_INCREMENT = {row};"
    return (
        f"SELECT COALESCE(MAX(job_db_inx), 0) + {MARGIN} INTO @row FROM {job}; "
        f"EXECUTE IMMEDIATE CONCAT('ALTER TABLE {job} AUTO_INCREMENT = ', @row);"
    )


def free_row_numbers(cluster: str, live: str, fresh: str, rows: str) -> list[str]:
    """Return SQL that moves restored records of other jobs from these row numbers to new ones."""
    job = f"{cluster}_job_table"
    most = "(SELECT COALESCE(MAX(job_db_inx), 0) FROM {}.`{}`)"
    statements = [
        f"SET @free = GREATEST({most.format(live, job)}, {most.format(fresh, job)});",
        (
            f"CREATE TEMPORARY TABLE {fresh}.moves AS SELECT b.job_db_inx AS old, (@free := @free + 1) AS new "
            f"FROM {fresh}.`{job}` b JOIN {live}.`{job}` a ON a.job_db_inx = b.job_db_inx "
            f"WHERE b.job_db_inx IN ({rows}) AND NOT ({SAME});"
        ),
    ]
    for part in JOB_TABLES:
        name = f"{fresh}.`{cluster}_{part}`"
        statements.append(f"UPDATE {name} t JOIN {fresh}.moves m ON t.job_db_inx = m.old SET t.job_db_inx = m.new;")
    return statements


def translate_ids(cluster: str, live: str, fresh: str, rows: str) -> list[str]:
    """Return SQL that gives carried records the ids of association and QOS in the restored database."""
    job, assoc = f"{cluster}_job_table", f"{cluster}_assoc_table"
    carried = f"WHERE j.job_db_inx IN ({rows});"
    return [
        (
            f"UPDATE {fresh}.`{job}` j JOIN {live}.`{assoc}` a ON a.id_assoc = j.id_assoc JOIN {fresh}.`{assoc}` b "
            "ON a.user = b.user AND a.acct = b.acct AND a.`partition` = b.`partition` "
            f"SET j.id_assoc = b.id_assoc {carried}"
        ),
        (
            f"UPDATE {fresh}.`{job}` j JOIN {live}.qos_table a ON a.id = j.id_qos JOIN {fresh}.qos_table b "
            f"ON a.name = b.name SET j.id_qos = b.id {carried}"
        ),
    ]


def close_unknown(cluster: str, fresh: str, moment: int, known: Jobs) -> str:
    """Return SQL that ends the restored records of jobs that slurmctld does not have, and selects their number."""
    job, step = f"{fresh}.`{cluster}_job_table`", f"{fresh}.`{cluster}_step_table`"
    others = f" AND (id_job, time_submit) NOT IN ({_pairs(known)})" if known else ""
    return (
        f"UPDATE {job} SET time_end = GREATEST(time_start, {moment}), state = {CANCELLED} WHERE time_end = 0{others}; "
        f"SET @ended = ROW_COUNT(); "
        f"UPDATE {step} s JOIN {job} j ON s.job_db_inx = j.job_db_inx SET s.time_end = j.time_end, "
        f"s.state = {CANCELLED} WHERE s.time_end = 0 AND j.time_end != 0; SELECT @ended;"
    )


def jobs_of_slurmctld() -> Jobs:
    """Return every job that slurmctld has: pending, running, and recently ended ones."""
    jobs: Jobs = []
    for line in run("squeue", "--noheader", "--all", "--states=all", "--array", "--format=%A %V").splitlines():
        number, _, submitted = line.strip().partition(" ")
        if number.isdigit() and submitted[:1].isdigit():
            jobs.append((int(number), int(time.mktime(time.strptime(submitted, "%Y-%m-%dT%H:%M:%S")))))
    return jobs


def translate_resources(text: str, numbers: dict[str, str]) -> str:
    """Return a list of resources by id, `1=2,1001=1`, with other ids; resources without one are left out."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return ",".join(f"{numbers[number]}={count}" for number, _, count in pairs if number in numbers)


def _translate_carried_resources(live: str, fresh: str, job: str, rows: str) -> None:
    """Translate the resources of carried records if GPUs have other ids in the restored database."""
    old = {(kind, name): number for number, kind, name in query(f"SELECT id, type, name FROM {live}.tres_table;")}
    new = {(kind, name): number for number, kind, name in query(f"SELECT id, type, name FROM {fresh}.tres_table;")}
    numbers = {number: new[key] for key, number in old.items() if key in new}
    if all(before == after for before, after in numbers.items()) and len(numbers) == len(old):
        return
    records = query(f"SELECT job_db_inx, tres_alloc, tres_req FROM {fresh}.`{job}` WHERE job_db_inx IN ({rows});")
    query(
        "\n".join(
            f"UPDATE {fresh}.`{job}` SET tres_alloc = '{translate_resources(alloc, numbers)}', "
            f"tres_req = '{translate_resources(req, numbers)}' WHERE job_db_inx = {row};"
            for row, alloc, req in records
        )
    )


def _pairs(known: Jobs) -> str:
    return ", ".join(f"({number}, {submitted})" for number, submitted in known)


def _columns(database: str, table: str) -> set[str]:
    where = f"WHERE table_schema = '{database}' AND table_name = '{table}'"
    return {name for (name,) in query(f"SELECT column_name FROM information_schema.columns {where};")}
