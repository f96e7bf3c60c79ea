"""`pytest --repeat N`: repeats tests that start a process, a thread or a wait, beside two busy loops.

Such a test can depend on an order that is not guaranteed, and is then red once in many runs. Which tests these are is
observed in their first run, so that none has to be marked.
"""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import pytest

EVENTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.connect", "subprocess.Popen"}
"""Audit events of Python whose tests are repeated (docs.python.org/3/library/audit_events.html). Starts of threads and
`time.sleep` have none in Python 3.10 and 3.11."""
LOOPS = 2
_LOOP = ("sh", "-c", "while :; do :; done")


class Repeated:
    """The plugin of one run."""

    def __init__(self, times: int) -> None:
        self._times, self._number = times, 1
        self._first = True
        self._starts: set[str] = set()
        """Ids of tests, and names of fixtures."""
        self._current: list[str] = []
        """The test that runs, and the fixtures that are being set up."""
        self._repeated = 0
        self._loops: list[subprocess.Popen[bytes]] = []

    def pytest_sessionstart(self) -> None:
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        self._loops = [subprocess.Popen([*guard, *_LOOP]) for _ in range(LOOPS)]
        sys.addaudithook(self._audit)
        threading.Thread.start = self._noting(threading.Thread.start)
        time.sleep = self._noting(time.sleep)

    def pytest_unconfigure(self) -> None:
        for loop in self._loops:
            loop.kill()
            loop.wait()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests of one file N times, then those of the next. All fixtures are made again each time."""
        if session.config.option.collectonly or session.testsfailed:
            return None
        for _, group in groupby(session.items, key=lambda item: item.path):
            items = list(group)
            self._first, self._number = True, 1
            self._run(session, items)
            self._first = False
            repeated = [item for item in items if self._starts & {item.nodeid, *getattr(item, "fixturenames", ())}]
            self._repeated += len(repeated)
            for number in range(2, self._times + 1):
                self._number = number
                self._run(session, repeated)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._within(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        with self._within(fixturedef.argname):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            report.sections.append(("repetition", f"{self._number} of {self._times}"))
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(
            f"{self._repeated} tests start a process, a thread or a wait: each ran {self._times} times beside {LOOPS} "
            "busy loops"
        )

    @staticmethod
    def _run(session: pytest.Session, items: list[pytest.Item]) -> None:
        for item, following in zip(items, [*items[1:], None], strict=False):  # there may be no items
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        self._current.append(name)
        try:
            yield
        finally:
            self._current.pop()

    def _audit(self, event: str, _arguments: object) -> None:
        if event in EVENTS:
            self._note()

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self._note()
            return function(*arguments, **named)

        return call

    def _note(self) -> None:
        if self._first:
            self._starts.update(self._current)
