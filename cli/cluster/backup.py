"""Fetches a backup of the accounting database, and restores one on the controller."""

import gzip
import hashlib
import json
import os
import shlex
import subprocess
import tempfile
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from cli import console
from cli.access import remote
from cli.access.remote import follow
from cli.cluster.cluster import Cluster
from cli.errors import CliError
from cluster.catalog.slurm_releases import takes_over
from cluster.regular_file import refuse_special
from components.slurm import payload

FIRST = b"-- hpc accounting backup 1\n"
LAST = b"-- sha256 "


class BackupError(ValueError):
    """The file is not a complete backup; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Backup:
    """The properties of a complete backup, from its header."""

    cluster: str
    slurm: str
    """Release of Slurm that wrote the database."""
    date: str
    """The time in ISO 8601 with its zone."""
    jobs: int
    """Number of job records."""
    sha256: str
    """SHA-256 of the compressed file."""


def read_backup(file: Path) -> Backup:
    """Verify the whole file, and return its properties.

    Raises:
        BackupError: it was cut off, was changed, or is something else.
        OSError: it can't be read.
    """
    digest = hashlib.sha256()
    refuse_special(file)
    with file.open("rb") as packed:
        while chunk := packed.read(1 << 20):
            digest.update(chunk)
        packed.seek(0)
        try:
            header = _verified_header(gzip.GzipFile(fileobj=packed))
        except (EOFError, zlib.error):
            raise BackupError("it was cut off, or damaged: its end is missing") from None
        except gzip.BadGzipFile:
            raise BackupError("it is no backup of ours: those are gzip files that `accounting backup` wrote") from None
    try:
        texts = {key: str(header[key]) for key in ("cluster", "slurm", "date")}
        return Backup(**texts, jobs=int(header["jobs"]), sha256=digest.hexdigest())
    except (KeyError, TypeError, ValueError):
        raise BackupError("its second line does not say what it is: it was written by another version") from None


def _verified_header(plain: "gzip.GzipFile") -> dict[str, Any]:
    """Read the file to its end, compare it with the checksum in its last line, and return the header in its second
    line."""
    lines = cast("IO[bytes]", plain)
    first = lines.readline()
    if first != FIRST:
        raise BackupError("it is no backup of ours: its first line is another one")
    second = lines.readline()
    checksum = hashlib.sha256(first + second)
    last = b""
    for line in lines:
        checksum.update(last)
        last = line
    if last != LAST + checksum.hexdigest().encode() + b"\n":
        if last.startswith(LAST):
            raise BackupError("it was changed since it was made: the sum at its end is another")
        raise BackupError("the dump in it did not come to its end: the sum at its end is missing")
    try:
        header = json.loads(second.removeprefix(b"-- "))
    except ValueError:
        header = None
    return header if isinstance(header, dict) else {}


def can_read(release: str, written_by: str) -> bool:
    """Return whether Slurm `release`, such as 24.11.3, reads the tables that the release `written_by` wrote.

    slurmdbd converts the tables of the releases that it takes over from, and does not start on others.
    """
    return takes_over(*(".".join(version.split(".")[:2]) for version in (release, written_by)))


UPLOADED = "/var/lib/hpc/accounting"
"""The folder that the controller takes backups from; see scripts/node/accounting/backup.py."""
_UNKNOWN_PHASE = 2
_CHUNK = 1 << 20


def default_name(cluster: str) -> str:
    """Return a name for a backup: the cluster's name and the local time."""
    return f"{cluster}-accounting-{time.strftime('%Y%m%d-%H%M%S')}.sql.gz"


def fetch(cluster: Cluster, file: Path) -> Backup:
    """Dump the controller's database into `file`, which is created with mode 0600 once the dump is complete. Raises
    CliError: the file exists, or can't be written, or the dump failed."""
    if file.exists():
        raise CliError(f"{file}: is there already, and is not overwritten. Give another name, or move it away.")
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            _dump(cluster, out.fileno())
            os.fsync(out.fileno())
        backup = read_backup(part)
        os.link(part, file)  # unlike a rename it does not replace a file
    except FileExistsError:
        raise CliError(f"{file}: somebody else has written it meanwhile; it was left as it is.") from None
    except BackupError as error:
        raise CliError(f"the backup did not arrive whole ({error}); run the same command again.") from None
    except OSError as error:
        raise CliError(f"{file}: can't be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
    return backup


def _dump(cluster: Cluster, out: int) -> None:
    """Write the controller's dump to a file descriptor."""
    controller = cluster.controller
    with remote.connect([controller], cluster.admin_key) as argv:
        command = argv(controller, f"printf '{{}}' | {payload.phase_command('backup')}")
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            try:
                _, stderr = process.communicate()
            except BaseException:
                process.kill()
                raise
    if process.returncode:
        raise CliError(_failure(cluster, process.returncode, stderr))


def uploaded_name(backup: Backup) -> str:
    """Return the name of a backup's file on the controller."""
    return f"restore-{backup.sha256[:16]}.sql.gz"


def restore_backup(cluster: Cluster, file: Path, backup: Backup, request: str) -> None:
    """Upload a backup and restore it on the controller; `request` is the input of the phase and has its
    `uploaded_name`. Prints the controller's output. Raises CliError: a step failed; the message says what to do."""
    controller, target = cluster.controller, f"{UPLOADED}/{uploaded_name(backup)}"
    command = shlex.join(["./hpc", "accounting", "restore", cluster.stack, str(file)])
    with file.open("rb") as packed:
        _upload(cluster, packed, target)
    # Not on the command line: the users of a large cluster do not fit into one argument.
    with tempfile.TemporaryFile() as stream:
        stream.write(request.encode())
        stream.seek(0)
        _upload(cluster, stream, f"{target}.json")
    errors: list[str] = []

    def show(lines: Mapping[str, list[str]]) -> None:
        for line in lines[controller.name]:
            console.line(line)

    def note(lines: Mapping[str, list[str]]) -> None:
        errors.extend(lines[controller.name])

    line = f"{payload.phase_command('restore')} <{target}.json"
    try:
        codes = follow([controller], cluster.admin_key, lambda _: line, show=show, note=note)
    except (KeyboardInterrupt, SystemExit):
        console.note(
            "The controller goes on by itself with what it has begun. To see it through, or after a failure of the "
            f"controller's: {command}"
        )
        raise
    if codes[controller.name]:
        text = _failure(cluster, codes[controller.name], "\n".join(errors))
        raise CliError(f"{text}\nThe same command may be run again at any time: {command}")


def _upload(cluster: Cluster, content: IO[bytes], target: str) -> None:
    """Upload a file to the controller atomically, for root only. Raises CliError: that failed."""
    controller = cluster.controller
    line = f"umask 077 && mkdir -p {UPLOADED} && cat >{target}.part && mv {target}.part {target}"
    with remote.connect([controller], cluster.admin_key) as argv:
        done = subprocess.run(
            argv(controller, line), stdin=content, capture_output=True, text=True, errors="replace", check=False
        )
    if done.returncode:
        raise CliError(
            f"the backup could not be brought to {controller.name}; nothing was changed there: "
            f"{done.stderr.strip() or f'exit code {done.returncode}'}"
        )


def _failure(cluster: Cluster, code: int, stderr: str) -> str:
    """Return the message for a phase that failed on the controller."""
    name = cluster.controller.name
    if code == _UNKNOWN_PHASE:
        return f"{name}: its set-up is older than this program. Bring it up to date: ./hpc up {cluster.stack}"
    if code == remote.UNREACHED:
        return f"{name} does not answer, or the connection broke: {stderr.strip()}"
    return f"{name}: {stderr.strip() or f'exit code {code}'}"
