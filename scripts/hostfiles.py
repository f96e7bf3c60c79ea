"""Files that several processes and threads of this machine use: locks, atomic writes, private folders.

It imports only the standard library, so that the engine, the components and the commands can share it.
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

# Not $TMPDIR: the path of a socket may have 108 bytes at most.
PARENT = Path("/tmp")  # noqa: S108
_NEW = ".new-"
_LOCK_SECONDS = 60
"""Seconds after which a new private folder without a lock counts as abandoned."""


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock on the file `path`, which is created; yield False if `wait` is off and another process holds it.

    An open file holds the lock, so that it ends with its holder. A holder may remove the file, together with everything
    that it guards: whoever waited for it then locks a new file.
    """
    handle = None
    try:
        while handle is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # somebody has removed the folder since
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
    """Remove the folder if it is empty; return whether it does not exist any more."""
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
    """Replace the file `path` atomically: a reader sees the old or the new text, also if this process is killed.

    Line ends are not changed. `owner` is a uid and a gid. With `sync`, the text is on disk before it replaces the old
    one. If it raises OSError, it leaves no new file.
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
    """A folder `KIND-PID-...` of mode 0700 in /tmp, for keys and sockets.

    Its process holds a lock on it, which ends with the process: unlocked folders of the same kind are removed first. A
    process id is no proof, since another process may have it now, in this or in another container that shares /tmp.
    """

    def __init__(self, kind: str) -> None:
        sweep(kind)
        # Until it is locked, it has a name that `sweep` does not remove.
        made = Path(tempfile.mkdtemp(prefix=f"{_NEW}{kind}-{os.getpid()}-", dir=PARENT))
        self._held = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self.path = made.with_name(made.name.removeprefix(_NEW))
        made.rename(self.path)

    def remove(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def sweep(kind: str) -> None:
    """Remove this user's unlocked folders of a kind, and nothing else in /tmp."""
    for path in (*PARENT.glob(f"{kind}-*"), *PARENT.glob(f"{_NEW}{kind}-*")):
        # The path may vanish, be a link, or not be readable.
        with suppress(OSError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            if path.name.startswith(_NEW) and time.time() - status.st_mtime < _LOCK_SECONDS:
                continue
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
