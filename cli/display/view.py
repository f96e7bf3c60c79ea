"""What all views share: the lines for each event. How they are printed is up to each view."""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import Self

from cli import console
from cli.display import changes
from cli.display.changes import op, seconds, summary
from cli.stack.impact import Effects
from cluster.printable import printable
from engine import urn as urns
from engine.events import Event, Log, Planned, Result, Started, StepDone, StepFailed, StepStarted

_LOG_LINES = 15
"""How many of a step's last lines are kept, to be shown if it fails."""


@dataclass
class Row:
    """One resource in this run."""

    urn: str
    plan: Planned | None = None
    op: str = ""
    started: float | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=_LOG_LINES))

    @property
    def name(self) -> str:
        """The resource's name."""
        return urns.name_of(self.urn)

    @property
    def type(self) -> str:
        """The resource's type, without its parents'."""
        return urns.type_of(self.urn)


class Model:
    """The rows by URN, and which of them a provider is working on, oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.rows: dict[str, Row] = {}
        self.running: dict[str, Row] = {}
        self.done = 0
        self.skipped = 0

    def row(self, urn: str) -> Row:
        """The row of a URN, made when it first appears."""
        return self.rows.setdefault(urn, Row(urn))

    def apply(self, event: Event) -> None:
        """Take one event in."""
        if isinstance(event, Planned):
            row = self.row(event.urn)
            row.plan, row.op = event, event.op
        elif isinstance(event, StepStarted):
            row = self.row(event.urn)
            row.op, row.started = event.op, self.clock()
            row.log.clear()
            self.running[event.urn] = row
        elif isinstance(event, (StepDone, StepFailed)):
            self.running.pop(event.urn, None)
            self.done += isinstance(event, StepDone)
            self.skipped += isinstance(event, StepFailed) and event.op == "skip"
        elif isinstance(event, Log) and event.urn:
            self.row(event.urn).log.extend(printable(event.message).splitlines()[-_LOG_LINES:])

    def elapsed(self, row: Row) -> float:
        """Seconds since the row's step began."""
        return self.clock() - row.started if row.started is not None else 0.0


_WORTH_SAYING = 0.1
"""Seconds below which a step's duration is left out."""
_SCREEN = 20
"""Resources from which on failures are named once more at the end."""
_SEVERITIES = {"info": "dim", "warning": "yellow", "error": "bold red"}


class View(ABC):
    """Shows one run: turns its events into lines of text, and keeps the model. Events may come from any thread."""

    def __init__(self) -> None:
        self.model = Model()
        self.lock = threading.RLock()
        self.stack = ""
        self.preview = False
        self.effects: Effects | None = None
        """What the edit does to running jobs, where that is known and there is something to say of it."""
        self.more: Mapping[str, Any] = {}
        """Further keys of a JSON document."""
        self._warnings: list[changes.Line] = []
        """Of a preview."""
        self.diff = False
        """Whether to show every property that changes, and all of what is created."""

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
        """Print lines."""
        for text, style in lines:
            console.line(text, style=style)

    def event_lines(self, event: Event) -> list[changes.Line]:
        """The lines for one event, after it went into the model."""
        self.model.apply(event)
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
            tree = changes.tree((row.plan for row in self.model.rows.values() if row.plan), whole=self.diff)
            found += [*tree, *self._warnings]
        if result.kind == "up" and result.ok and result.outputs:
            given = sorted((key, value) for key, value in result.outputs.items() if value not in ("", [], {}))
            outputs = ((f"  {key}: {_short(value)}", "") for key, value in given)
            found += [("Outputs:", "bold"), *outputs]
        if len(self.model.rows) > _SCREEN:
            # Where they happened may have scrolled away.
            found += [
                (f"! {urns.name_of(failure.urn)}: {_short(failure.message)}", "red") for failure in result.failures
            ]
        text = summary(result, self.stack, done=self.model.done, skipped=self.model.skipped)
        found += [(line, "bold" if result.ok else "bold red") for line in text.splitlines()]
        if result.kind == "preview" and result.ok and self.effects:
            found += self.effects.lines(steps=any(op != "same" for op in result.counts))
        return found

    def _done(self, event: StepDone) -> list[changes.Line]:
        if event.op == "same" or self.preview:
            return []
        row = self.model.row(event.urn)
        took = f"  {seconds(event.seconds)}" if event.seconds >= _WORTH_SAYING else ""
        found = [(f"{_label(row, event.op, op(event.op).done)}{took}{_paths(row)}", op(event.op).style)]
        shown = self.diff and row.plan and event.op in ("update", "replace", "refresh")
        for change in row.plan.changes if shown and row.plan else ():
            found += [(f"    {text}", style) for text, style in changes.lines(change)]
        return found

    def _failed(self, event: StepFailed) -> list[changes.Line]:
        row = self.model.row(event.urn)
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
        who = f"{self.model.row(event.urn).name}: " if event.urn else ""
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
    """Which properties an update was about."""
    if row.plan is None or row.plan.op not in ("update", "replace") or not row.plan.changes:
        return ""
    paths = [change.path for change in row.plan.changes]
    more = f", {len(paths) - 4} more" if len(paths) > 4 else ""
    return f"  ({', '.join(paths[:4])}{more})"


def _short(value: Any) -> str:  # noqa: ANN401 - an output may be anything
    if isinstance(value, dict) and value:
        # A table of machines is for `./hpc outputs`; here its names will do.
        value = f"{len(value)} ({', '.join(sorted(map(str, value)))})"
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    first, newline, _ = text.partition("\n")
    return first if not newline and len(first) <= 100 else f"{first[:97]}..."
