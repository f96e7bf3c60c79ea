"""What the jail shares between pods, on machines that have a root of their own each: accounts, and root's keys.

`/mnt/jail` of every machine is a link to `/`. Accounts that programs create on the first login machine are copied to
all others at once. Home directories are a shared file system of the machines.
"""

import os
import subprocess
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.platforms.nebius.names import JAIL_PATH, LOGIN_POD, SENTINELS
from components.local.host.process import Process

_LOGIN = "login-"
PACE_SECONDS = 0.05
ACCOUNTS = ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")
"""Files of /etc."""
JAIL = JAIL_PATH.lstrip("/")
SENTINEL = SENTINELS[0].lstrip("/")
KEYS = "root/.ssh/authorized_keys"
_PORT = "etc/ssh/sshd_config.d/30-node-port.conf"


class Accounts:
    """Accounts of the first login machine, on all machines.

    They are compared all the time, by a thread: slurmctld resolves a user's number once, when the user is added to the
    database, which is a moment after the account was created.
    """

    def __init__(self) -> None:
        self._wanted: tuple[Mapping[str, Process], Sequence[str], int] = ({}, (), 0)
        self._shared: dict[str, object] = {}
        """What each machine has: its first process, and the files' version."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def share(self, running: Mapping[str, Process], keys: Sequence[str], port: int) -> None:
        """Make every machine (by its first process) have the jail, the accounts, and on login machines root's keys.
        `port`: where sshd of login machines listens besides, for a NodePort; 0 for nowhere."""
        self._wanted = (dict(running), tuple(keys), port)
        self._turn()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while True:
            time.sleep(PACE_SECONDS)
            self._turn()

    def _turn(self) -> None:
        with self._lock:
            self._compare()

    def _compare(self) -> None:
        running, keys, port = self._wanted
        with suppress(OSError), _root(running.get(LOGIN_POD)) as first:
            version = _version(first) if first else None
            for name, process in running.items():
                known = (process, version, keys, port)
                with suppress(OSError), _root(process) as root:  # it is ending
                    if root and not self._has(name, root, known):
                        self._give(name, root, first)
                        if name.startswith(_LOGIN):
                            _listen(process, root, port)
                        self._shared[name] = known

    def _has(self, name: str, root: Path, known: object) -> bool:
        """Whether a machine is as it was left. One that is being set up gets root's keys of its stack again."""
        return self._shared.get(name) == known and (not name.startswith(_LOGIN) or _has_keys(root, self._wanted[1]))

    def _give(self, name: str, root: Path, first: Path | None) -> None:
        _dress(root)
        if first and name != LOGIN_POD:
            _copy(first, root)
        if name.startswith(_LOGIN):
            _add_keys(root, self._wanted[1])


@contextmanager
def _root(process: Process | None) -> Generator[Path | None]:
    """The root of a machine, by its first process; None for none. Raises OSError: it has ended.

    It is held open: the process's number may be another process's by the time that something is written, one of this
    host among them, whose root is the host's own.
    """
    if process is None:
        yield None
        return
    handle = os.open(f"/proc/{process.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not process.alive():
            raise ProcessLookupError(process.pid)
        yield Path(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def _dress(root: Path) -> None:
    jail = root / JAIL
    if not jail.is_symlink():
        jail.symlink_to("/")
    (root / SENTINEL).touch()


def _version(root: Path) -> tuple[tuple[int, int, int], ...]:
    """Changes with every change of the files."""
    found: list[tuple[int, int, int]] = []
    for name in ACCOUNTS:
        with suppress(FileNotFoundError):
            status = (root / "etc" / name).stat()
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _copy(source: Path, target: Path) -> None:
    for name in ACCOUNTS:
        old, new = source / "etc" / name, target / "etc" / name
        with suppress(FileNotFoundError):
            content = old.read_bytes()
            if new.exists() and new.read_bytes() == content:
                continue
            status = old.stat()
            half = new.with_name(f".{name}.jail")
            half.write_bytes(content)
            half.chmod(status.st_mode & 0o7777)
            os.chown(half, status.st_uid, status.st_gid)
            half.rename(new)


def _has_keys(root: Path, keys: Sequence[str]) -> bool:
    try:
        text = (root / KEYS).read_text()
    except OSError:
        return False
    return all(key.strip() in text for key in keys)


def _add_keys(root: Path, keys: Sequence[str]) -> None:
    file = root / KEYS
    text = file.read_text() if file.exists() else ""
    lacking = [key.strip() for key in keys if key.strip() not in text]
    if lacking:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        half = file.with_name(f".{file.name}.jail")
        half.write_text(text + "".join(f"{key}\n" for key in lacking))
        half.chmod(0o600)
        half.rename(file)


def _listen(process: Process, root: Path, port: int) -> None:
    file = root / _PORT
    text = f"Port 22\nPort {port}\n" if port else ""
    if (file.read_text() if file.exists() else "") == text:
        return
    file.write_text(text)
    if process.alive():
        subprocess.run(
            ["nsenter", f"--target={process.pid}", "--all", "--", "systemctl", "restart", "ssh"], check=False
        )
