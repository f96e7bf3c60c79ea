"""Private folders in /tmp for keys and sockets, and the removal of those that killed processes left.

The process that uses a folder holds a lock on it, which ends with the process. A process number would not do: it may
belong to another process by now, or to another container that shares /tmp.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

# Not $TMPDIR: a socket's path may have 108 bytes at most.
PARENT = Path("/tmp")  # noqa: S108
_NEW = ".new-"
_SOON = 60
"""Seconds after which a new folder that is not locked is taken for abandoned."""


class PrivateFolder:
    """A folder `KIND-PID-...` of mode 0700; unlocked ones of the same kind are removed first."""

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
