"""Places of their own for tests that make real machines, beside whatever else runs on this host."""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from cli.commands.test import PLACE
from components.local.host import network
from components.local.host.machine import running
from components.local.host.namespaces import inside
from components.local.host.paths import MachinePaths

LINES = 30
"""Of each log of a failed test."""


def own_root(kind: str) -> AbstractContextManager[Path]:
    """A root for stacks; all that killed test runs left of theirs is removed first, and all of this at the end."""
    return network.own_root(PLACE, kind)


def add_logs(report: pytest.TestReport) -> None:
    """Add the ends of all logs that this process's machines have written since a failed test began."""
    if report.failed and report.when != "teardown":
        for name, text in _logs(time.time() - report.duration - 1):
            report.sections.append((name, text))


def _logs(since: float) -> Iterator[tuple[str, str]]:
    for folder in sorted(PLACE.glob(f"*-{os.getpid()}/stacks/*/machines/*/")):
        paths = MachinePaths(folder)
        for log in (paths.console, *sorted(paths.upper.glob("var/log/**/*.log"))):
            with suppress(OSError):
                if log.is_file() and log.stat().st_mtime >= since:
                    lines = log.read_text(errors="replace").splitlines()
                    yield f"{folder.name}: {log.name}", "\n".join(lines[-LINES:])
        with suppress(RuntimeError, OSError, IndexError):
            if running(paths):
                journal = f"timeout 20 journalctl --no-pager --output=short-iso --lines={LINES} --since=@{since:.0f}"
                yield f"{folder.name}: journal", inside(paths, journal, check=False)
