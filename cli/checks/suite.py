"""Runs checks side by side, and prints them one after the other, the tests last."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli import console
from cli.display.changes import seconds
from cli.interrupts import held, unwound

_GRACE = 120.0
"""Seconds that an interrupted check has for cleaning up; end-to-end tests remove their machines in them."""
_POLL = 0.1


@dataclass(frozen=True, kw_only=True)
class Check:
    """One command, run in the project's folder."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of this process's."""


def run(folder: Path, checks: Sequence[Check], tests: Sequence[Check]) -> list[str]:
    """Run checks and tests side by side; the names of those that failed.

    A check is printed when it has ended, its output only if it failed. The tests' output comes last, one run after the
    other, so that it ends with pytest's own summary.
    """
    started: list[_Running] = []
    failed: list[str] = []
    with unwound():
        try:
            with held():
                started.extend(_Running(check, folder) for check in (*tests, *checks))
            for running in started[len(tests) :]:
                ok = running.wait()
                took = seconds(time.monotonic() - running.began)
                console.line(f"{running.name}: {'ok' if ok else 'FAILED'}, {took}", style="green" if ok else "bold red")
                if not ok:
                    running.show()
                    failed.append(running.name)
            for running in started[: len(tests)]:
                console.line(f"{running.name}:", style="bold")
                if not running.show():
                    failed.append(running.name)
        except BaseException:
            for running in started:
                running.interrupt()
            for running in started:
                running.stop()
            raise
        finally:
            for running in started:
                running.output.close()
    return failed


class _Running:
    """A check at work, with both its outputs in one file and nothing on its standard input."""

    def __init__(self, check: Check, folder: Path) -> None:
        self.name, self.began = check.name, time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the suite
        self._showing, self._shown = False, 0
        env = os.environ | dict(check.env)
        self._process = subprocess.Popen(
            check.command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output
        )

    def wait(self) -> bool:
        """Wait for the end; whether it ended well."""
        return self._process.wait() == 0

    def show(self) -> bool:
        """Print what it has printed and, until its end, what it prints; whether it ended well."""
        self._showing, ended = True, False
        while not ended:
            ended = self._process.poll() is not None
            if not self._print() and not ended:
                time.sleep(_POLL)
        return self.wait()

    def interrupt(self) -> None:
        """Have it end and clean up, if it still runs."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """Wait for the end of what was interrupted, and print the rest of it if it is shown; kill it where that takes
        too long."""
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._showing:
            self._print()

    def _print(self) -> bool:
        chunk = os.pread(self.output.fileno(), 1 << 30, self._shown)
        self._shown += len(chunk)
        console.stdout().file.flush()
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return bool(chunk)
