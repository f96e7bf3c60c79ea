"""Writes files below a folder of the shared file system, as root. A machine gets this text with a call of `put` at its
end, and runs it by `python3 -`. It needs only the standard library of Python 3.9, which the jail has."""

import json
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any


def put(folder: str, files: dict[str, Any]) -> None:
    """Write the files that differ, each atomically, and print their paths as JSON. `files` is {path: [text, mode]}.

    It exits with a message if others can write to a folder on the way, and so could replace the file.
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
    """Write a file below `folder` unless it is current; return whether it was written."""
    _make_folders(folder, target.parent)
    current = _is_current(target, text, mode)
    if not current:
        descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
                out.write(text)
                out.flush()
                os.fchmod(out.fileno(), mode)
                os.fsync(out.fileno())
            Path(part).replace(target)
        except BaseException:
            Path(part).unlink()
            raise
    return not current


def _make_folders(top: Path, folder: Path) -> None:
    """Create the folders from `top` to `folder`; exit if others own them or can write to them."""
    for path in [top, *(top / part for part in reversed(folder.relative_to(top).parents)), folder]:
        path.mkdir(mode=0o755, parents=path == top, exist_ok=True)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            sys.exit(f"{path} is not a folder that root alone can write to. Look at what it holds, and move it away.")
        if status.st_mode & 0o055 != 0o055:
            path.chmod(0o755)


def _is_current(target: Path, text: str, mode: int) -> bool:
    """Return whether the file has this text and mode, and belongs to root."""
    try:
        status = target.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(status.st_mode):
        sys.exit(f"{target} is a folder, and a file belongs there. Look at what it holds, and move it away.")
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.geteuid()
        and stat.S_IMODE(status.st_mode) == mode
        and target.read_bytes() == text.encode()
    )
