"""Views of a run: a live view for terminals, plain lines for pipes, one JSON document for programs."""

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
from cli.stack import outputs
from cli.stack.impact_of_edit import Effects
from cluster.printable import printable
from engine import urn as urns
from engine.events import Event, LogLine, Planned, Result, Started, StepDone, StepFailed, StepStarted

_LOG_LINES = 15
"""Number of a step's last log lines that are kept, to be shown if it fails."""
_SHORTEST_DURATION = 0.1
"""Seconds below which a step's duration is not shown."""
_SCREEN = 20
"""Number of resources above which failures are listed again at the end."""
_SEVERITIES = {"info": "dim", "warning": "yellow", "error": "bold red"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 8
_STEP = ("urn", "type", "name", "op", "reason", "changes", "inputs")
"""Keys of a step in a document; a step without inputs lacks that key."""
_SILENCE = 10.0
"""Seconds without output after which the running steps are listed."""


@dataclass
class ResourceRow:
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


class RunView(ABC):
    """Shows one run. It converts events to lines of text; subclasses print them. Events may come from any thread."""

    def __init__(self) -> None:
        self.rows: dict[str, ResourceRow] = {}
        """By URN."""
        self.running: dict[str, ResourceRow] = {}
        """Rows with a running step, oldest first."""
        self.done = 0
        self.skipped = 0
        self.lock = threading.RLock()
        self.stack = ""
        self.preview = False
        self.effects: Effects | None = None
        """The edit's effects on running jobs; None if they are not known."""
        self.more: Mapping[str, Any] = {}
        """Further keys of a JSON document."""
        self._warnings: list[changes.Line] = []
        """Warnings of a preview."""
        self.diff = False
        """True to show every property that changes, and all of what is created."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 - most views have nothing to end
        """Stop showing the running steps."""

    @abstractmethod
    def on_event(self, event: Event) -> None:
        """Show one event."""

    @abstractmethod
    def close(self, result: Result) -> None:
        """Show the result of the run."""

    def fail(self, message: str) -> None:
        """Show the error of a run that ended without a result."""
        self.print(self._warnings)
        console.error(message)

    def print(self, lines: list[changes.Line]) -> None:
        for text, style in lines:
            console.line(text, style=style)

    def row(self, urn: str) -> ResourceRow:
        """Return the row of a URN, which is created at the first call."""
        return self.rows.setdefault(urn, ResourceRow(urn))

    def event_lines(self, event: Event) -> list[changes.Line]:
        """Update the rows by an event, and return its lines."""
        self._update_rows(event)
        if isinstance(event, Started):
            self.stack, self.preview = event.stack, event.kind == "preview"
            verbs = {"preview": "Previewing", "up": "Updating", "destroy": "Destroying", "refresh": "Refreshing"}
            return [(f"{verbs[event.kind]} stack {event.stack}", "bold")]
        if isinstance(event, StepDone):
            return self._done_lines(event)
        if isinstance(event, StepFailed):
            return self._failed_lines(event)
        if isinstance(event, LogLine):
            return self._log_lines(event)
        return []

    def result_lines(self, result: Result) -> list[changes.Line]:
        """Return the lines after the last event: a preview's tree, then the outputs, the failures and the summary."""
        lines: list[changes.Line] = []
        if result.kind == "preview":
            # The events, unlike the result, include the unchanged parents of resources that change.
            tree = changes.tree((row.plan for row in self.rows.values() if row.plan), with_inputs=self.diff)
            lines += [*tree, *self._warnings]
        if result.kind == "up" and result.ok:
            lines += output_lines(result.outputs)
        if len(self.rows) > _SCREEN:
            # The lines of the failures may have scrolled off the screen.
            lines += [
                (f"! {urns.name_of(failure.urn)}: {_short(failure.message)}", "red") for failure in result.failures
            ]
        text = summary(result, self.stack, done=self.done, skipped=self.skipped)
        lines += [(line, "bold" if result.ok else "bold red") for line in text.splitlines()]
        if result.kind == "preview" and result.ok and self.effects:
            lines += self.effects.lines(steps=any(op != "same" for op in result.counts))
        return lines

    def _update_rows(self, event: Event) -> None:
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
        elif isinstance(event, LogLine) and event.urn:
            self.row(event.urn).log.extend(printable(event.message).splitlines()[-_LOG_LINES:])

    def _done_lines(self, event: StepDone) -> list[changes.Line]:
        if event.op == "same" or self.preview:
            return []
        row = self.row(event.urn)
        took = f"  {seconds(event.seconds)}" if event.seconds >= _SHORTEST_DURATION else ""
        lines = [(f"{_label(row, event.op, op(event.op).past)}{took}{_paths(row)}", op(event.op).style)]
        if self.diff and row.plan and event.op in ("update", "replace", "refresh"):
            for change in row.plan.changes:
                lines += [(f"    {text}", style) for text, style in changes.change_lines(change)]
        return lines

    def _failed_lines(self, event: StepFailed) -> list[changes.Line]:
        row = self.row(event.urn)
        if event.op == "skip":
            return [(f"{_label(row, 'skip', 'skipped')}: {event.message}", "dim")]
        title = f"! {op(event.op).present} failed: {row.name}  {row.type}"
        body = [(f"    {text}", "red") for text in event.message.rstrip().splitlines()]
        logged = [line for line in row.log if line.strip() and line not in event.message]
        log = [("    its last lines:", "dim"), *((f"      {line}", "dim") for line in logged)] if logged else []
        return [(title, "bold red"), *body, *log]

    def _log_lines(self, event: LogLine) -> list[changes.Line]:
        style = _SEVERITIES.get(event.severity)
        if style is None or event.ephemeral or not event.message.strip():
            return []
        name = f"{self.row(event.urn).name}: " if event.urn else ""
        severity = f"{event.severity}: " if event.severity != "info" else ""
        lines = [(f"  {name}{severity}{text}", style) for text in event.message.rstrip().splitlines()]
        if self.preview and event.severity == "warning":
            # Warnings are shown below the tree, which may be long.
            self._warnings += lines
            return []
        return lines


def output_lines(values: Mapping[str, Any]) -> list[changes.Line]:
    """Return the outputs of a stack that are for people, each on one line; no lines if there are none."""
    shown = [(f"  {key}: {_short(value)}", "") for key, value in outputs.for_people(values).items()]
    return [("Outputs:", "bold"), *shown] if shown else []


def _label(row: ResourceRow, name: str, verb: str) -> str:
    return f"{op(name).symbol} {verb:<9} {row.name}  {row.type}"


def _paths(row: ResourceRow) -> str:
    """Return the paths of the properties that an update changes, in brackets."""
    if row.plan is None or row.plan.op not in ("update", "replace") or not row.plan.changes:
        return ""
    paths = [change.path for change in row.plan.changes]
    more = f", {len(paths) - 4} more" if len(paths) > 4 else ""
    return f"  ({', '.join(paths[:4])}{more})"


def _short(value: Any) -> str:  # noqa: ANN401 - an output may be anything
    if isinstance(value, dict) and value:
        # `./hpc outputs` shows a table of machines; the summary only has their names.
        value = f"{len(value)} ({', '.join(sorted(map(str, value)))})"
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    first, newline, _ = text.partition("\n")
    return first if not newline and len(first) <= 100 else f"{first[:97]}..."


class LiveView(RunView):
    """A view for terminals."""

    def __init__(self) -> None:
        super().__init__()
        # The lower part of the screen is redrawn; on a terminal standard error is printed above it.
        self._live = Live(
            self,
            console=console.stdout(),
            refresh_per_second=_FRAMES_PER_SECOND,
            transient=True,
            redirect_stderr=sys.stderr.isatty(),
        )
        self._began = time.monotonic()
        # rich draws in a thread of its own and holds its lock while it calls __rich_console__, which takes `lock`. So
        # nothing may print while it holds `lock`. This second lock keeps printed lines in order; no drawing takes it.
        self._order = threading.RLock()  # reentrant: the signal handler of Ctrl-C prints too

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        """Print the lines of an event. The log of a running step is not printed: the lower part has its last line."""
        with self._order:
            with self.lock:
                lines = self.event_lines(event)
                is_step_log = isinstance(event, LogLine) and event.severity == "info" and event.urn in self.running
            self.print([] if is_step_log else lines)

    def close(self, result: Result) -> None:
        self._live.stop()
        self.print(self.result_lines(result))

    def fail(self, message: str) -> None:
        self._live.stop()
        super().fail(message)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the lower part: a line for each running step, as many as the screen holds, and one for the whole run."""
        with self.lock:
            now = time.monotonic()
            running = list(self.running.values())
            width, height = max(1, options.max_width - 1), max(1, console.height - 3)
            for row in running[:height]:
                shown = op(row.op)
                text = Text(f"{shown.symbol} {shown.present:<9} {row.name}", style=shown.style, no_wrap=True)
                text.append(f"  {row.type}  {row.elapsed}", style="dim")
                if row.log:
                    text.append(f"  {row.log[-1].strip()}", style="dim italic")
                text.truncate(width, overflow="ellipsis")
                yield text
            hidden = len(running) - height
            spin = _SPINNER[int(now * _FRAMES_PER_SECOND) % len(_SPINNER)]
            whole = f"{spin} {seconds(now - self._began)}, {self.done} done, {len(running)} at work"
            whole += f" ({hidden} not shown)" if hidden > 0 else ""
            yield Text(whole, style="bold", no_wrap=True)


class PlainView(RunView):
    """A view for pipes and files."""

    def __init__(self, silence: float = _SILENCE) -> None:
        super().__init__()
        self._silence = silence
        self._printed = threading.Event()
        self._ended = False
        self._watch = threading.Thread(target=self._list_running, name="display", daemon=True)

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
        """Print lines and flush them, since a pipe is buffered."""
        super().print(lines)
        if lines:
            console.stdout().file.flush()
            self._printed.set()

    def _list_running(self) -> None:
        """List the running steps whenever nothing was printed for a while."""
        while not self._ended:
            if self._printed.wait(self._silence):
                self._printed.clear()
                continue
            with self.lock:
                for row in self.running.values():
                    latest = f": {row.log[-1]}" if row.log else ""
                    text = f"  {op(row.op).present} {row.name}, {row.elapsed} so far{latest}"
                    console.line(text, style="dim")
                console.stdout().file.flush()


class DocumentView(RunView):
    """Prints a JSON document for programs at the end, the same whichever engine runs. Keys:

    stack, kind, ok, seconds, counts {op: number}, steps [{urn, type, name, op, reason, changes [{path, kind, old, new,
    replaces}], inputs (in a preview, of what is to be created)}], failures [{urn, op, message}], messages [{severity,
    message, urn}], outputs (of `up`), effects (of `preview` and `up`, where it is known what the cluster runs with:
    {worst, sentence, fields [{path, old, new, effect, reason, command}]}; effects in order of harm are nothing,
    reconfigure, restart, drain, replace, refused), rehearsal (of `rehearse`: {of, file, differences [{file, line, name,
    production, here, why, text}], stood_in [text]}), error (a text, where there is no result), errors [{id, where,
    line, given, allowed, todo}] and unchecked [place] (of a stack file with errors, beside stack, kind, ok and error).
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
            elif isinstance(event, LogLine) and not event.ephemeral and event.severity != "debug":
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

    def fail(self, message: str) -> None:
        """Print the document with the error, which also goes to standard error."""
        self._document |= {"ok": False, "error": message}
        self._print()
        super().fail(message)

    def _print(self) -> None:
        document = self._document | {"messages": self._messages}
        if self.effects:
            document["effects"] = self.effects.document()
        document |= self.more
        console.json(document)


def choose_view(*, json: bool) -> RunView:
    """Return the view that fits standard output."""
    if json:
        return DocumentView()
    out = console.stdout()
    return LiveView() if out.is_terminal and not out.is_dumb_terminal else PlainView()
