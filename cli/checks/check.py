"""A check: a command that ends well or does not, with its output kept back until there is room to print it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli import console
from cli.display.changes import seconds

_CHUNK = 65536
_GRACE = 120.0
"""Seconds that an interrupted check has for cleaning up; end-to-end tests remove their machines in them."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One command, run in the project's folder."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of this process's."""


class Running:
    """A check at work, with both its outputs in one pipe and nothing on its standard input."""

    def __init__(self, check: Check, folder: Path) -> None:
        self.check = check
        self._began = time.monotonic()
        self._kept = bytearray()
        self._released = False
        self._lock = threading.Lock()
        reading, writing = os.pipe()
        self._reader = threading.Thread(target=self._read, args=[reading], name=check.name, daemon=True)
        self._process = subprocess.Popen(
            check.command,
            cwd=folder,
            env=os.environ | dict(check.env),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
        )
        try:
            os.close(writing)
            self._reader.start()
        except BaseException:
            # Interrupted before anybody knows of it: it must not outlive us.
            self.interrupt()
            self.stop()
            raise

    def _read(self, pipe: int) -> None:
        while chunk := os.read(pipe, _CHUNK):
            with self._lock:
                if self._released:
                    _print(chunk)
                else:
                    self._kept += chunk
        os.close(pipe)

    def release(self) -> None:
        """Print what was kept back, and from now on whatever comes as it comes."""
        with self._lock:
            self._released = True
            _print(bytes(self._kept))
            self._kept.clear()

    def wait(self) -> bool:
        """Wait for the end; whether it ended well."""
        code = self._process.wait()
        # Something that outlives the check may hold the pipe open; what the check wrote itself has arrived by then.
        self._reader.join(timeout=2)
        return code == 0

    def interrupt(self) -> None:
        """Have it end and clean up, if it still runs."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """Wait for the end of what was interrupted; kill it where that takes too long."""
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._reader.is_alive():
            self._reader.join(timeout=2)  # what it said while it cleaned up

    def heading(self, *, ok: bool) -> None:
        """Print how it went."""
        took = seconds(time.monotonic() - self._began)
        console.line(f"{self.check.name}: {'ok' if ok else 'FAILED'}, {took}", style="green" if ok else "bold red")


def _print(chunk: bytes) -> None:
    console.stdout().file.flush()
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
