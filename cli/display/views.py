"""The views of a run: live on a terminal, plain lines in a pipe, one JSON document for programs."""

import sys
import threading
from dataclasses import asdict
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text
from typing_extensions import Self

from cli import console
from cli.display.changes import Line, op, seconds
from cli.display.view import View
from engine.events import Event, Log, Planned, Result, Started

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


class DocumentView(View):
    """One JSON document for programs, printed at the end, the same whichever engine runs. Keys:

    stack, kind, ok, seconds, counts {op: number}, steps [{urn, type, name, op, reason, changes [{path, kind, old, new,
    replaces}], inputs (in a preview, of what is to be created)}], failures [{urn, op, message}], messages [{severity,
    message, urn}], outputs (of `up`), effects (of `preview` and `up`, where it is known what the cluster runs with:
    {worst, sentence, fields [{path, old, new, effect, reason, command}]}; effects in order of harm are nothing,
    reconfigure, restart, drain, replace, refused), rehearsal (of `rehearse`: {of, file, differences [{file, line, name,
    production, here, why, text}], stood_in [text]}), error (a text, where there is no result), errors [{id, where,
    given, allowed, todo}] and unchecked [place] (of a stack file with errors, beside stack, kind, ok and error).
    Secrets are "[secret]", what is not yet known is "[unknown]".
    """

    def __init__(self) -> None:
        super().__init__()
        self._document: dict[str, Any] = {}
        self._messages: list[dict[str, Any]] = []

    def on_event(self, event: Event) -> None:
        """Keep what the document will hold."""
        with self.lock:
            if isinstance(event, Started):
                self._document |= {"stack": event.stack, "kind": event.kind}
            elif isinstance(event, Log) and not event.ephemeral and event.severity != "debug":
                self._messages.append({"severity": event.severity, "message": event.message, "urn": event.urn})

    def close(self, result: Result) -> None:
        """Print the document."""
        self._document |= {
            "kind": result.kind,
            "ok": result.ok,
            "seconds": round(result.seconds, 3),
            "counts": result.counts,
            "steps": [_step(plan) for plan in result.changes if plan.op != "same"],
            "failures": [asdict(failure) for failure in result.failures],
        }
        if result.kind == "up":
            self._document["outputs"] = result.outputs
        self._print()

    def failed(self, message: str) -> None:
        """Print the document with the error, which also goes to standard error."""
        self._document |= {"ok": False, "error": message}
        self._print()
        super().failed(message)

    def _print(self) -> None:
        document = self._document | {"messages": self._messages}
        if self.effects:
            document["effects"] = self.effects.document()
        document |= self.more
        console.json(document)


def _step(plan: Planned) -> dict[str, Any]:
    row = asdict(plan)
    inputs = {"inputs": row["inputs"]} if plan.inputs else {}
    return {key: row[key] for key in ("urn", "type", "name", "op", "reason", "changes")} | inputs


def choose(*, json: bool) -> View:
    """The view for where standard output goes."""
    if json:
        return DocumentView()
    out = console.stdout()
    return LiveView() if out.is_terminal and not out.is_dumb_terminal else PlainView()
