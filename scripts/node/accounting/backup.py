"""Backups of the accounting database: a gzipped SQL dump that says whose it is, and ends with a sum over all of it.

    -- hpc accounting backup 1
    -- {"cluster": ..., "slurm": ..., "date": ..., "jobs": ..., "managed": ...}
    ... what mariadb-dump writes ...
    -- sha256 SUM                     over every byte before this line

So a file that was cut off, or is something else, is found before it is used; and `zcat FILE | mariadb DATABASE` loads
it without this program.

A restore replaces the database while slurmctld and its jobs go on. The backup is loaded beside the database first. Then
slurmdbd stops (slurmctld queues its records), the live database is dumped, the tables are exchanged in one statement,
and slurmdbd starts. The next run completes an interrupted one: nothing is removed before its copy is complete.
"""

import contextlib
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
from pathlib import Path
from typing import IO, Any

from accounting import accounts, merge_jobs
from accounting.database import DATABASE, cluster_name, query, sacctmgr_show, tables
from slurm import scheduler, slurmctld
from system import cluster_state
from system.host import SetupError, folder, listens, log, run, succeeds, wait, write

# Not by Slurm's own tools: `sacctmgr dump` has no job records, and `sacctmgr archive dump` purges those that it writes.
# Names of tables are constants of ours with the stack's checked cluster name.
# ruff: noqa: S608

FIRST_LINE = "-- hpc accounting backup 1\n"
LAST_LINE = "-- sha256 "
# MariaDB's clients write it as their first line since 2024; older ones stop at it.
SANDBOX = b"/*M!999999\\- enable the sandbox mode */"
CHARACTER_SET = "--default-character-set=utf8mb4"
DUMP_OPTIONS = ("--single-transaction", "--quick", "--skip-lock-tables", "--hex-blob", CHARACTER_SET)
FOLDER = Path("/var/lib/hpc/accounting")  # root's alone: uploaded backups, and what was there before a restore
MADE = cluster_state.FOLDER / "backup-made"  # outlives the controller's machine, as the database does
FRESH, REPLACED = "slurm_acct_db_fresh", "slurm_acct_db_replaced"
LONGEST = 1 << 24  # bytes of a line that says what a backup is: it names what of accounts and users was the stack's
START_SECONDS = 3600.0  # slurmdbd converts an older release's tables before it listens
SLURM_CONF = Path("/etc/slurm/slurm.conf")
HIGHEST_JOB_ID = 67_000_000  # MaxJobId's default (slurm.conf(5)): after it, numbers start at the first again
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
        # What of accounts, users and QOS was the stack's, so that a restore leaves alone what others made.
        "managed": json.loads(accounts.MANAGED.read_text()) if accounts.MANAGED.exists() else None,
    }


def write_backup(out: IO[bytes]) -> None:
    """Write a consistent backup; slurmdbd and everybody else go on meanwhile.

    Raises SetupError with the database's own words when it fails; what was written by then has no end, and is refused.
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
            said = errors.read().decode(errors="replace").strip()
        if process.returncode:
            raise SetupError(f"`{' '.join(command)}` failed with exit code {process.returncode}: {said}")
        packed.write(f"{LAST_LINE}{whole.hexdigest()}\n".encode())
    out.flush()


def send() -> None:
    """Write a backup to standard output, and note when it was made: metrics have its age."""
    write_backup(sys.stdout.buffer)
    write(MADE, f"{time.time():.0f}\n", quiet=True)


def load(file: Path, database: str) -> None:
    """Load a backup into a new database. Raises SetupError with the database's own message.

    MariaDB's client would run lines of it as root's shell commands (`\\! COMMAND`). In binary mode it has no commands
    of its own but `delimiter` and `charset`, in every release (mariadb(1)). The sandbox, which forbids them, came with
    MDEV-21778 in 10.5.25, 10.6.18, 10.11.8 and 11.4.2.
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
        said = errors.read().decode(errors="replace").strip()
    if process.returncode:
        raise SetupError(f"the backup could not be loaded: {said}")


class _BreakableOutput(io.TextIOBase):
    """Standard output that may be closed: the restore comes to its end when nobody reads it any more."""

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
    """Make the accounting database what a backup has: {file, sha256, desired}.

    `desired` is what the stack has of accounts, users and QOS, as `accounting` takes it. Raises SetupError; before
    the tables have changed places, everything is as it was then.
    """
    sys.stdout = _BreakableOutput(sys.stdout)  # type: ignore[assignment]
    folder(FOLDER, mode=0o700)
    file = FOLDER / payload["file"]
    cluster = cluster_name()
    made = check_backup(file, payload["sha256"], cluster)
    working = running_jobs()
    load(file, FRESH)
    if f"{cluster}_job_table" not in tables(FRESH):
        raise SetupError(f"the backup has no jobs of cluster {cluster}; nothing was changed")
    log(f"loaded the backup of {made['date']} beside the database")
    run("systemctl", "stop", "slurmdbd")
    log("stopped slurmdbd; slurmctld keeps what there is to record")
    try:
        log(f"what was there is kept on the controller: {back_up_current()}")
        for line in merge_jobs.over(cluster, live=DATABASE, fresh=FRESH, date=made["date"]):
            log(line)
        keep_cluster_id(cluster)
        swap_tables()
    finally:
        # With the old tables or the new ones: whole they are either way.
        run("systemctl", "start", "slurmdbd")
    wait("slurmdbd", lambda: listens(slurmctld.SLURMDBD_PORT), seconds=START_SECONDS, interval=0.3, unit="slurmdbd")
    wait("sacctmgr's answer", lambda: has_cluster(cluster), seconds=180, interval=0.3, unit="slurmdbd")
    log("slurmdbd runs with the restored records")
    # What the stack gave and took since the backup was made, it gives and takes again.
    write(accounts.MANAGED, json.dumps(made["managed"] or accounts.NOTHING, indent=1) + "\n", quiet=True)
    accounts.converge(payload["desired"])
    # slurmctld identifies accounts, users and resources by their numbers in the database, and reads these at its start.
    restart_slurmctld(int(query(f"SELECT COALESCE(MAX(id_job), 0) FROM {DATABASE}.`{cluster}_job_table`;")[0][0]))
    wait("slurmctld's registration", lambda: registered(cluster), seconds=180, interval=0.5, unit="slurmctld")
    lost = working - running_jobs()
    if lost:
        raise SetupError(f"these jobs ran before and do not now; they may have ended meanwhile: {', '.join(lost)}")
    query(f"DROP DATABASE IF EXISTS {REPLACED}; DROP DATABASE IF EXISTS {FRESH};")
    for done in (file, file.with_name(f"{file.name}.json")):
        done.unlink(missing_ok=True)
    jobs_restored = merge_jobs.count(made["jobs"])
    log(f"restored the records of {jobs_restored} as of {made['date']}; running ones go on: {len(working)}")


def check_backup(file: Path, digest: str, cluster: str) -> dict[str, Any]:
    """Return the uploaded backup's description. Raises SetupError when it is incomplete, or another cluster's."""
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
    """Back up the live database, and return the file; slurmdbd is down, so that nothing is missed."""
    kept = FOLDER / f"before-restore-{time.strftime('%Y%m%d-%H%M%S')}.sql.gz"
    part = kept.with_suffix(".part")
    for left in FOLDER.glob("before-restore-*.part"):
        left.unlink()  # of a run that was cut off
    query(f"CREATE DATABASE IF NOT EXISTS {DATABASE};")
    with part.open("wb") as out:
        part.chmod(0o600)
        write_backup(out)
    part.rename(kept)
    return kept


def swap_tables() -> None:
    """Put the fresh tables in the place of those that are there, in one statement."""
    old, new = sorted(tables(DATABASE)), sorted(tables(FRESH))
    moves = [f"{DATABASE}.`{name}` TO {REPLACED}.`{name}`" for name in old]
    moves += [f"{FRESH}.`{name}` TO {DATABASE}.`{name}`" for name in new]
    # A run that was cut off may have left some there; its copy of all of them was complete before.
    query(f"DROP DATABASE IF EXISTS {REPLACED}; CREATE DATABASE {REPLACED};")
    query(f"RENAME TABLE {', '.join(moves)};")
    log(f"put {len(new)} restored tables in the place of {len(old)}")


def keep_cluster_id(cluster: str) -> None:
    """Give the cluster the number that slurmctld has kept: it would refuse to start with another one.

    Releases before 24.05 have no such number.
    """
    kept = slurmctld.STATE / "clustername"
    number = kept.read_text().strip().replace("\n", "|").partition("|")[2] if kept.exists() else ""
    columns = query(
        "SELECT column_name FROM information_schema.columns WHERE column_name = 'id' "
        f"AND table_schema = '{FRESH}' AND table_name = 'cluster_table';"
    )
    if number.isdigit() and columns:
        query(f"UPDATE {FRESH}.cluster_table SET id = {number} WHERE name = '{cluster}';")


def running_jobs() -> set[str]:
    """Numbers of the jobs that run now."""
    return set(run("squeue", "--noheader", "--states=running", "--format=%A").split())


def has_cluster(cluster: str) -> bool:
    """Return whether slurmdbd answers, and has the cluster."""
    with contextlib.suppress(SetupError):
        return [cluster] in sacctmgr_show("cluster", "cluster")
    return False


def registered(cluster: str) -> bool:
    """Return whether slurmctld is in touch with slurmdbd."""
    found = sacctmgr_show(f"cluster {cluster}", "controlport")
    return found not in ([], [["0"]]) and succeeds("scontrol", "ping")


def restart_slurmctld(recorded: int) -> None:
    """Restart slurmctld, whose jobs go on, and have it number the next job above `recorded`.

    Of two jobs with one number sacct shows only the newer.
    """
    coming = next_job_id(run("scontrol", "show", "config"))
    if not coming <= recorded < HIGHEST_JOB_ID:
        _restart()
        return
    # slurmctld reads FirstJobId when it numbers the first job after its start, and counts on from there by itself: the
    # parameter stands in slurm.conf until one job has its number.
    before = SLURM_CONF.read_text()
    write(SLURM_CONF, with_first_job_id(before, recorded + 1), quiet=True)
    try:
        _restart()
        # slurmctld takes no jobs until it has the accounts.
        drawn: list[str] = []
        wait("slurmctld's next job number", lambda: _draw_job_id(drawn), seconds=180, interval=0.5, unit="slurmctld")
        run("scancel", drawn[0])
        log(f"the next job is number {int(drawn[0]) + 1}: above the restored ones")
    finally:
        write(SLURM_CONF, without_first_job_id(before), quiet=True)
        run("scontrol", "reconfigure")


def next_job_id(config: str) -> int:
    """NEXT_JOB_ID in what `scontrol show config` prints; 0 where a release does not say."""
    found = re.search(r"^NEXT_JOB_ID\s*=\s*(\d+)", config, re.MULTILINE)
    return int(found[1]) if found else 0


def with_first_job_id(conf: str, number: int) -> str:
    """slurm.conf with the number of the next job."""
    return f"{without_first_job_id(conf).rstrip()}\n{JOB_ID_MARK}\nFirstJobId={number}\n"


def without_first_job_id(conf: str) -> str:
    """slurm.conf without the number, which an interrupted run may have left there."""
    return conf.partition(f"{JOB_ID_MARK}\n")[0]


def _restart() -> None:
    run("systemctl", "restart", "slurmctld")
    scheduler.wait_until_answers()
    log("restarted slurmctld; jobs go on")


def _draw_job_id(drawn: list[str]) -> bool:
    command = ["sbatch", "--parsable", "--hold", "--job-name=hpc-restore", "--chdir=/", "--output=/dev/null"]
    if not drawn and succeeds(*command, "--test-only", "--wrap", "true"):
        drawn.append(run(*command, "--wrap", "true").split(";")[0].strip())
    return bool(drawn)
