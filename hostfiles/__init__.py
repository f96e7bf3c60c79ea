"""Files of this machine that several processes and threads use: locks, atomic writes, private folders.

It imports the standard library only, so that the engine, the components and the commands share it.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Not $TMPDIR: a socket's path may have 108 bytes at most.
PARENT = Path("/tmp")  # noqa: S108
_NEW = ".new-"
_SOON = 60
"""Seconds after which a new private folder that is not locked is taken for abandoned."""


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file `path` (made where missing); yields False, not holding it, if `wait` is off and it is taken.

    The lock is held by an open file, so a killed holder can't leave one behind. A holder may remove the file (it is
    about to remove all that it guards): who waited for it then takes a new one.
    """
    handle = None
    try:
        while handle is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # the folder went between making and using it
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


def write_atomically(
    path: Path, text: str, *, mode: int = 0o644, owner: tuple[int, int] | None = None, sync: bool = False
) -> None:
    """Replace `path` as a whole: a reader sees the old text or the new one, also if this process is killed.

    Line ends are written as they are. `owner` is a uid and a gid; with `sync`, the text is on disk before it replaces
    the old one. Raises OSError, and leaves nothing behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")  # threads may write the same file
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as out:
            os.fchmod(out.fileno(), mode)
            if owner:
                os.fchown(out.fileno(), *owner)
            out.write(text.encode())
            if sync:
                out.flush()
                os.fsync(out.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


class PrivateFolder:
    """A folder `KIND-PID-...` of mode 0700 in /tmp, for keys and sockets; unlocked ones of the same kind, which killed
    processes left, are removed first.

    The process that uses it holds a lock on it, which ends with the process. A process number would not do: it may
    belong to another process by now, or to another container that shares /tmp.
    """

    def __init__(self, kind: str) -> None:
        sweep(kind)
        # Until it is locked, under a name that `sweep` spares.
        made = Path(tempfile.mkdtemp(prefix=f"{_NEW}{kind}-{os.getpid()}-", dir=PARENT))
        self._held = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self.path = made.with_name(made.name.removeprefix(_NEW))
        made.rename(self.path)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def sweep(kind: str) -> None:
    """Remove this user's unlocked folders of a kind; whatever else is in /tmp is left alone."""
    for path in (*PARENT.glob(f"{kind}-*"), *PARENT.glob(f"{_NEW}{kind}-*")):
        # It may vanish meanwhile, be a link, or not be readable.
        with suppress(OSError):
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            if path.name.startswith(_NEW) and time.time() - found.st_mtime < _SOON:
                continue
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
