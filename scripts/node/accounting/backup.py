"""Backups of the accounting database, and restores: a gzipped SQL dump with a description and a checksum.

    -- hpc accounting backup 1
    -- {"cluster": ..., "slurm": ..., "date": ..., "jobs": ..., "managed": ...}
    ... the output of mariadb-dump ...
    -- sha256 SUM                     over every byte before this line

So a file that is incomplete, or not a backup, is refused before it is used. `zcat FILE | mariadb DATABASE` loads it
without this program.

A restore replaces the database while jobs continue. It loads the backup into a second database. Then it stops slurmdbd
(slurmctld queues its records), dumps the live database, exchanges the tables in one statement, and starts slurmdbd and
slurmctld again. The next run completes an interrupted one: nothing is removed before its copy is complete. Records of
jobs that began after the backup are gone; from 25.11.7 on slurmdbd writes those of jobs that still run when they end
(_job_db_index_exists in as_mysql_job_complete, SchedMD/slurm slurm-25-11-7-1).
"""

import contextlib
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
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
MARGIN = 1_000_000  # row numbers that are skipped: more than jobs begin between a backup and its restore
START_SECONDS = 3600.0  # slurmdbd converts an older release's tables before it listens


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
    """Write a backup to the process's standard output, where nothing else may be printed, and record its time for the
    metric of its age."""
    with open(1, "wb", closefd=False) as out:
        write_backup(out)
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
    load(file, FRESH)
    if f"{cluster}_job_table" not in tables(FRESH):
        raise SetupError(f"the backup has no jobs of cluster {cluster}; nothing was changed")
    log(f"loaded the backup of {backup['date']} beside the database")
    run("systemctl", "stop", "slurmdbd")
    log("stopped slurmdbd; slurmctld keeps what there is to record")
    try:
        log(f"what was there is kept on the controller: {back_up_current()}")
        keep_cluster_id(cluster)
        keep_row_numbers(cluster)
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
    run("systemctl", "restart", "slurmctld")
    scheduler.wait_until_answers()
    wait("slurmctld's registration", lambda: registered(cluster), seconds=180, interval=0.5, unit="slurmctld")
    query(f"DROP DATABASE IF EXISTS {REPLACED}; DROP DATABASE IF EXISTS {FRESH};")
    for done in (file, file.with_name(f"{file.name}.json")):
        done.unlink(missing_ok=True)
    log(f"restored the records of {count_jobs(backup['jobs'])} as of {backup['date']}; jobs go on")


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


def keep_row_numbers(cluster: str) -> None:
    """Leave the numbers of live rows to their jobs: slurmctld has a job's end written by its number alone.

    A restored record of another job moves (the cluster was recreated since the backup), and the next number is above
    those of jobs that began after it.
    """
    job, most = f"{cluster}_job_table", "(SELECT COALESCE(MAX(job_db_inx), 0) FROM {}.`{}`)"
    moved = [f"{FRESH}.`{cluster}_{part}`" for part in ("job_table", "step_table", "suspend_table")]
    moves = (
        f"SET @free = GREATEST({most.format(DATABASE, job)}, {most.format(FRESH, job)});"
        f"CREATE TEMPORARY TABLE {FRESH}.moves AS SELECT b.job_db_inx AS old, (@free := @free + 1) AS new "
        f"FROM {FRESH}.`{job}` b JOIN {DATABASE}.`{job}` a ON a.job_db_inx = b.job_db_inx "
        "WHERE NOT (a.id_job = b.id_job AND a.time_submit = b.time_submit);"
    )
    moves += "".join(f"UPDATE {t} t JOIN {FRESH}.moves m ON job_db_inx = m.old SET job_db_inx = m.new;" for t in moved)
    try:
        query(f"START TRANSACTION; {moves} COMMIT;")
    except SetupError as error:  # the live table may be damaged: that is why backups are restored
        log(f"row numbers of jobs could not be compared: {str(error).splitlines()[-1]}")
    query(
        f"SELECT COALESCE(MAX(job_db_inx), 0) + {MARGIN} INTO @next FROM {FRESH}.`{job}`;"
        f"EXECUTE IMMEDIATE CONCAT('ALTER TABLE {FRESH}.`{job}` AUTO_INCREMENT = ', @next);"
    )


def has_cluster(cluster: str) -> bool:
    """Return whether slurmdbd answers and has the cluster."""
    with contextlib.suppress(SetupError):
        return [cluster] in sacctmgr_show("cluster", "cluster")
    return False


def registered(cluster: str) -> bool:
    """Return whether slurmctld is registered with slurmdbd, and answers."""
    rows = sacctmgr_show(f"cluster {cluster}", "controlport")
    return rows not in ([], [["0"]]) and succeeds("scontrol", "ping")
