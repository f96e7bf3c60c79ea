"""Locks of stacks, in the format of the CLI's file backend: files in `.pulumi/locks/organization/PROJECT/STACK/`.

Each run writes a file of its own and checks for others. Unlike in the CLI, a lock is removed if its process on this
host has ended, and two runs that start at the same time do not refuse each other: check and write are done under an
flock on the folder.
"""

import fcntl
import getpass
import json
import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from engine.errors import EngineError
from engine.state.checkpoint import attributes_file
from scripts.hostfiles import write_atomically


@dataclass(frozen=True)
class Holder:
    """The process that holds a stack, its user and host, and the time since when (ISO 8601)."""

    pid: int
    user: str
    host: str
    since: str
    file: Path

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (pid {self.pid}) holds it since {self.since}"

    def alive(self) -> bool:
        """Return whether the process may still run; on other hosts, where that is not known, always True."""
        if self.host != socket.gethostname():
            return True
        stat = _process_stat(self.pid)
        if self.pid <= 0 or stat[:1] in (["Z"], ["X"]):  # ended, and its parent has not read the exit status
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        # A process that started after the lock was written is another one with the same number.
        started, written = _start_time(stat), _epoch(self.since)
        return started is None or written is None or started < written + 2


class StackLockedError(EngineError):
    """Another run, the `holder`, holds the stack."""

    def __init__(self, stack: str, holder: Holder) -> None:
        super().__init__(
            f"stack {stack} is in use: {holder}.\n"
            f"Wait for that run to end. If it is gone for good, unlock the stack (this removes {holder.file})."
        )
        self.stack, self.holder = stack, holder


class Locks:
    """The lock files of one stack."""

    def __init__(self, folder: Path, stack: str) -> None:
        self._folder = folder
        self._stack = stack

    def holders(self) -> list[Holder]:
        """Return the holders of all lock files, also those whose process has ended."""
        return [holder for file in sorted(self._folder.glob("*.json")) if (holder := _read(file))]

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the stack. Raises StackLockedError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{uuid.uuid4()}.json"
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            for holder in self.holders():
                if holder.alive():
                    raise StackLockedError(self._stack, holder)
                _remove(holder.file)
            since = datetime.now(timezone.utc).isoformat()
            row = {"pid": os.getpid(), "username": _user(), "hostname": socket.gethostname(), "timestamp": since}
            try:
                write_atomically(file, json.dumps(row))  # a partial one would never be released
            except OSError as error:
                message = f"{self._folder}: no lock can be written: {error.strerror}. Nothing was changed."
                raise EngineError(message) from error
        finally:
            os.close(folder)
        try:
            yield
        finally:
            _remove(file)

    def break_all(self) -> list[Holder]:
        """Remove all locks. Returns their holders."""
        holders = self.holders()
        for holder in holders:
            _remove(holder.file)
        return holders


def _remove(file: Path) -> None:
    """Remove a lock, and the attributes that the CLI's file store keeps beside it."""
    for path in (file, attributes_file(file)):
        path.unlink(missing_ok=True)


def _read(file: Path) -> Holder | None:
    try:
        text = file.read_text(encoding="utf-8")
        if not text.strip():
            # The disk was full when it was written.
            return Holder(0, "nobody", socket.gethostname(), "an unknown time", file)
        row = json.loads(text)
        return Holder(int(row["pid"]), row["username"], row["hostname"], row["timestamp"], file)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Holder(0, "someone", "an unknown host", "an unknown time", file)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _epoch(text: str) -> float | None:
    """Parse a time as Go or Python writes it (RFC 3339, up to nanoseconds). Returns whole seconds of the epoch."""
    match = re.fullmatch(r"(.{19})(?:\.\d+)?(Z|[+-]\d\d:\d\d)", text)
    if not match:
        return None
    return datetime.fromisoformat(match[1] + match[2].replace("Z", "+00:00")).timestamp()


def _process_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the program's name, the state first; none if it can't be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _start_time(stat: list[str]) -> float | None:
    """Return the start time of a process in seconds of the epoch; None if it can't be read."""
    try:
        boot = next(line for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines() if "btime" in line)
        return int(boot.split()[1]) + int(stat[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None
