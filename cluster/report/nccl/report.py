"""Reports of one log and of a folder of logs, as commands and programs ask for them."""

from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from cluster.findings import Finding
from cluster.report.nccl.files import NotALogError, read_file
from cluster.report.nccl.folder import Entry, Folder
from cluster.report.nccl.result import check
from cluster.report.nccl.run import Log
from cluster.report.nccl.subject import Given

_BESIDE = ("-warm-up.log", "-build.log")
"""What jobs of `./hpc nccl` write beside the log of a run."""


def logs_of(path: Path) -> list[Path]:
    """The log itself, or the files of a folder in order of their names, without those of warm-ups and builds."""
    if not path.is_dir():
        return [path]
    return sorted(one for one in path.iterdir() if one.is_file() and not one.name.endswith(_BESIDE))


def folder_of(paths: Iterable[Path], given: Given | None = None) -> Folder:
    """Every log with its result; files that are none, or can't be read, are kept apart."""
    entries: list[Entry] = []
    unread: list[Finding] = []
    for path in paths:
        try:
            log = read_file(path)
        except NotALogError as error:
            unread.append(error.finding)
        except OSError as error:
            given_ = f"a file that can't be read: {error.strerror or error}"
            unread.append(
                Finding(id="nccl-unreadable", at=str(path), given=given_, allowed="a log", todo="see its permissions")
            )
        else:
            entries.append(Entry(log, check(log, given)))
    return Folder(tuple(entries), tuple(unread))


def saved(paths: Iterable[Path]) -> list[tuple[Log, datetime]]:
    """Logs with the time of their last change; files that are no logs are left out."""
    found: list[tuple[Log, datetime]] = []
    for path in paths:
        try:
            found.append((read_file(path), datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)))
        except (NotALogError, OSError):
            continue
    return found
