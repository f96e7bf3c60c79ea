"""Backups of the accounting database (scripts/node/accounting/backup.py): whether one is complete, and whose it is."""

import gzip
import hashlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from cluster.catalog.slurm_releases import takes_over
from cluster.regular_file import refuse_special

FIRST = b"-- hpc accounting backup 1\n"
LAST = b"-- sha256 "


class BackupError(ValueError):
    """A file that is no whole backup; the message says in what way."""


@dataclass(frozen=True, kw_only=True)
class Backup:
    """The properties that a whole backup contains."""

    cluster: str
    slurm: str
    """Release of Slurm that it was made with."""
    date: str
    """The time in ISO 8601 with its zone."""
    jobs: int
    """Job records in it."""
    sha256: str
    """SHA-256 of the file as it is, compressed."""


def read(file: Path) -> Backup:
    """Read the file's own description, once all of it was read and found whole.

    Raises:
        BackupError: it was cut off, was changed, or is something else.
        OSError: it can't be read.
    """
    whole = hashlib.sha256()
    refuse_special(file)
    with file.open("rb") as packed:
        while chunk := packed.read(1 << 20):
            whole.update(chunk)
        packed.seek(0)
        try:
            note = _header(gzip.GzipFile(fileobj=packed))
        except (EOFError, zlib.error):
            raise BackupError("it was cut off, or damaged: its end is missing") from None
        except gzip.BadGzipFile:
            raise BackupError("it is no backup of ours: those are gzip files that `accounting backup` wrote") from None
    try:
        texts = {key: str(note[key]) for key in ("cluster", "slurm", "date")}
        return Backup(**texts, jobs=int(note["jobs"]), sha256=whole.hexdigest())
    except (KeyError, TypeError, ValueError):
        raise BackupError("its second line does not say what it is: it was written by another version") from None


def _header(plain: "gzip.GzipFile") -> dict[str, Any]:
    lines = cast("IO[bytes]", plain)
    first = lines.readline()
    if first != FIRST:
        raise BackupError("it is no backup of ours: its first line is another one")
    second = lines.readline()
    summed = hashlib.sha256(first + second)
    last = b""
    for line in lines:
        summed.update(last)
        last = line
    if last != LAST + summed.hexdigest().encode() + b"\n":
        if last.startswith(LAST):
            raise BackupError("it was changed since it was made: the sum at its end is another")
        raise BackupError("the dump in it did not come to its end: the sum at its end is missing")
    try:
        found = json.loads(second.removeprefix(b"-- "))
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def readable(made: str, release: str) -> bool:
    """Return whether Slurm `release`, such as 24.11.3, reads the tables that `made` wrote: a release is its first two
    numbers.

    slurmdbd converts those of the releases that it takes over from, and does not start on others.
    """
    return takes_over(*(".".join(version.split(".")[:2]) for version in (release, made)))
