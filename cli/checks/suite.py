"""Runs checks side by side with the tests, and prints them one after the other, the tests last."""

import threading
from collections.abc import Sequence
from pathlib import Path

from cli import console
from cli.checks.check import Check, Running
from cli.interrupts import held, unwound


class Suite:
    """One run of `./hpc test`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Running] = []
        self._failed: list[str] = []
        self._printing = threading.Lock()
        self._stopping = False

    def run(self, lanes: Sequence[Sequence[Check]], tests: Sequence[Check]) -> list[str]:
        """Run the checks of each lane in order, the lanes and the tests side by side; the names of those that failed.

        The tests' output comes last, one run after the other, so that it ends with pytest's own summary.
        """
        with unwound():
            threads = [threading.Thread(target=self._lane, args=[lane], daemon=True) for lane in lanes if lane]
            try:
                with held():
                    started = [self._start(check) for check in tests]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                for running in started:
                    self._tests(running)
            except BaseException:
                self._stopping = True
                for one in self._started:
                    one.interrupt()
                for one in self._started:
                    one.stop()
                raise
        return self._failed

    def _start(self, check: Check) -> Running:
        running = Running(check, self._folder)
        self._started.append(running)
        return running

    def _lane(self, lane: Sequence[Check]) -> None:
        for check in lane:
            if self._stopping:
                return
            running = self._start(check)
            ok = running.wait()
            with self._printing:
                running.heading(ok=ok)
                if not ok:
                    running.release()
                    self._failed.append(check.name)

    def _tests(self, running: Running) -> None:
        try:
            console.line(f"{running.check.name}:", style="bold")
        finally:
            running.release()  # also when interrupted here: what they say while they clean up follows their heading
        if not running.wait():
            self._failed.append(running.check.name)
