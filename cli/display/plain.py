"""The view in a pipe: each step as it ends, what it logs, and now and then the steps that still run."""

import threading

from typing_extensions import Self

from cli import console
from cli.display.changes import Line
from cli.display.summary import op, seconds
from cli.display.view import View
from engine.events import Event, Result

_SILENCE = 10.0
"""Seconds without a line after which the steps at work are named."""


class PlainView(View):
    """A view for pipes and files."""

    def __init__(self, silence: float = _SILENCE) -> None:
        super().__init__()
        self._silence = silence
        self._printed = threading.Event()
        self._ended = False
        self._watch = threading.Thread(target=self._name_running, name="display", daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._printed.set()
        self._watch.join()

    def on_event(self, event: Event) -> None:
        """Print the event's lines."""
        with self.lock:
            self.print(self.event_lines(event))

    def close(self, result: Result) -> None:
        """Print how the run ended."""
        with self.lock:
            self.print(self.result_lines(result))

    def print(self, lines: list[Line]) -> None:
        """Print lines, also into a buffered pipe, and remember that there were some."""
        super().print(lines)
        if lines:
            console.stdout().file.flush()
            self._printed.set()

    def _name_running(self) -> None:
        while not self._ended:
            if self._printed.wait(self._silence):
                self._printed.clear()
                continue
            with self.lock:
                for row in self.model.running.values():
                    latest = f": {row.log[-1]}" if row.log else ""
                    text = f"  {op(row.op).doing} {row.name}, {seconds(self.model.elapsed(row))} so far{latest}"
                    console.line(text, style="dim")
                console.stdout().file.flush()
