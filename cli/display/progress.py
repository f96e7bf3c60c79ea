"""One line that says what a command waits for; in a pipe, a line for each change that lasts."""

import time
from types import TracebackType

from rich.status import Status
from typing_extensions import Self

from cli import console
from cluster.printable import one_line

_PIPE_SECONDS = 5.0
"""Between two lines in a pipe."""


class Progress:
    """Shows on standard error what is done now."""

    def __init__(self, *, quiet: bool = False) -> None:
        """`quiet`: show nothing but on a terminal."""
        self._quiet, self._began, self._last = quiet, time.monotonic(), 0.0
        self._status: Status | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._began

    def show(self, text: str) -> None:
        """Replace the line."""
        text = one_line(text)
        if self._status:
            self._status.update(f"{text} ({self.elapsed:.0f} s)")
        elif not self._quiet and self.elapsed - self._last > _PIPE_SECONDS:
            self._last = self.elapsed
            console.note(text)

    def __enter__(self) -> Self:
        if console.stderr().is_terminal:
            self._status = console.stderr().status("")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status:
            self._status.stop()
