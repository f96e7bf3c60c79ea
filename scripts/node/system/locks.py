"""Locks of root's programs on a machine, which no other user can hold, and their holders.

Whoever can open a file, be it only to read it, can lock it (flock(2)) and keep others waiting.
"""

import fcntl
import os
import pwd
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

LOCKS = Path("/run/hpc")  # for root alone, like all that is in it
LONGEST_SECONDS = 3600.0  # phases that wait longer, for jobs, end when `up` asks them to (jobs/drain_leaving.py)


def open_lock(path: Path) -> IO[str]:
    """Open the lock file `path`, which is created: mode 0600 in a folder of mode 0700.

    An older set-up created files that users could open, and one of them may be open still: such a file is replaced,
    unless a process of root holds it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(path.parent.stat().st_mode) != 0o700:
        path.parent.chmod(0o700)
    while True:
        lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+")
        status = os.fstat(lock.fileno())
        if stat.S_IMODE(status.st_mode) == 0o600 and status.st_uid == os.geteuid():
            return lock
        if not take_lock(lock) and os.geteuid() in {uid for _, uid, _ in holders(lock)}:
            return lock
        with suppress(FileNotFoundError):
            if os.path.samestat(status, path.stat()):
                path.unlink()
        lock.close()


def take_lock(lock: IO[Any] | int, *, seconds: float = 0) -> bool:
    """Lock an open file (flock(2)); False if another process still holds the lock after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)
        else:
            return True


def holders(lock: IO[Any]) -> list[tuple[int, int, str]]:
    """Return pid, uid and command of each process that has the lock of an open file, those that inherited it included.

    Only root sees the files of other users' processes. fdinfo has a line `lock:` where this open file has the lock
    (proc_pid_fdinfo(5)). A process outside this container is not listed.
    """
    status, found = os.fstat(lock.fileno()), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            for file in (process / "fd").iterdir():
                with suppress(OSError):
                    held = os.path.samestat(file.stat(), status)
                    if held and "\nlock:" in (process / "fdinfo" / file.name).read_text():
                        command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        found.append((int(process.name), process.stat().st_uid, command.strip()[:200]))
                        break
    return sorted(found)


def describe_holders(lock: IO[Any]) -> str:
    """Return in words who has the lock of an open file, as in `pid 4711 of alice (sleep 1000)`."""
    rows = []
    for pid, uid, command in holders(lock):
        user = str(uid)
        with suppress(KeyError):
            user = pwd.getpwuid(uid).pw_name
        rows.append(f"pid {pid} of {user} ({command})" if command else f"pid {pid} of {user}")
    return ", ".join(rows) or "a process that this machine does not show"
