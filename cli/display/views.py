"""The views of a run: live on a terminal, plain lines in a pipe, one JSON document for programs."""

import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text
from typing_extensions import Self

from cli import console
from cli.display import changes
from cli.display.changes import op, seconds, summary
from cli.stack.impact import Effects
from cluster.printable import printable
from engine import urn as urns
from engine.events import Event, Log, Planned, Result, Started, StepDone, StepFailed, StepStarted

_LOG_LINES = 15
"""Last lines of a step that are kept, to be shown if it fails."""
_WORTH_SAYING = 0.1
"""Seconds below which a step's duration is left out."""
_SCREEN = 20
"""Resources from which on failures are named once more at the end."""
_SEVERITIES = {"info": "dim", "warning": "yellow", "error": "bold red"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 8
_STEP = ("urn", "type", "name", "op", "reason", "changes", "inputs")
"""Keys of a step in a document; the inputs only where there are some."""
_SILENCE = 10.0
"""Seconds without a line after which the steps at work are named."""


@dataclass
class Row:
    """A resource in this run."""

    urn: str
    plan: Planned | None = None
    op: str = ""
    started: float | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=_LOG_LINES))

    @property
    def name(self) -> str:
        return urns.name_of(self.urn)

    @property
    def type(self) -> str:
        """The resource's type, without its parents'."""
        return urns.type_of(self.urn)

    @property
    def elapsed(self) -> str:
        """Time since its step began."""
        return seconds(time.monotonic() - self.started if self.started is not None else 0.0)


class View(ABC):
    """Shows one run: turns its events into lines of text, which each view prints its own way. Events may come from any
    thread."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        """By URN."""
        self.running: dict[str, Row] = {}
        """Rows that a provider is working on, oldest first."""
        self.done = 0
        self.skipped = 0
        self.lock = threading.RLock()
        self.stack = ""
        self.preview = False
        self.effects: Effects | None = None
        """The edit's effects on running jobs, where they are known and there are some."""
        self.more: Mapping[str, Any] = {}
        """Further keys of a JSON document."""
        self._warnings: list[changes.Line] = []
        """Warnings of a preview."""
        self.diff = False
        """True to show every property that changes, and all of what is created."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 - most views have nothing to end
        """End what shows the steps at work."""

    @abstractmethod
    def on_event(self, event: Event) -> None:
        """Take one event."""

    @abstractmethod
    def close(self, result: Result) -> None:
        """Show how the run ended."""

    def failed(self, message: str) -> None:
        """Show that the run ended without a result."""
        self.print(self._warnings)
        console.error(message)

    def print(self, lines: list[changes.Line]) -> None:
        for text, style in lines:
            console.line(text, style=style)

    def row(self, urn: str) -> Row:
        """The row of a URN, made when it first appears."""
        return self.rows.setdefault(urn, Row(urn))

    def event_lines(self, event: Event) -> list[changes.Line]:
        """Take an event into the rows; its lines."""
        self._apply(event)
        if isinstance(event, Started):
            self.stack, self.preview = event.stack, event.kind == "preview"
            doing = {"preview": "Previewing", "up": "Updating", "destroy": "Destroying", "refresh": "Refreshing"}
            return [(f"{doing[event.kind]} stack {event.stack}", "bold")]
        if isinstance(event, StepDone):
            return self._done(event)
        if isinstance(event, StepFailed):
            return self._failed(event)
        if isinstance(event, Log):
            return self._log(event)
        return []

    def result_lines(self, result: Result) -> list[changes.Line]:
        """The lines after the last event: a preview's tree, then the outputs, what failed, and the summary."""
        found: list[changes.Line] = []
        if result.kind == "preview":
            # The events, unlike the result, have the unchanged parents of what changes.
            tree = changes.tree((row.plan for row in self.rows.values() if row.plan), whole=self.diff)
            found += [*tree, *self._warnings]
        if result.kind == "up" and result.ok and result.outputs:
            given = sorted((key, value) for key, value in result.outputs.items() if value not in ("", [], {}))
            outputs = ((f"  {key}: {_short(value)}", "") for key, value in given)
            found += [("Outputs:", "bold"), *outputs]
        if len(self.rows) > _SCREEN:
            # Where they happened may have scrolled away.
            found += [
                (f"! {urns.name_of(failure.urn)}: {_short(failure.message)}", "red") for failure in result.failures
            ]
        text = summary(result, self.stack, done=self.done, skipped=self.skipped)
        found += [(line, "bold" if result.ok else "bold red") for line in text.splitlines()]
        if result.kind == "preview" and result.ok and self.effects:
            found += self.effects.lines(steps=any(op != "same" for op in result.counts))
        return found

    def _apply(self, event: Event) -> None:
        if isinstance(event, Planned):
            row = self.row(event.urn)
            row.plan, row.op = event, event.op
        elif isinstance(event, StepStarted):
            row = self.row(event.urn)
            row.op, row.started = event.op, time.monotonic()
            row.log.clear()
            self.running[event.urn] = row
        elif isinstance(event, (StepDone, StepFailed)):
            self.running.pop(event.urn, None)
            self.done += isinstance(event, StepDone)
            self.skipped += isinstance(event, StepFailed) and event.op == "skip"
        elif isinstance(event, Log) and event.urn:
            self.row(event.urn).log.extend(printable(event.message).splitlines()[-_LOG_LINES:])

    def _done(self, event: StepDone) -> list[changes.Line]:
        if event.op == "same" or self.preview:
            return []
        row = self.row(event.urn)
        took = f"  {seconds(event.seconds)}" if event.seconds >= _WORTH_SAYING else ""
        found = [(f"{_label(row, event.op, op(event.op).done)}{took}{_paths(row)}", op(event.op).style)]
        shown = self.diff and row.plan and event.op in ("update", "replace", "refresh")
        for change in row.plan.changes if shown and row.plan else ():
            found += [(f"    {text}", style) for text, style in changes.lines(change)]
        return found

    def _failed(self, event: StepFailed) -> list[changes.Line]:
        row = self.row(event.urn)
        if event.op == "skip":
            return [(f"{_label(row, 'skip', 'skipped')}: {event.message}", "dim")]
        title = f"! {op(event.op).doing} failed: {row.name}  {row.type}"
        body = [(f"    {text}", "red") for text in event.message.rstrip().splitlines()]
        said = [line for line in row.log if line.strip() and line not in event.message]
        log = [("    its last lines:", "dim"), *((f"      {line}", "dim") for line in said)] if said else []
        return [(title, "bold red"), *body, *log]

    def _log(self, event: Log) -> list[changes.Line]:
        style = _SEVERITIES.get(event.severity)
        if style is None or event.ephemeral or not event.message.strip():
            return []
        who = f"{self.row(event.urn).name}: " if event.urn else ""
        kind = f"{event.severity}: " if event.severity != "info" else ""
        found = [(f"  {who}{kind}{text}", style) for text in event.message.rstrip().splitlines()]
        if self.preview and event.severity == "warning":
            # Below the tree, which may be long.
            self._warnings += found
            return []
        return found


def _label(row: Row, name: str, verb: str) -> str:
    return f"{op(name).symbol} {verb:<9} {row.name}  {row.type}"


def _paths(row: Row) -> str:
    """The properties of an update, in brackets."""
    if row.plan is None or row.plan.op not in ("update", "replace") or not row.plan.changes:
        return ""
    paths = [change.path for change in row.plan.changes]
    more = f", {len(paths) - 4} more" if len(paths) > 4 else ""
    return f"  ({', '.join(paths[:4])}{more})"


def _short(value: Any) -> str:  # noqa: ANN401 - an output may be anything
    if isinstance(value, dict) and value:
        # A table of machines is for `./hpc outputs`; here its names will do.
        value = f"{len(value)} ({', '.join(sorted(map(str, value)))})"
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    first, newline, _ = text.partition("\n")
    return first if not newline and len(first) <= 100 else f"{first[:97]}..."


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
        self._began = time.monotonic()
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
                at_work = isinstance(event, Log) and event.severity == "info" and event.urn in self.running
            # Of what a step logs, the latest line stands beside it; all of them would drown the steps.
            self.print([] if at_work else lines)

    def close(self, result: Result) -> None:
        self._live.stop()
        self.print(self.result_lines(result))

    def failed(self, message: str) -> None:
        self._live.stop()
        super().failed(message)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lower part: one line for each step at work, as many as the screen holds, and one for the whole."""
        with self.lock:
            now = time.monotonic()
            running = list(self.running.values())
            room = max(1, options.max_width - 1), max(1, console.height - 3)
            for row in running[: room[1]]:
                shown = op(row.op)
                text = Text(f"{shown.symbol} {shown.doing:<9} {row.name}", style=shown.style, no_wrap=True)
                text.append(f"  {row.type}  {row.elapsed}", style="dim")
                if row.log:
                    text.append(f"  {row.log[-1].strip()}", style="dim italic")
                text.truncate(room[0], overflow="ellipsis")
                yield text
            hidden = len(running) - room[1]
            spin = _SPINNER[int(now * _FRAMES_PER_SECOND) % len(_SPINNER)]
            whole = f"{spin} {seconds(now - self._began)}, {self.done} done, {len(running)} at work"
            whole += f" ({hidden} not shown)" if hidden > 0 else ""
            yield Text(whole, style="bold", no_wrap=True)


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
        with self.lock:
            self.print(self.event_lines(event))

    def close(self, result: Result) -> None:
        with self.lock:
            self.print(self.result_lines(result))

    def print(self, lines: list[changes.Line]) -> None:
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
                for row in self.running.values():
                    latest = f": {row.log[-1]}" if row.log else ""
                    text = f"  {op(row.op).doing} {row.name}, {row.elapsed} so far{latest}"
                    console.line(text, style="dim")
                console.stdout().file.flush()


class DocumentView(View):
    """Prints a JSON document for programs at the end, the same whichever engine runs. Keys:

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
        with self.lock:
            if isinstance(event, Started):
                self._document |= {"stack": event.stack, "kind": event.kind}
            elif isinstance(event, Log) and not event.ephemeral and event.severity != "debug":
                self._messages.append({"severity": event.severity, "message": event.message, "urn": event.urn})

    def close(self, result: Result) -> None:
        steps = [asdict(plan) for plan in result.changes if plan.op != "same"]
        steps = [{key: step[key] for key in _STEP if key != "inputs" or step[key]} for step in steps]
        self._document |= {
            "kind": result.kind,
            "ok": result.ok,
            "seconds": round(result.seconds, 3),
            "counts": result.counts,
            "steps": steps,
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


def choose(*, json: bool) -> View:
    """The view for where standard output goes."""
    if json:
        return DocumentView()
    out = console.stdout()
    return LiveView() if out.is_terminal and not out.is_dumb_terminal else PlainView()
