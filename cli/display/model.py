"""What the events said so far: one row per resource. Views render it; nothing here prints."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.printable import printable
from engine import urn as urns
from engine.events import Event, Log, Planned, StepDone, StepFailed, StepStarted

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
        """The row of a URN, made on first sight."""
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
