"""Processes: run one to its end, or know one again later by more than its number."""

import functools
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.local.host.errors import HostError


def run(command: Sequence[str], *, stdin: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a short command and return its output; HostError with its error when it fails."""
    try:
        done = subprocess.run(
            list(command), input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True,
            text=True, check=False, env=dict(env) if env is not None else None,
        )  # fmt: skip
    except FileNotFoundError:
        raise HostError(f"{command[0]}: not found on this machine") from None
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or f"ended with status {done.returncode}").splitlines()
        raise HostError(f"{' '.join(command)}: {lines[-1]}")
    return done.stdout


@functools.cache
def host_boot_id() -> str:
    """Changes each time this host starts; process numbers mean nothing across such a change."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class Process:
    """A process that is known again: its number, when it started (clock ticks since boot) and in which boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process that has this number now, if any."""
        stat = _stat(pid)
        return cls(pid, stat[1], host_boot_id()) if stat else None

    @classmethod
    def load(cls, path: Path) -> "Process | None":
        """The process recorded at `path`, or None if there is no record (or half of one)."""
        try:
            record = json.loads(path.read_text())
            return cls(int(record["pid"]), int(record["started"]), str(record["boot"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[0] not in "ZX" and stat[1] == self.started and self.boot == host_boot_id()

    def end(self, sig: signal.Signals, *, wait: float) -> bool:
        """Send `sig` if it is still this process, and wait up to `wait` seconds; returns whether it is gone."""
        if not self.alive():
            return True
        try:
            # A pidfd names this process even if the number is given away between the look and the signal.
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.alive():
                return True
            signal.pidfd_send_signal(handle, sig)
        except ProcessLookupError:
            return True
        finally:
            os.close(handle)
        deadline = time.monotonic() + wait
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def parent(self) -> "Process | None":
        stat = _stat(self.pid)
        return Process.of(stat[2]) if stat else None

    def command(self) -> list[str]:
        """Its command line; empty once it has ended."""
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace").split("\0")
        except OSError:
            return []

    def is_first_of_namespace(self) -> bool:
        """Whether it is process 1 of a PID namespace below this one (NSpid in proc_pid_status(5))."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return False
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        return len(numbers) > 1 and numbers[-1] == "1"

    def children(self) -> list[int]:
        try:
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        except OSError:
            return []


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State letter, start time and parent of a process: fields 3, 22 and 4 of /proc/PID/stat (proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19]), int(fields[1])
