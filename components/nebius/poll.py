"""Deadline, pace and progress of waits."""

import time

from components.dynamic import report

PACE = 5.0
"""Seconds between two polls of an object of Nebius's API."""
REPEAT_SECONDS = 60
"""Seconds after which an unchanged state is reported again."""
_SLOWEST = 5.0
"""The most seconds between two attempts, if `pace` is less."""


class Poll:
    """Deadline, pace and progress of one wait."""

    def __init__(self, seconds: float, pace: float) -> None:
        self.seconds, self.pace = seconds, pace
        self._start = time.monotonic()
        self._reported, self._repeat_at = "", 0.0

    @property
    def passed(self) -> float:
        """Seconds since the start of the wait."""
        return time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds until the deadline, negative after it."""
        return self.seconds - self.passed

    def pause(self, state: str = "", line: str = "") -> None:
        """Report `line`, if `state` has changed or was reported a minute ago, and sleep until the next attempt."""
        now = time.monotonic()
        if line and (state != self._reported or now > self._repeat_at):
            self._reported, self._repeat_at = state, now + REPEAT_SECONDS
            report(line)
        # Each attempt is a process of kubectl: where the first ones follow each other closely, later ones do not.
        time.sleep(min(max(self.pace, min(self.passed / 10, _SLOWEST)), max(self.left, 0.01)))
