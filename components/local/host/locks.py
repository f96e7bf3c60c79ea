"""Locks between processes: held by an open file, so that a killed holder can't leave one behind."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file `path` (made where missing); yields False, not holding it, if `wait` is off and it is taken.

    A holder may remove the file (it is about to remove all that it guards): who waited for it then takes a new one.
    """
    handle = None
    try:
        while handle is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = _open(path)
            if handle is None:
                continue
            try:
                fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if not _is_at(handle, path):
                os.close(handle)
                handle = None
        yield True
    finally:
        if handle is not None:
            os.close(handle)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # the folder went between making and using it
        return None


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def remove_empty(folder: Path) -> bool:
    """Remove the folder if nothing is in it; returns whether it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace `path` as a whole: a reader sees the old text or the new one, also if this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")  # threads may write the same file
    half.write_text(text)
    half.chmod(mode)
    half.rename(path)
