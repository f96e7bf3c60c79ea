"""A bounded wait that reports its progress."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from components.dynamic import report
from components.nebius.kubernetes.kubectl import KubectlError

REPEAT_SECONDS = 60
"""How often an unchanged state is reported again."""
_CREDENTIAL = ("getting credentials", "exec plugin", "You must be logged in", "(Unauthorized)")


class Poll:
    """Deadline, pace and progress of one wait."""

    def __init__(self, seconds: float, pace: float) -> None:
        self._end, self._pace = time.monotonic() + seconds, pace
        self._shown, self._again = "", 0.0

    @property
    def left(self) -> float:
        """Seconds until the deadline, negative after it."""
        return self._end - time.monotonic()

    def pause(self, state: str, line: str) -> None:
        """Sleep until the next attempt. Reports `line` first, if `state` has changed or was reported a minute ago."""
        now = time.monotonic()
        if state != self._shown or now > self._again:
            self._shown, self._again = state, now + REPEAT_SECONDS
            report(line)
        time.sleep(min(self._pace, max(self._end - now, 0.01)))


class WaitError(RuntimeError):
    """A wait has failed; the text has what was missing, the objects that show why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was found at one time."""

    done: bool = False
    text: str = ""
    """What is missing, in one line."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the wait was for, if it has a value."""
    failed: bool = False
    """Whether it will not come any more, so that waiting on is useless."""


def wait_for(
    what: str,
    look: Callable[[], Look],
    *,
    seconds: float,
    pace: float,
    limit: str = "",
    explain: Callable[[], str] = lambda: "",
    todo: str = "run `up` again to continue to wait",
) -> dict[str, Any]:
    """Look every `pace` seconds until it is done, and return its facts.

    What kubectl answers with an error counts as not yet there, but for a missing program or credential.
    Raises WaitError after `seconds`, which the stack file has as `limit`: with what was missing, `explain()`, and
    what to do.
    """
    poll = Poll(seconds, pace)
    while True:
        try:
            found = look()
        except KubectlError as error:
            _refuse_hopeless(what, error)
            found = Look(text=str(error))
        if found.done:
            return found.facts
        if found.failed or poll.left < 0:
            reason = (
                "failed" if found.failed else f"did not come within {seconds:.0f} s" + (f" ({limit})" if limit else "")
            )
            raise WaitError("\n".join(filter(None, [f"{what} {reason}: {found.text}", explain(), f"to do: {todo}"])))
        poll.pause(found.text, f"waiting for {what}: {found.text}")


def _refuse_hopeless(what: str, error: KubectlError) -> None:
    text = str(error)
    if "is not installed" in text:
        raise WaitError(text)
    if any(one in text for one in _CREDENTIAL):
        raise WaitError(
            f"{what}: the credential command gives no credential that the API server accepts: {text}\n"
            "to do: run `./hpc nebius-token`, or the command of nebius.token_command where the stack file has one, by "
            "itself; it must print an ExecCredential"
        )
