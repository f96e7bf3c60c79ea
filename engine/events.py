"""Events of a run. The engine prints nothing: its caller renders these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from engine.errors import EngineError

Kind = Literal["preview", "up", "destroy", "refresh"]
SECRET = "[secret]"  # noqa: S105 - what is shown instead of one
UNKNOWN = "[unknown]"


@dataclass(frozen=True)
class Change:
    """A property that differs. `path` is dotted, secrets are shown as "[secret]", what is not yet known as "[unknown]".
    `replaces` says that this change alone forces a replacement."""

    path: str
    kind: Literal["add", "delete", "update"]
    old: Any = None
    new: Any = None
    replaces: bool = False


@dataclass(frozen=True)
class Started:
    """The stack is locked, its state is read, the run begins."""

    kind: Kind
    stack: str
    project: str


@dataclass(frozen=True)
class Planned:
    """The plan for one resource. `op` is same, create, update, replace, delete, read or refresh; `reason` is a few
    words on why, if that is not plain from `changes`."""

    urn: str
    type: str
    name: str
    parent: str
    op: str
    changes: tuple[Change, ...] = ()
    reason: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The inputs of a resource to be created, in a preview, shown as in `Change`."""


@dataclass(frozen=True)
class StepStarted:
    """A provider is at work. `op` is one of Planned's, or `delete-replaced` for what a replacement left over."""

    urn: str
    op: str


@dataclass(frozen=True)
class StepDone:
    """The step ended well, after `seconds`."""

    urn: str
    op: str
    seconds: float


@dataclass(frozen=True)
class StepFailed:
    """The step failed; `op` is `skip` for a resource left alone because something that it needs had failed."""

    urn: str
    op: str
    message: str


@dataclass(frozen=True)
class Log:
    """A line from the program, a provider or the engine. severity: info, warning or error (debug lines, of which the
    SDK has hundreds, are not passed on). An ephemeral
    line is progress, worth showing only while it is the latest."""

    severity: str
    message: str
    urn: str | None = None
    ephemeral: bool = False


@dataclass(frozen=True)
class Result:
    """The result of a run. `ok` is False if a step failed or the run was interrupted; the state is kept in any case and
    the next run goes on from there. `counts` maps op to number of resources, `outputs` are the stack's, `foreign` are
    the types that the engine can preview but not run. `interrupted` says that the user stopped it."""

    kind: Kind
    ok: bool
    counts: dict[str, int] = field(default_factory=dict)
    changes: tuple[Planned, ...] = ()
    failures: tuple[StepFailed, ...] = ()
    outputs: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    summary: str = ""
    foreign: tuple[str, ...] = ()
    interrupted: bool = False

    def check(self) -> "Result":
        """Return itself if all went well. Raises UpdateError otherwise."""
        if not self.ok:
            raise UpdateError(self)
        return self


class UpdateError(EngineError):
    """Raised by `Result.check()` if a step failed or the run was interrupted."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.summary)
        self.result = result


class ProgramError(EngineError):
    """The program could not be run to its end. `result` is what was done before (None if nothing was)."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True)
class Finished:
    """The last event of each run."""

    result: Result


Event: TypeAlias = Started | Planned | StepStarted | StepDone | StepFailed | Log | Finished
