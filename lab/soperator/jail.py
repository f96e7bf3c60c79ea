"""The content of the jail that machines share, although each has its own root: accounts, and root's keys.

`/mnt/jail` of every machine is a link to `/`. Accounts that programs create on the first login machine are copied to
all others at once. Home directories are a shared file system of the machines.
"""

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from components.local.host import layer
from components.local.host.layer import File, Layer
from components.local.host.paths import HostError
from components.local.host.process import Process
from lab.soperator.names import JAIL_PATH, LOGIN_POD

_LOGIN = "login-"
POPULATED = "/.populated"
"""The file that the Job which populates the jail writes last: Soperator's own value (nebius/soperator,
images/jail/populate_jail_entrypoint.sh at 4.1.4 to 4.1.7, SENTINEL="/mnt/jail/.populated")."""
PACE_SECONDS = 0.05
ACCOUNTS = ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")
"""Files in /etc with the accounts."""
KEYS = "/root/.ssh/authorized_keys"
_PORT = "/etc/ssh/sshd_config.d/30-node-port.conf"
_OWNER = "0:0"  # a machine's accounts may be anything at the moment


class Accounts:
    """Copies the accounts of the first login machine to all machines.

    A thread copies them right after a change: slurmctld resolves a uid once, when the user is added to the database,
    which is a moment after the account was created.
    """

    def __init__(self) -> None:
        self._desired: tuple[Mapping[str, Process], Sequence[str], int] = ({}, (), 0)
        self._shared: dict[str, object] = {}
        """The state of each machine: its first process, the files' version, the keys and the port."""
        self._changed = 0
        """Time of the last change in the first login machine's /etc, in nanoseconds."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def share(self, running: Mapping[str, Process], keys: Sequence[str], port: int) -> None:
        """Give each machine (by its first process) the jail, the accounts, and on login machines root's keys. `port`: a
        further port of sshd on login machines, for a NodePort; 0 for none."""
        with self._lock:
            self._desired = (dict(running), tuple(keys), port)
            self._compare()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while True:
            time.sleep(PACE_SECONDS)
            with self._lock, suppress(OSError, HostError), _root(self._desired[0].get(LOGIN_POD)) as first:
                folder = first.status("/etc") if first else None
                if folder and folder.st_mtime_ns != self._changed:
                    self._changed = folder.st_mtime_ns
                    self._compare()

    def _compare(self) -> None:
        running, keys, port = self._desired
        with suppress(OSError, HostError), _root(running.get(LOGIN_POD)) as first:
            version = _version(first) if first else None
            for name, process in running.items():
                state = (process, version, keys, port)
                # Errors mean that the machine ends, or that its root user prevents the write.
                with suppress(OSError, HostError), _root(process) as root:
                    if root and not self._has(name, root, state):
                        self._give(name, root, first)
                        if name.startswith(_LOGIN):
                            _listen(process, root, port)
                        self._shared[name] = state

    def _has(self, name: str, root: Layer, state: object) -> bool:
        """Return whether a machine has what was copied to it. The node set-up of its stack replaces root's keys."""
        return self._shared.get(name) == state and (not name.startswith(_LOGIN) or _has_keys(root, self._desired[1]))

    def _give(self, name: str, root: Layer, first: Layer | None) -> None:
        _dress(root)
        if first and name != LOGIN_POD:
            _copy(first, root)
        if name.startswith(_LOGIN):
            _add_keys(root, self._desired[1])


def _root(process: Process | None) -> AbstractContextManager[Layer | None]:
    """Return the root of a machine, by its first process; None without a process. Raises OSError: it has ended."""
    return layer.running(process) if process else nullcontext()


def _dress(root: Layer) -> None:
    if root.status(JAIL_PATH) is None:
        root.write(JAIL_PATH, File(link="/"))
    if root.status(POPULATED) is None:
        root.write(POPULATED, File(owner=_OWNER))


def _version(root: Layer) -> tuple[tuple[int, int, int], ...]:
    """Return a value that differs after each change of the files."""
    statuses = (root.status(f"/etc/{name}") for name in ACCOUNTS)
    return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in statuses if status)


def _copy(source: Layer, target: Layer) -> None:
    for name in (f"/etc/{account}" for account in ACCOUNTS):
        content, status = source.read(name), source.status(name)
        if content is not None and status and target.read(name) != content:
            owner = f"{status.st_uid}:{status.st_gid}"
            target.write(name, File(content=content, mode=status.st_mode & 0o7777, owner=owner))


def _has_keys(root: Layer, keys: Sequence[str]) -> bool:
    text = root.read(KEYS) or ""
    return all(key.strip() in text for key in keys)


def _add_keys(root: Layer, keys: Sequence[str]) -> None:
    text = root.read(KEYS) or ""
    missing = [key.strip() for key in keys if key.strip() not in text]
    if missing:
        text += "".join(f"{key}\n" for key in missing)
        root.write(KEYS, File(content=text, mode=0o600, owner=_OWNER))


def _listen(process: Process, root: Layer, port: int) -> None:
    text = f"Port 22\nPort {port}\n" if port else ""
    if (root.read(_PORT) or "") == text:
        return
    root.write(_PORT, File(content=text, owner=_OWNER))
    if process.alive():
        subprocess.run(
            ["nsenter", f"--target={process.pid}", "--all", "--", "systemctl", "restart", "ssh"], check=False
        )
