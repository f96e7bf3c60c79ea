"""Fetches a backup of the accounting database, brings one back to the controller, and has lost records rebuilt."""

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


def read_backup(file: Path) -> Backup:
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


UPLOADED = "/var/lib/hpc/accounting"
"""The folder that the controller takes backups from; see scripts/node/accounting/backup.py."""
_UNKNOWN_PHASE = 2
_CHUNK = 1 << 20
_REBUILD_SECONDS = 600


def default_name(cluster: str) -> str:
    """A backup's name, with the cluster's and the time (local, to the second)."""
    return f"{cluster}-accounting-{time.strftime('%Y%m%d-%H%M%S')}.sql.gz"


def fetch(cluster: Cluster, stack: str, file: Path) -> Backup:
    """Have the controller dump its database into `file`, which appears only when it is whole; 0600. Raises CliError:
    the file is there, or can't be written, or the dump failed."""
    if file.exists():
        raise CliError(f"{file}: is there already, and is not overwritten. Give another name, or move it away.")
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            _dump(cluster, stack, out.fileno())
            os.fsync(out.fileno())
        found = read_backup(part)
        os.link(part, file)  # unlike a rename it takes no file's place
    except FileExistsError:
        raise CliError(f"{file}: somebody else has written it meanwhile; it was left as it is.") from None
    except BackupError as error:
        raise CliError(f"the backup did not arrive whole ({error}); run the same command again.") from None
    except OSError as error:
        raise CliError(f"{file}: can't be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
    return found


def _dump(cluster: Cluster, stack: str, out: int) -> None:
    controller = cluster.controller
    with remote.connect([controller], cluster.admin_key) as argv:
        command = argv(controller, f"printf '{{}}' | {payload.phase_command('backup')}")
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            try:
                _, said = process.communicate()
            except BaseException:
                process.kill()
                raise
    if process.returncode:
        raise CliError(_trouble(cluster, stack, process.returncode, said))


def uploaded_name(backup: Backup) -> str:
    """Return what a backup is called on the controller."""
    return f"restore-{backup.sha256[:16]}.sql.gz"


def bring_back(cluster: Cluster, stack: str, file: Path, backup: Backup, request: str) -> None:
    """Upload a backup and have the controller restore it, by a request that names it as `uploaded_name` does; prints
    what it does. Raises CliError: a step failed; what to do then is said."""
    controller, target = cluster.controller, f"{UPLOADED}/{uploaded_name(backup)}"
    again = shlex.join(["./hpc", "accounting", "restore", stack, str(file)])
    with file.open("rb") as packed:
        _put(cluster, packed, target)
    # Not on the command line: the users of a large cluster are more than one word of it may hold.
    with tempfile.TemporaryFile() as stream:
        stream.write(request.encode())
        stream.seek(0)
        _put(cluster, stream, f"{target}.json")
    errors: list[str] = []

    def show(came: Mapping[str, list[str]]) -> None:
        for line in came[controller.name]:
            console.line(line)

    def note(came: Mapping[str, list[str]]) -> None:
        errors.extend(came[controller.name])

    line = f"{payload.phase_command('restore')} <{target}.json"
    try:
        codes = follow([controller], cluster.admin_key, lambda _: line, show=show, note=note)
    except (KeyboardInterrupt, SystemExit):
        console.note(
            "The controller goes on by itself with what it has begun. To see it through, or after a failure of the "
            f"controller's: {again}"
        )
        raise
    if codes[controller.name]:
        text = _trouble(cluster, stack, codes[controller.name], "\n".join(errors))
        raise CliError(f"{text}\nThe same command may be run again at any time: {again}")


def rebuild(cluster: Cluster, stack: str, *, insert: bool) -> list[str]:
    """Have the controller list, or `insert`, the records of ended jobs that the database lacks; what it prints.

    Raises CliError: it does not answer, or records wait in slurmctld.
    """
    done = remote.capture(
        cluster.controller,
        cluster.admin_key,
        payload.phase_command("rebuild"),
        stdin=json.dumps({"insert": insert}),
        seconds=_REBUILD_SECONDS,
    )
    if done.code:
        raise CliError(_trouble(cluster, stack, done.code, done.err))
    return done.out.splitlines()


def _put(cluster: Cluster, content: IO[bytes], target: str) -> None:
    """Upload a file to the controller atomically, for root only. Raises CliError: that failed."""
    controller = cluster.controller
    keep = f"umask 077 && mkdir -p {UPLOADED} && cat >{target}.part && mv {target}.part {target}"
    with remote.connect([controller], cluster.admin_key) as argv:
        done = subprocess.run(
            argv(controller, keep), stdin=content, capture_output=True, text=True, errors="replace", check=False
        )
    if done.returncode:
        raise CliError(
            f"the backup could not be brought to {controller.name}; nothing was changed there: "
            f"{done.stderr.strip() or f'exit code {done.returncode}'}"
        )


def _trouble(cluster: Cluster, stack: str, code: int, said: str) -> str:
    name = cluster.controller.name
    if code == _UNKNOWN_PHASE:
        return f"{name}: its set-up is older than this program. Bring it up to date: ./hpc up {stack}"
    if code == remote.UNREACHED:
        return f"{name} does not answer, or the connection broke: {said.strip()}"
    return f"{name}: {said.strip() or f'exit code {code}'}"
