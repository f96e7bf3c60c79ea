"""Lines in a pipe: each step as it ends, what it logs, and a sign of life from a step that takes long."""

import threading
from types import TracebackType

from typing_extensions import Self

from cli import console
from cli.display.changes import Line
from cli.display.ops import op
from cli.display.summary import seconds
from cli.display.view import Lines
from engine.events import Event, Result

_SILENCE = 10.0
"""Seconds without a line after which the steps at work are named."""


class PlainView(Lines):
    """A view for pipes and files."""

    def __init__(self, silence: float = _SILENCE) -> None:
        super().__init__()
        self._silence = silence
        self._spoken = threading.Event()
        self._ended = False
        self._watch = threading.Thread(target=self._sign_of_life, name="display", daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._spoken.set()
        self._watch.join()

    def on_event(self, event: Event) -> None:
        """Print the event's lines."""
        with self.lock:
            self._print(self.event_lines(event))

    def close(self, result: Result) -> None:
        """Print how the run ended."""
        with self.lock:
            self._print(self.result_lines(result))

    def failed(self, message: str) -> None:
        """Say it on standard error."""
        console.error(message)

    def _print(self, lines: list[Line]) -> None:
        for text, style in lines:
            console.line(text, style=style)
        if lines:
            console.stdout().file.flush()
            self._spoken.set()

    def _sign_of_life(self) -> None:
        while not self._ended:
            if self._spoken.wait(self._silence):
                self._spoken.clear()
                continue
            with self.lock:
                for row in self.model.running.values():
                    latest = f": {row.log[-1]}" if row.log else ""
                    text = f"  {op(row.op).doing} {row.name}, {seconds(self.model.elapsed(row))} so far{latest}"
                    console.line(text, style="dim")
                console.stdout().file.flush()
