"""Replaces the accounting database with a backup, while slurmctld and its jobs go on.

The backup is loaded beside the database first. Then slurmdbd stops (slurmctld queues its records), the live database is
dumped, the tables are exchanged in one statement, and slurmdbd starts. The next run completes an interrupted one:
nothing is removed before its copy is complete.
"""

# Names of tables are constants of ours with the stack's checked cluster name.
# ruff: noqa: S608

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from accounting import accounts, backup, job_ids, merge_jobs
from accounting.database import DATABASE, cluster_name, query, tables
from slurm import slurmctld
from system.host import SetupError, folder, listens, log, run, succeeds, wait, write

FOLDER = Path("/var/lib/hpc/accounting")  # root's alone: uploaded backups, and what was there before a restore
FRESH, REPLACED = "slurm_acct_db_fresh", "slurm_acct_db_replaced"
LONGEST = 1 << 24  # bytes of a line that says what a backup is: it names what of accounts and users was the stack's
START_SECONDS = 3600.0  # slurmdbd converts an older release's tables before it listens


class _Unheard(io.TextIOBase):
    """Standard output that may break: who watched has gone, and what has begun must end."""

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

    `desired` is what the stack wants of accounts, users and QOS, as `accounting` takes it. Raises SetupError; before
    the tables have changed places, everything is as it was then.
    """
    sys.stdout = _Unheard(sys.stdout)  # type: ignore[assignment]
    folder(FOLDER, mode=0o700)
    file = FOLDER / payload["file"]
    cluster = cluster_name()
    told = check(file, payload["sha256"], cluster)
    working = jobs()
    backup.load(file, FRESH)
    if f"{cluster}_job_table" not in tables(FRESH):
        raise SetupError(f"the backup has no jobs of cluster {cluster}; nothing was changed")
    log(f"loaded the backup of {told['date']} beside the database")
    run("systemctl", "stop", "slurmdbd")
    log("stopped slurmdbd; slurmctld keeps what there is to record")
    try:
        log(f"what was there is kept on the controller: {keep()}")
        for line in merge_jobs.over(cluster, live=DATABASE, fresh=FRESH, date=told["date"]):
            log(line)
        same_id(cluster)
        swap()
    finally:
        # With the old tables or the new ones: whole they are either way.
        run("systemctl", "start", "slurmdbd")
    wait("slurmdbd", lambda: listens(slurmctld.SLURMDBD_PORT), seconds=START_SECONDS, interval=0.3, unit="slurmdbd")
    wait("sacctmgr's answer", lambda: cluster in known(), seconds=60, interval=0.3, unit="slurmdbd")
    log("slurmdbd runs with the restored records")
    # What the stack gave and took since the backup was made, it gives and takes again.
    write(accounts.MANAGED, json.dumps(told["managed"] or accounts.NOTHING, indent=1) + "\n", quiet=True)
    accounts.converge(payload["desired"])
    # slurmctld knows accounts, users and resources by their numbers in the database, and reads these at its start.
    job_ids.restart(highest(cluster))
    wait("slurmctld's registration", lambda: registered(cluster), seconds=120, interval=0.5, unit="slurmctld")
    lost = working - jobs()
    if lost:
        raise SetupError(f"these jobs ran before and do not now; they may have ended meanwhile: {', '.join(lost)}")
    query(f"DROP DATABASE IF EXISTS {REPLACED}; DROP DATABASE IF EXISTS {FRESH};")
    for done in (file, file.with_name(f"{file.name}.json")):
        done.unlink(missing_ok=True)
    jobs_restored = merge_jobs.count(told["jobs"])
    log(f"restored the records of {jobs_restored} as of {told['date']}; running ones go on: {len(working)}")


def check(file: Path, digest: str, cluster: str) -> dict[str, Any]:
    """What the uploaded backup says of itself. Raises SetupError when it did not arrive whole, or is of others."""
    try:
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise SetupError("the backup did not arrive whole; nothing was changed. Run the same command again")
        with gzip.open(file, "rb") as plain:
            first, second = plain.readline(LONGEST).decode(), plain.readline(LONGEST).decode()
        told = json.loads(second.partition("-- ")[2]) if first == backup.FIRST else {}
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise SetupError(f"the backup can't be read: {error}; nothing was changed") from None
    if told.get("cluster") != cluster:
        raise SetupError(f"the backup is of {told.get('cluster')!r}, this is {cluster!r}; nothing was changed")
    return told


def keep() -> Path:
    """Back up what is there now, and return where it is; slurmdbd is down, so that nothing is missed."""
    kept = FOLDER / f"before-restore-{time.strftime('%Y%m%d-%H%M%S')}.sql.gz"
    part = kept.with_suffix(".part")
    for left in FOLDER.glob("before-restore-*.part"):
        left.unlink()  # of a run that was cut off
    query(f"CREATE DATABASE IF NOT EXISTS {DATABASE};")
    with part.open("wb") as out:
        part.chmod(0o600)
        backup.write_backup(out)
    part.rename(kept)
    return kept


def swap() -> None:
    """Put the fresh tables in the place of those that are there, in one statement."""
    old, new = sorted(tables(DATABASE)), sorted(tables(FRESH))
    moves = [f"{DATABASE}.`{name}` TO {REPLACED}.`{name}`" for name in old]
    moves += [f"{FRESH}.`{name}` TO {DATABASE}.`{name}`" for name in new]
    # A run that was cut off may have left some there; its copy of all of them was complete before.
    query(f"DROP DATABASE IF EXISTS {REPLACED}; CREATE DATABASE {REPLACED};")
    query(f"RENAME TABLE {', '.join(moves)};")
    log(f"put {len(new)} restored tables in the place of {len(old)}")


def same_id(cluster: str) -> None:
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


def jobs() -> set[str]:
    """Numbers of the jobs that run now."""
    return set(run("squeue", "--noheader", "--states=running", "--format=%A").split())


def known() -> list[str]:
    """Clusters that slurmdbd answers for; none while it does not answer."""
    command = ("sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster")
    return run(*command).split() if succeeds(*command) else []


def registered(cluster: str) -> bool:
    """Whether slurmctld is in touch with slurmdbd."""
    found = run("sacctmgr", "--noheader", "--parsable2", "show", "cluster", cluster, "format=controlport").strip()
    return found not in ("", "0") and succeeds("scontrol", "ping")


def highest(cluster: str) -> int:
    """The highest number that a recorded job has."""
    found = query(f"SELECT COALESCE(MAX(id_job), 0) FROM {DATABASE}.`{cluster}_job_table`;")
    return int(found[0][0])
