"""Backups of the accounting database: a gzipped SQL dump that says whose it is, and ends with a sum over all of it.

    -- hpc accounting backup 1
    -- {"cluster": ..., "slurm": ..., "date": ..., "jobs": ..., "managed": ...}
    ... what mariadb-dump writes ...
    -- sha256 SUM                     over every byte before this line

So a file that was cut off, or is something else, is known before it is used; and `zcat FILE | mariadb DATABASE` is all
that it takes without us.
"""

# Not by Slurm's own tools: `sacctmgr dump` has no job records, and `sacctmgr archive dump` purges those that it writes.
# Names of tables are constants of ours with the stack's checked cluster name.
# ruff: noqa: S608

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from accounting import accounts
from accounting.database import DATABASE, cluster_name, query, tables
from system.host import SetupError, run

FIRST = "-- hpc accounting backup 1\n"
LAST = "-- sha256 "
# MariaDB's clients write it as their first line since 2024; older ones stop at it.
SANDBOX = b"/*M!999999\\- enable the sandbox mode */"
OPTIONS = ("--single-transaction", "--quick", "--skip-lock-tables", "--hex-blob", "--default-character-set=utf8mb4")


def header() -> dict[str, Any]:
    """What a backup says of itself."""
    cluster = cluster_name()
    jobs = f"{cluster}_job_table"
    count = query(f"SELECT COUNT(*) FROM {DATABASE}.`{jobs}`;")[0][0] if jobs in tables(DATABASE) else "0"
    return {
        "cluster": cluster,
        "slurm": run("slurmctld", "-V").split()[-1],
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "jobs": int(count),
        # What of accounts, users and QOS was the stack's, so that a restore can tell it from what others made.
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

        put(FIRST.encode())
        put(f"-- {json.dumps(header(), sort_keys=True)}\n".encode())
        command = [program, *OPTIONS, DATABASE]
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
        packed.write(f"{LAST}{whole.hexdigest()}\n".encode())
    out.flush()


def confined() -> list[str]:
    """Options by which MariaDB's client reads SQL and nothing else.

    In binary mode it knows no commands of its own but `delimiter` and `charset`, in every release (mariadb(1)). The
    sandbox, which forbids them, came with MDEV-21778 in 10.5.25, 10.6.18, 10.11.8 and 11.4.2.
    """
    sandbox = ["--sandbox"] if "--sandbox" in run("mariadb", "--no-defaults", "--help") else []
    return [*sandbox, "--binary-mode"]


def load(file: Path, database: str) -> None:
    """Load a backup into a new database. Raises SetupError with the database's own message.

    MariaDB's client would run lines of it as root's shell commands (`\\! COMMAND`): told not to, it refuses the backup.
    """
    query(f"DROP DATABASE IF EXISTS {database}; CREATE DATABASE {database};")
    command = ["mariadb", *confined(), "--batch", "--default-character-set=utf8mb4", database]
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
