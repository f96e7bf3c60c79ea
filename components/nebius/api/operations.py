"""Waits: for operations, until an object can be used, until it is gone. Every one has a deadline, and reports."""

import re
import time
from collections.abc import Callable
from typing import Any

from components.dynamic import report
from components.nebius.api import client
from components.nebius.api.errors import NOT_FOUND, NebiusError, explain, nebius_error
from components.nebius.api.kinds import Kind
from components.nebius.api.objects import failure, get, start_delete, state_of, title

PACE = 5.0
"""Seconds between polls."""
REPEAT_SECONDS = 60.0
"""After how long a progress is reported again of which only figures have changed, or nothing."""
_FIGURES = re.compile("[0-9]+")
UNREACHABLE = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", ""})
"""Statuses of a poll that are no answer: what is waited for goes on."""
UNREACHABLE_SECONDS = 300.0
"""For how long; the SDK may retry a credential that was withdrawn for as long as it is asked to."""


FRESH = frozenset({NOT_FOUND, "PERMISSION_DENIED"})
"""Statuses of a creation that pass where what it names was created a moment ago."""
IN_USE = frozenset({"bad_resource_state"})
"""Details of the error that something still uses what is to be deleted: machines detach a file system minutes later."""


class Wait:
    """A deadline, and what is reported until then."""

    def __init__(self, doing: str, seconds: float, pace: float | None = None) -> None:
        self.doing, self.seconds = doing, seconds
        self.pace = PACE if pace is None else pace
        self._start = time.monotonic()
        self._said, self._said_at = "", self._start
        self._lost: float | None = None

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._start

    def asked(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """What a poll returns, again and again while the API can't be reached, within UNREACHABLE_SECONDS."""
        while True:
            try:
                answer = call()
            except NebiusError as error:
                now = time.monotonic()
                self._lost = now if self._lost is None else self._lost
                if error.code not in UNREACHABLE or now - self._lost > UNREACHABLE_SECONDS:
                    raise
                self.step(str(error).splitlines()[-1].strip().removeprefix("to do: "))
            else:
                self._lost = None
                return answer

    def step(self, progress: str) -> None:
        """Report a progress that is new, and sleep.

        Raises NebiusError after the deadline, with the progress as the reason.
        """
        now, words = time.monotonic(), _FIGURES.sub("", progress)
        if progress and (words != self._said or now - self._said_at > REPEAT_SECONDS):
            report(f"{self.doing}: {progress} ({self.passed:.0f} s)")
            self._said, self._said_at = words, now
        if self.passed + self.pace > self.seconds:
            lasted = f"it has not ended after {self.seconds:.0f} s"
            reasons = [lasted, f"last progress: {progress}"] if progress else [lasted]
            raise nebius_error(
                self.doing, reasons, "resolve the reason if there is one, then run it again: it goes on where it is"
            )
        time.sleep(self.pace)


def until_ended(wait: Wait, kind: Kind, operation: Any, endpoint: str) -> None:  # noqa: ANN401
    """Poll an operation until it has ended.

    Raises NebiusError if it failed, or has not ended in time.
    """
    while not operation.done():
        wait.step(wait.asked(lambda: _progress(kind, operation, endpoint)))
        try:
            wait.asked(lambda: _poll(wait.doing, operation))
        except NebiusError as error:
            if error.code == NOT_FOUND:
                return  # operations are not kept for ever; the object itself is asked next
            raise
    if (error := failure(wait.doing, operation)) is not None:
        raise error


def _poll(doing: str, operation: Any) -> None:  # noqa: ANN401
    try:
        operation.sync_update(**client.LIMITS)
    except Exception as error:
        raise explain(doing, error) from error


def until_ready(wait: Wait, kind: Kind, id_: str, endpoint: str) -> Any:  # noqa: ANN401
    """The object's message, once it can be used.

    Raises NebiusError if it failed, is gone, or can't be used in time.
    """
    while True:
        message = wait.asked(lambda: get(kind, id_, endpoint))
        if message is None:
            raise nebius_error(wait.doing, [f"{title(kind, id_)} was deleted meanwhile"], "run it again")
        state = state_of(message)
        if state in kind.failed:
            raise nebius_error(
                wait.doing, [f"its state is {state}", *_told(message)], "see the reason, and run it again"
            )
        if is_ready(kind, message):
            return message
        wait.step("; ".join([f"its state is {state or 'reconciling'}", *_nodes(message), *_told(message)]))


def is_ready(kind: Kind, message: Any) -> bool:  # noqa: ANN401
    """Whether it can be used."""
    reconciling = getattr(getattr(message, "status", None), "reconciling", False)
    return (not kind.ready or state_of(message) in kind.ready) and not reconciling


def until_gone(wait: Wait, kind: Kind, id_: str, endpoint: str) -> None:
    """Wait until it is gone, or as good as gone: a deleted bucket is kept for days."""
    while True:
        message = wait.asked(lambda: get(kind, id_, endpoint))
        if message is None or (state_of(message) in kind.deleting and state_of(message) != "DELETING"):
            return
        wait.step(f"its state is {state_of(message)}" if state_of(message) else "")


def delete(kind: Kind, id_: str, endpoint: str, wait: Wait) -> None:
    """Delete it and wait until it is gone; nothing to delete is no error."""
    operation = retried(wait, lambda: start_delete(kind, id_, endpoint), IN_USE)
    if operation is not None:
        try:
            until_ended(wait, kind, operation, endpoint)
        except NebiusError as error:
            if error.code != NOT_FOUND:
                raise
    until_gone(wait, kind, id_, endpoint)


def retried(wait: Wait, start: Callable[[], Any], also: frozenset[str] = frozenset(), fresh_seconds: float = 0) -> Any:  # noqa: ANN401
    """What `start` returns, again and again while another operation is in its way, until the deadline.

    `also`: details of errors that pass as well. `fresh_seconds`: for how long those of FRESH may.
    """
    while True:
        try:
            return start()
        except NebiusError as error:
            fresh = error.code in FRESH and wait.passed + wait.pace <= fresh_seconds
            if not (fresh or error.later or also & {*error.details}) or wait.passed + wait.pace > wait.seconds:
                raise
            wait.step(str(error).splitlines()[1].strip())


def _progress(kind: Kind, operation: Any, endpoint: str) -> str:  # noqa: ANN401
    """Where an operation is: its steps, its problems, and of node groups how many nodes are ready."""
    parts: list[str] = []
    if (tracker := operation.progress_tracker()) is not None:
        done = tracker.work_fraction()
        under_way = [step.description() for step in tracker.steps() if step.started_at() and not step.finished_at()]
        texts = [tracker.description(), *under_way, "" if done is None else f"{done:.0%}"]
        parts += [text for text in texts if text]
    parts += [f"{one.stage}: {one.message}" for one in _problems(operation)]
    if kind.name == "NodeGroup" and operation.resource_id:
        message = get(kind, operation.resource_id, endpoint)
        if message is not None:
            parts += [*_nodes(message), *_told(message)]
    return "; ".join(dict.fromkeys(parts))


def _problems(operation: Any) -> list[Any]:  # noqa: ANN401
    """`problems` of mk8s's ProgressData, which other services do not have."""
    packed = operation.raw().progress_data
    if packed is None or not packed.type_url.endswith("nebius.mk8s.v1.ProgressData"):
        return []
    from nebius.api.nebius.mk8s.v1 import ProgressData

    return list(ProgressData.FromString(packed.value).problems)


def _nodes(message: Any) -> list[str]:  # noqa: ANN401
    status: Any = getattr(message, "status", None)
    if not hasattr(status, "ready_node_count"):
        return []
    return [f"{status.ready_node_count} of {status.target_node_count} nodes ready"]


def _told(message: Any) -> list[str]:  # noqa: ANN401
    """The object's own reason: the newest event of a node group or a cluster, or its error."""
    status = getattr(message, "status", None)
    texts = [getattr(status, "error_message", ""), getattr(status, "state_description", "")]
    events = [one.last_occurrence for one in getattr(status, "events", ()) if one.last_occurrence is not None]
    if events:
        last = events[-1]
        texts.append(f"{last.code}: {last.message}" if last.code else last.message)
    return [" ".join(text.split()) for text in texts if text]
