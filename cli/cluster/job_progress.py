"""Shows how a job goes until it ends: why it waits, where it runs, and lines of its log."""

import re
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from cli import console
from cli.cluster.jobs import Jobs, JobState
from cli.errors import CliError

Seen = TypeVar("Seen")
_LOOK_SECONDS = 3.0
_SILENCE_SECONDS = 60.0
"""Without news for so long, the last line is shown again, with the time."""
_LOST_SECONDS = 120.0
"""How long the login machine may not answer before the job is left to itself."""
_REASONS = {
    "Resources": "waits for nodes that other jobs have",
    "Priority": "waits for jobs with a higher priority",
    "Dependency": "waits for another job of the same name",
    "ReqNodeNotAvail": "waits for nodes that are down, drained or reserved",
    "BeginTime": "waits for its start time, as after a requeue",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "JobHeldAdmin": "held by an administrator",
    "JobHeldUser": "held by its user",
    "AssocGrpGRES": "waits for the account's limit of GPUs",
    "QOSMaxJobsPerUserLimit": "waits for the QOS's limit of jobs",
}
"""squeue(1), JOB REASON CODES."""


@dataclass
class Progress:
    """One job that is waited for."""

    jobs: Jobs
    id: str
    log: str
    """Its log on the cluster, below the user's home."""
    shown: str
    """What lines of the log are progress: an extended regular expression of grep."""
    afterwards: str
    """The command that goes on once the job has ended, should this one be cut off."""
    text: Callable[[str], str] = field(default=lambda line: line)
    """Such a line, for a person; an empty text is not shown."""
    _lines: int = field(default=0, init=False)
    _state: str = field(default="", init=False)
    _last: str = field(default="", init=False)
    _noted: float = field(default=0.0, init=False)
    _start: float = field(default=0.0, init=False)

    def wait(self) -> JobState:
        """Wait until the job has ended; its last state. Ctrl-C cancels it.

        Raises:
            CliError: the login machine does not answer any more; the job goes on.
        """
        self._start = self._noted = time.monotonic()
        try:
            while not (state := patiently(self._look)).ended:
                if time.monotonic() - self._noted > _SILENCE_SECONDS:
                    self._note(self._last)
            return state
        except CliError as error:
            raise CliError(f"{error}\nJob {self.id} goes on by itself. When it has ended: {self.afterwards}") from None
        except KeyboardInterrupt:
            try:
                self.jobs.cancel([self.id])
            except CliError as error:
                how = f"./hpc run {self.jobs.stack} --as {self.jobs.user} -- scancel {self.id}"
                raise CliError(f"{error}\nJob {self.id} was not cancelled. To cancel it: {how}") from None
            console.note(f"Job {self.id} was cancelled.")
            raise

    def _look(self) -> JobState:
        state = self.jobs.wait([self.id], self._note_state, _LOOK_SECONDS)[self.id]
        self._note_log()
        return state

    def _note_state(self, states: Mapping[str, JobState]) -> None:
        if state := states.get(self.id):
            text = _text(state)
            if text != self._state and not state.ended:
                self._state = text
                self._note(text)

    def _note_log(self) -> None:
        line = f"grep -aE {shlex.quote(self.shown)} {shlex.quote(self.log)} 2>/dev/null | tail -n +{self._lines + 1}"
        for one in self.jobs.run(line).splitlines():
            self._lines += 1
            if text := self.text(one):
                self._note(text)

    def _note(self, text: str) -> None:
        now = time.monotonic()
        minutes, seconds = divmod(int(now - self._start), 60)
        console.note(f"[{minutes}:{seconds:02}] {text}")
        self._last, self._noted = text, now


def patiently(look: Callable[[], Seen]) -> Seen:
    """What `look` returns. The login machine may be away for a while: a laptop that sleeps, a network that changes.

    Raises:
        CliError: it was, for _LOST_SECONDS and every time that it was asked.
    """
    since, told = time.monotonic(), False
    while True:
        try:
            return look()
        except CliError as error:
            if time.monotonic() - since > _LOST_SECONDS:
                raise
            if not told:
                console.note(f"{error}\nTrying again for {_LOST_SECONDS:.0f} s.")
            told = True
            time.sleep(_LOOK_SECONDS)


def _text(state: JobState) -> str:
    if state.state == "PENDING":
        # Reasons may be followed by details: ReqNodeNotAvail, UnavailableNodes:...
        name = re.split("[^A-Za-z]", state.reason, maxsplit=1)[0]
        if not name or name == "None":
            return f"job {state.id} is pending"
        return f"job {state.id} {_REASONS.get(name, 'is pending')} ({state.reason})"
    if state.state == "RUNNING":
        return f"job {state.id} runs on {state.nodes}"
    return f"job {state.id} is {state.state.lower()}"
