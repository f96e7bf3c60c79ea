"""Jobs of a user on a cluster that is up: files for them, submission, waiting, progress, logs."""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from cli import console
from cli.access import remote
from cli.access.remote import driver_of
from cli.access.ssh import shell_line
from cli.access.target import Target
from cli.cluster.cluster import Cluster
from cli.errors import CliError
from cluster.jobs.nccl import LOGS
from cluster.jobs.script import BODIES, FOLDER, Option, words
from cluster.printable import printable

_COLUMNS = {"ArrayJobID": 16, "State": 20, "exit_code": 12, "TimeUsed": 20, "Reason": 60, "NodeList": 4000}
"""squeue's names and widths. Not one of them is a text that a user chooses."""
_FIELDS = ("JobID", "State", "ExitCode", "Elapsed", "NodeList")
_ENDED = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT".split()
)
"""squeue(1), JOB STATE CODES: the states of a job that will not run again."""
_ORDER = ("RUNNING", "COMPLETING", "SUSPENDED", "PENDING")
"""Kinds of states in order: the task of an array whose state comes first stands for the array."""


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A job, or a whole array of them, at one time."""

    id: str
    state: str
    """The state that squeue(1) shows: PENDING, RUNNING, COMPLETED."""
    reason: str = ""
    """The reason why it waits; empty or None if it does not."""
    nodes: str = ""
    """A host list."""
    exit_code: str = ""
    """CODE:SIGNAL once it has ended."""
    elapsed: str = ""
    """The time for which it has run: [days-]hours:minutes:seconds."""

    @property
    def ended(self) -> bool:
        """True if the job has ended and will not run again."""
        return self.state in _ENDED

    @property
    def completed(self) -> bool:
        """True if the job has ended with exit code 0."""
        return self.state == "COMPLETED"


def squeue_line() -> str:
    """The line that asks slurmctld for all jobs of the user who runs it, also those that have just ended."""
    columns = ",".join(f"{name}:{width}" for name, width in _COLUMNS.items())
    return f'squeue --noheader --states=all --user="$(id -un)" --Format={columns}'


def parse_squeue(text: str, ids: Iterable[str]) -> dict[str, JobState]:
    """Parse the output of `squeue_line`, for these jobs."""
    rows: list[JobState] = []
    for line in text.splitlines():
        cells, at = [], 0
        for width in _COLUMNS.values():
            cells.append(line[at : at + width].strip())
            at += width
        number, state, code, elapsed, reason, nodes = cells
        rows.append(
            JobState(id=number, state=state, exit_code=_exit_code(code), elapsed=elapsed, reason=reason, nodes=nodes)
        )
    return _merged(rows, ids)


def _exit_code(text: str) -> str:
    """CODE:SIGNAL, which squeue of 22.05 prints as wait(2) has it, in one number."""
    return f"{int(text) >> 8}:{int(text) & 0x7F}" if text.isdigit() else text


def sacct_line(ids: Iterable[str]) -> str:
    """The line that asks the accounting database for jobs; `ids` are numbers."""
    return f"sacct --noheader --parsable2 --allocations --jobs={','.join(ids)} --format={','.join(_FIELDS)}"


def parse_sacct(text: str, ids: Iterable[str]) -> dict[str, JobState]:
    """Parse the output of `sacct_line`."""
    rows: list[JobState] = []
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) == len(_FIELDS):
            number, state, code, elapsed, nodes = cells
            # CANCELLED is followed by who did it, an array's task by its index.
            state, number = state.partition(" ")[0], number.partition("_")[0]
            rows.append(JobState(id=number, state=state, exit_code=code, elapsed=elapsed, nodes=nodes))
    return _merged(rows, ids)


def _merged(rows: Iterable[JobState], ids: Iterable[str]) -> dict[str, JobState]:
    """Return one state for each job: of an array, the state of a task that has not ended, else of one that failed."""
    wanted: Mapping[str, list[JobState]] = {id_: [] for id_ in ids}
    for row in rows:
        if row.id in wanted:
            wanted[row.id].append(row)
    return {one: min(found, key=_rank) for one, found in wanted.items() if found}


def _rank(row: JobState) -> int:
    if not row.ended:
        return _ORDER.index(row.state) if row.state in _ORDER else len(_ORDER)
    return len(_ORDER) + (2 if row.completed else 1)


_SECONDS = 60.0
_RECORD_SECONDS = 60.0
"""Time for an ended job to be in the accounting database, which slurmctld writes to in rounds of five seconds."""
_LONGEST_PAUSE = 5.0
_SUBMITTED = re.compile(r"([0-9]+)(;.*)?")
"""Output of `sbatch --parsable`: the job's id, and the cluster's name where there are several."""


@dataclass(frozen=True)
class Jobs:
    """Jobs of one user, submitted on the login machine."""

    cluster: Cluster
    stack: str
    """The stack's name in commands."""
    user: str
    """A user of the cluster, or root."""

    def put(self, files: Mapping[str, str], mode: int = 0o644) -> list[str]:
        """Write files below FOLDER, as root, each atomically, and only those that differ. On the controller: root of
        other machines is nobody to its NFS server; with pods on the login pod, which has the jail.

        `files`: absolute path to text. Files named *.sh get mode 0755, others `mode`. Returns the paths that changed.

        Raises:
            CliError: a folder on the way is not root's alone, or the machine does not answer.
        """
        strange = [path for path in files if not path.startswith(f"{FOLDER}/") or ".." in path.split("/")]
        if strange:
            raise ValueError(f"not below {FOLDER}: {', '.join(strange)}")
        rows = {path: [text, 0o755 if path.endswith(".sh") else mode] for path, text in files.items()}
        program = (BODIES / "put.py").read_text(encoding="utf-8")
        call = f"\n\nput({FOLDER!r}, json.loads({json.dumps(rows)!r}))\n"
        machine = self.cluster.controller if driver_of(self._login).needs_admin_key else self._login
        return json.loads(
            remote.output(machine, self.cluster.admin_key, "python3 -", stdin=program + call, seconds=120)
        )

    def submit(self, script: str, *arguments: str, options: Mapping[str, Option] | None = None) -> str:
        """Submit a batch script and return the job's id.

        `script`: absolute path on the cluster, or the script's text, which begins with #!. `arguments` are the
        script's own, `options` sbatch's long options, which win over the script's own.

        Raises:
            CliError: sbatch refused it; with its message.
        """
        text = script if script.startswith("#!") else ""
        if text and arguments:
            raise ValueError("arguments need a script that is a file")
        given = ["sbatch", "--parsable", *words(options or {}), *([] if text else [script, *arguments])]
        printed = self.run(shlex.join(given), stdin=text)
        found = _SUBMITTED.fullmatch(printed.strip().rpartition("\n")[2])
        if not found:
            raise CliError(
                f"sbatch on {self._login.name} printed no job id: {printable(printed.strip()) or '(nothing)'}"
            )
        return found[1]

    def states(self, ids: Iterable[str]) -> dict[str, JobState]:
        """The state of jobs of this user; those that neither slurmctld nor the database has (yet) are left out."""
        wanted = list(ids)
        found = parse_squeue(self.run(squeue_line()), wanted)
        if missing := [job for job in wanted if job not in found]:
            found |= parse_sacct(self.run(sacct_line(missing)), missing)
        return found

    def wait(
        self,
        ids: Iterable[str],
        on_change: Callable[[Mapping[str, JobState]], None] | None = None,
        seconds: float | None = None,
    ) -> Mapping[str, JobState]:
        """Wait until jobs have ended; the last states of all, also if they have not after `seconds`.

        `on_change` is called with all states whenever a state, a reason or nodes change. Ctrl-C raises through: the
        jobs go on, and the caller says how to see them or cancels them.

        Raises:
            CliError: the login machine does not answer, or a job is unknown there.
        """
        wanted = list(ids)
        start, pause, shown, unknown_since = time.monotonic(), 0.5, None, None
        while True:
            found = self.states(wanted)
            seen = {job: (row.state, row.reason, row.nodes) for job, row in found.items()}
            if seen != shown and on_change:
                on_change(found)
            now = time.monotonic()
            missing = [job for job in wanted if job not in found]
            unknown_since = (unknown_since or now) if missing else None
            if unknown_since and now - unknown_since > _RECORD_SECONDS:
                raise CliError(f"job {', '.join(missing)}: slurmctld and the accounting database do not know it.")
            if not missing and all(row.ended for row in found.values()):
                return found
            if not missing and seconds is not None and now - start > seconds:
                return found
            pause = 0.5 if seen != shown else min(_LONGEST_PAUSE, pause * 1.3)
            shown = seen
            time.sleep(pause)

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel jobs; those that have ended are left as they are."""
        if wanted := list(ids):
            self.run(shlex.join(["scancel", "--quiet", *wanted]))

    def read(self, path: str, most: int = 20_000_000) -> str:
        """The first `most` bytes of a file, as the user.

        Raises:
            CliError: the user can't read it.
        """
        return self.run(f"head -c {most} -- {shlex.quote(path)}", seconds=300)

    def run(self, line: str, *, stdin: str = "", seconds: float = _SECONDS) -> str:
        """Run a line of the user's login shell on the login machine; its standard output.

        Raises:
            CliError: it failed, or the machine does not answer.
        """
        words = shell_line(self.user, ["bash", "-c", line], terminal=False)
        return remote.output(self._login, self.cluster.admin_key, words, stdin=stdin, seconds=seconds)

    @property
    def _login(self) -> Target:
        return self.cluster.target(None)


_USER = re.compile("[a-z_][a-z0-9_-]*")
_OUTPUT = re.compile(r"^ +StdOut=(/.+)$", re.MULTILINE)


def read_job_log(cluster: Cluster, stack: str, job: str, most: int) -> tuple[str, str]:
    """Return where the log of a job is, and its first `most` bytes, read as the user whose job it is.

    slurmctld has a job's output for some minutes after its end (MinJobAge). Of older jobs the accounting database
    has the user, and the place is the one of `./hpc nccl run`.

    Raises:
        CliError: neither has the job, or its user can't read the log.
    """
    root, number = Jobs(cluster, stack, "root"), shlex.quote(job)
    # Not by `scontrol show job`: a job's name stands before its user there, and may say that it is another's.
    user = _first_line(root, f"squeue --noheader --states=all --jobs={number} --format=%u 2>/dev/null || true")
    if _USER.fullmatch(user):
        jobs = Jobs(cluster, stack, user)
        found = _OUTPUT.findall(jobs.run(f"scontrol show job {number} 2>/dev/null || true"))
        if found:
            return found[-1], jobs.read(found[-1], most)
    user = _first_line(root, f"sacct --noheader --parsable2 --allocations --jobs={number} --format=User")
    if not _USER.fullmatch(user):
        raise CliError(f"job {job}: neither slurmctld nor the accounting database of {stack} has it.")
    jobs = Jobs(cluster, stack, user)
    path = f"{jobs.run('echo ~').strip()}/{LOGS}/{job}.log"
    try:
        return path, jobs.read(path, most)
    except CliError as error:
        todo = f"if it wrote its output elsewhere, copy that file here and name it: ./hpc nccl report FILE\n{error}"
        raise CliError(f"job {job} of {user}: its log is not {path}; {todo}") from None


def _first_line(jobs: Jobs, line: str) -> str:
    return jobs.run(line).strip().partition("\n")[0].strip()


Seen = TypeVar("Seen")
_POLL_SECONDS = 3.0
_SILENCE_SECONDS = 60.0
"""Without news for so long, the last line is shown again, with the time."""
_LOST_SECONDS = 120.0
"""Time for which the login machine may not answer before the job is left to itself."""
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
    """A job that is waited for."""

    jobs: Jobs
    id: str
    log: str
    """The job's log on the cluster, below the user's home."""
    shown: str
    """An extended regular expression of grep for lines of the log that are progress."""
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
            while not (state := retry_while_unreachable(self._poll)).ended:
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

    def _poll(self) -> JobState:
        state = self.jobs.wait([self.id], self._note_state, _POLL_SECONDS)[self.id]
        self._note_log()
        return state

    def _note_state(self, states: Mapping[str, JobState]) -> None:
        if state := states.get(self.id):
            text = _describe(state)
            if text != self._state and not state.ended:
                self._state = text
                self._note(text)

    def _note_log(self) -> None:
        line = f"grep -aE {shlex.quote(self.shown)} {shlex.quote(self.log)} 2>/dev/null | tail -n +{self._lines + 1}"
        for found in self.jobs.run(line).splitlines():
            self._lines += 1
            if text := self.text(found):
                self._note(text)

    def _note(self, text: str) -> None:
        now = time.monotonic()
        minutes, seconds = divmod(int(now - self._start), 60)
        console.note(f"[{minutes}:{seconds:02}] {text}")
        self._last, self._noted = text, now


def retry_while_unreachable(poll: Callable[[], Seen]) -> Seen:
    """Call `poll`, again while the login machine does not answer: a laptop may sleep, a network change.

    Raises:
        CliError: it was, for _LOST_SECONDS and every time that it was asked.
    """
    since, announced = time.monotonic(), False
    while True:
        try:
            return poll()
        except CliError as error:
            if time.monotonic() - since > _LOST_SECONDS:
                raise
            if not announced:
                console.note(f"{error}\nTrying again for {_LOST_SECONDS:.0f} s.")
            announced = True
            time.sleep(_POLL_SECONDS)


def _describe(state: JobState) -> str:
    if state.state == "PENDING":
        # Reasons may be followed by details: ReqNodeNotAvail, UnavailableNodes:...
        name = re.split("[^A-Za-z]", state.reason, maxsplit=1)[0]
        if not name or name == "None":
            return f"job {state.id} is pending"
        return f"job {state.id} {_REASONS.get(name, 'is pending')} ({state.reason})"
    if state.state == "RUNNING":
        return f"job {state.id} runs on {state.nodes}"
    return f"job {state.id} is {state.state.lower()}"
