"""Stack files as text: read and replaced exactly, one edit at a time."""

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cli import console
from cli.errors import CliError


@contextmanager
def alone(path: Path) -> Generator[None]:
    """Hold the file's folder, so that two edits of a file come one after the other. Waits for another one; its
    questions are asked before or after. Raises CliError: the folder is not there."""
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CliError(f"{path.parent}: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.note(f"Somebody else edits a stack file in {path.parent}: waiting ...")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def read(path: Path) -> str:
    """The text, its line ends as they are. Raises CliError: it can't be read, or is no text."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise CliError(f"{path}: can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CliError(f"{path}: not text in UTF-8.") from None


def write(path: Path, text: str) -> None:
    """Replace the text atomically, and keep the file's mode and owner; of a link, what it leads to. Raises CliError: it
    can't be written, and is as it was."""
    target = path.resolve()
    new = target.with_name(f".{target.name}.new")
    try:
        new.write_bytes(text.encode("utf-8"))
        shutil.copymode(target, new)
        if os.geteuid() == 0:
            # A rehearsal needs root, and the file may be somebody's.
            os.chown(new, target.stat().st_uid, target.stat().st_gid)
        new.replace(target)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise CliError(f"{path}: can't be written: {error.strerror}. Nothing was changed.") from None
