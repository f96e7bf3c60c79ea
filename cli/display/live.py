"""The view on a terminal: lines of ended steps scroll by above, the steps at work are shown below."""

import sys
import threading

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text
from typing_extensions import Self

from cli import console
from cli.display.summary import op, seconds
from cli.display.view import View
from engine.events import Event, Log, Result

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 8


class LiveView(View):
    """A view for terminals."""

    def __init__(self) -> None:
        super().__init__()
        # What is written to standard error goes above the lower part, but where it is no terminal.
        self._live = Live(
            self,
            console=console.stdout(),
            refresh_per_second=_FRAMES_PER_SECOND,
            transient=True,
            redirect_stderr=sys.stderr.isatty(),
        )
        self._began = self.model.clock()
        # rich draws from a thread of its own, holding its lock while it asks for our lines; so `lock` must be free
        # whenever we print. This one keeps the printed lines in order and is never taken while drawing.
        self._order = threading.RLock()  # reentrant: the signal handler of Ctrl-C prints too

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        """Print what ended, and let the lower part show the rest."""
        with self._order:
            with self.lock:
                lines = self.event_lines(event)
                at_work = isinstance(event, Log) and event.severity == "info" and event.urn in self.model.running
            # Of what a step logs, the latest line stands beside it; all of them would drown the steps.
            self.print([] if at_work else lines)

    def close(self, result: Result) -> None:
        """Print how the run ended, below everything."""
        self._live.stop()
        self.print(self.result_lines(result))

    def failed(self, message: str) -> None:
        """Print the error, below everything."""
        self._live.stop()
        super().failed(message)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lower part: one line for each step at work, as many as the screen holds, and one for the whole."""
        with self.lock:
            now = self.model.clock()
            running = list(self.model.running.values())
            room = max(1, options.max_width - 1), max(1, console.height - 3)
            for row in running[: room[1]]:
                shown = op(row.op)
                text = Text(f"{shown.symbol} {shown.doing:<9} {row.name}", style=shown.style, no_wrap=True)
                text.append(f"  {row.type}  {seconds(self.model.elapsed(row))}", style="dim")
                if row.log:
                    text.append(f"  {row.log[-1].strip()}", style="dim italic")
                text.truncate(room[0], overflow="ellipsis")
                yield text
            hidden = len(running) - room[1]
            spin = _SPINNER[int(now * _FRAMES_PER_SECOND) % len(_SPINNER)]
            whole = f"{spin} {seconds(now - self._began)}, {self.model.done} done, {len(running)} at work"
            whole += f" ({hidden} not shown)" if hidden > 0 else ""
            yield Text(whole, style="bold", no_wrap=True)
