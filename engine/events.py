"""Events of a run. The engine prints nothing: its caller renders these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from engine.errors import EngineError

Kind = Literal["preview", "up", "destroy", "refresh"]
SECRET = "[secret]"  # noqa: S105 - shown in place of a secret
UNKNOWN = "[unknown]"


@dataclass(frozen=True)
class Change:
    """A property that differs. `path` is dotted; secrets are "[secret]" and values that are not known yet "[unknown]".
    `replaces` is True if this change alone forces a replacement."""

    path: str
    kind: Literal["add", "delete", "update"]
    old: Any = None
    new: Any = None
    replaces: bool = False


@dataclass(frozen=True)
class Started:
    """The stack is locked, its state is read, and the run begins."""

    kind: Kind
    stack: str
    project: str


@dataclass(frozen=True)
class Planned:
    """The plan for one resource. `op` is same, create, update, replace, delete, read or refresh. `reason` says why in
    a few words, where `changes` does not."""

    urn: str
    type: str
    name: str
    parent: str
    op: str
    changes: tuple[Change, ...] = ()
    reason: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """In a preview, the inputs of a resource that is to be created, with secrets and unknowns as in `Change`."""


@dataclass(frozen=True)
class StepStarted:
    """A provider began a step. `op` is one of Planned's, or `delete-replaced` for a resource that was replaced."""

    urn: str
    op: str


@dataclass(frozen=True)
class StepDone:
    """The step succeeded, after `seconds`."""

    urn: str
    op: str
    seconds: float


@dataclass(frozen=True)
class StepFailed:
    """The step failed. `op` is `skip` for a resource that was skipped because a resource that it needs had failed."""

    urn: str
    op: str
    message: str


@dataclass(frozen=True)
class LogLine:
    """A line from the program, a provider or the engine. `severity` is info, warning or error: debug lines, of which
    the SDK writes hundreds, are not passed on. An ephemeral line is progress, to be shown only while it is the latest.
    """

    severity: str
    message: str
    urn: str | None = None
    ephemeral: bool = False


@dataclass(frozen=True)
class Result:
    """The result of a run. `ok` is False if a step failed or the run was interrupted. The state is kept in any case,
    and the next run continues from it. `counts` maps op to number of resources, `outputs` are the stack's, `foreign`
    are the types that the engine can preview but not run. `interrupted` is True if the user stopped the run."""

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
    """The program could not be run to its end. `result` has the steps before that; None if there were none."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True)
class Finished:
    """The last event of each run."""

    result: Result


Event: TypeAlias = Started | Planned | StepStarted | StepDone | StepFailed | LogLine | Finished
