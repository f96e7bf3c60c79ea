"""Checks of a cloud before a stack is created in it: their rows, and the record of the last run."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

TAKEN = "taken: "
"""The beginning of the answer that resources with names of the stack exist."""


class CloudCheckError(RuntimeError):
    """Nothing could be asked, why, and what to do."""


class CloudOutcome(str, Enum):
    """The outcome of a check."""

    OK = "ok"
    WRONG = "wrong"
    """`up` would fail, or create something that does not work."""
    NOT_ASKED = "could not ask"
    """The cloud refused the question or did not answer. This is not a failure of the stack."""


@dataclass(frozen=True, kw_only=True)
class CloudRow:
    """A check of the cloud with its outcome."""

    id: str
    """The kind of check, for programs: in kebab-case."""
    asked: str
    """The question, as a noun: `machine type c2-standard-8 in us-west4-a`."""
    seen: str
    """The answer in words, or the reason why there is none."""
    outcome: CloudOutcome
    todo: str = ""
    """The one command or the one page that turns the row green; empty where it is."""
    assumptions: tuple[str, ...] = ()
    """The assumptions of docs/reference/assumptions.md that the answer settles."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """An answer as a check reads it."""

    text: str
    todo: str = ""
    """The action that turns the row green. A row with one is wrong."""
    unclear: bool = False
    """True if the answer does not settle the question, and a person has to compare."""

    @property
    def outcome(self) -> CloudOutcome:
        """The outcome of the check."""
        return CloudOutcome.NOT_ASKED if self.unclear else CloudOutcome.WRONG if self.todo else CloudOutcome.OK


@dataclass(frozen=True, kw_only=True)
class CloudCheck:
    """One check of a stack."""

    id: str
    asks: str
    """The question, as a noun."""
    requests: tuple[Any, ...]
    """Requests as the cloud's own program takes them. Equal ones are sent once."""
    read: Callable[..., Seen]
    """Reads the answers, in the order of the requests. It may raise AttributeError, LookupError, TypeError and
    ValueError for an answer of another form than the cloud documents."""
    assumptions: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class CloudReport:
    """The rows of one run."""

    date: str
    """Day and time of the run, UTC, ISO 8601."""
    request: str
    """Hash of what the stack asked its cloud for."""
    rows: Sequence[CloudRow]

    @property
    def ok(self) -> bool:
        """Whether no row is wrong."""
        return not self.of(CloudOutcome.WRONG)

    def of(self, outcome: CloudOutcome) -> list[CloudRow]:
        """Return the rows with that outcome."""
        return [row for row in self.rows if row.outcome is outcome]

    @property
    def summary(self) -> str:
        """The number of rows with each outcome: `12 ok, 1 wrong, 2 could not ask`."""
        return ", ".join(f"{len(self.of(outcome))} {outcome.value}" for outcome in CloudOutcome)

    def document(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        rows = [{**asdict(row), "outcome": row.outcome.value} for row in self.rows]
        return {"date": self.date, "ok": self.ok, "checks": rows}

    def without_names(self, nameless: Mapping[str, frozenset[str]]) -> dict[str, Any]:
        """Return the report for others, without names of the user's own.

        `nameless` has, for the fields `asked` and `seen`, the kinds of rows whose text goes in. The reason why a
        question has no answer never does, since it may be the cloud's own text.
        """
        rows = []
        for row in self.rows:
            texts = {"asked": row.asked, "seen": "" if row.outcome is CloudOutcome.NOT_ASKED else row.seen}
            public = {name: text for name, text in texts.items() if row.id in nameless[name]}
            report = "report this" in row.todo
            rows.append(
                {"id": row.id, "outcome": row.outcome.value, "report": report, **public, "assumptions": row.assumptions}
            )
        return {"date": self.date[:10], "checks": rows}

    def text(self) -> str:
        """Return the report as the state dir keeps it."""
        return json.dumps({**self.document(), "request": self.request}, indent=1) + "\n"


def read_report(text: str) -> CloudReport | None:
    """Return the report that the state dir keeps; None if the text is not one of this version."""
    try:
        document = json.loads(text)
        rows = [_row(row) for row in document["checks"]]
        return CloudReport(date=str(document["date"]), request=str(document["request"]), rows=rows)
    except (ValueError, KeyError, TypeError):
        return None


def _row(row: Mapping[str, Any]) -> CloudRow:
    texts = {key: str(row[key]) for key in ("id", "asked", "seen", "todo")}
    return CloudRow(**texts, outcome=CloudOutcome(row["outcome"]), assumptions=tuple(row["assumptions"]))
