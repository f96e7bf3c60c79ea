"""Writes files below a folder of the shared file system, as root. Sent to a machine with a call of `put` below
it, and run by `python3 -`; standard library only, Python 3.9 (the jail's)."""

import json
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any


def put(folder: str, files: dict[str, Any]) -> None:
    """Write the files that differ, each atomically, and print their paths as JSON. `files`: path to [text, mode].

    Exits with a message if a folder on the way is not root's alone: users could put another file in its place.
    """
    changed = []
    for path, (text, mode) in files.items():
        try:
            if _write(Path(folder), Path(path), text, mode):
                changed.append(path)
        except OSError as error:
            sys.exit(f"{path} can't be written: {error.strerror or error}")
    print(json.dumps(changed))


def _write(folder: Path, target: Path, text: str, mode: int) -> bool:
    """Write a file below `folder`, unless it is there; whether it was written."""
    _make(folder, target.parent)
    there = _is(target, text, mode)
    if not there:
        number, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(number, "w", encoding="utf-8", newline="") as out:
                out.write(text)
                out.flush()
                os.fchmod(out.fileno(), mode)
                os.fsync(out.fileno())
            Path(part).replace(target)
        except BaseException:
            Path(part).unlink()
            raise
    return not there


def _make(top: Path, folder: Path) -> None:
    """Make folders from `top` to `folder`, which must be root's alone."""
    for place in [top, *(top / part for part in reversed(folder.relative_to(top).parents)), folder]:
        place.mkdir(mode=0o755, parents=place == top, exist_ok=True)
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            sys.exit(f"{place} is not a folder that root alone can write to. Look at what it holds, and move it away.")
        if found.st_mode & 0o055 != 0o055:
            place.chmod(0o755)


def _is(target: Path, text: str, mode: int) -> bool:
    """Return whether the file is there, with this text and mode, and is root's."""
    try:
        found = target.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(found.st_mode):
        sys.exit(f"{target} is a folder, and a file belongs there. Look at what it holds, and move it away.")
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_uid == os.geteuid()
        and stat.S_IMODE(found.st_mode) == mode
        and target.read_bytes() == text.encode()
    )
