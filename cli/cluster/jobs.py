"""Jobs of a user on a cluster that is up: files for them, submission, waiting, progress, logs."""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from cli import console
from cli.access import remote
from cli.access.remote import driver_of
from cli.access.ssh import shell_line
from cli.access.target import Target
from cli.cluster.cluster import Cluster
from cli.errors import CliError
from cli.stack import rehearsals
from cluster.config.cluster import ClusterConfig
from cluster.jobs.nccl import LOGS
from cluster.jobs.script import BODIES, ENV, FOLDER, Option, option_words, render_environment
from cluster.printable import printable
from scripts.node.slurm.job_reasons import explain
from scripts.node.slurm.jobs import Job

_COLUMNS = {"ArrayJobID": 16, "State": 20, "exit_code": 12, "TimeUsed": 20, "Reason": 60, "NodeList": 4000}
"""squeue's names and widths. Not one of them is a text that a user chooses."""
_FIELDS = ("JobID", "State", "ExitCode", "Elapsed", "NodeList")
_ORDER = ("RUNNING", "COMPLETING", "SUSPENDED", "PENDING")
"""States in this order: an array has the state of the task whose state comes first."""


def squeue_line() -> str:
    """Return the line that lists all jobs of the user who runs it, those that have just ended included."""
    columns = ",".join(f"{name}:{width}" for name, width in _COLUMNS.items())
    return f'squeue --noheader --states=all --user="$(id -un)" --Format={columns}'


def parse_squeue(text: str, ids: Iterable[str]) -> dict[str, Job]:
    """Parse the output of `squeue_line`, for these jobs."""
    rows: list[Job] = []
    for line in text.splitlines():
        cells, at = [], 0
        for width in _COLUMNS.values():
            cells.append(line[at : at + width].strip())
            at += width
        number, state, code, elapsed, reason, nodes = cells
        if code.isdigit():
            # squeue of Slurm 22.05 prints the status of wait(2), one number, in place of CODE:SIGNAL.
            code = f"{int(code) >> 8}:{int(code) & 0x7F}"
        rows.append(Job(id=number, state=state, exit_code=code, elapsed=elapsed, reason=reason, nodes=nodes))
    return _merge_tasks(rows, ids)


def sacct_line(ids: Iterable[str]) -> str:
    """Return the line that lists jobs of the accounting database; `ids` are numbers."""
    return f"sacct --noheader --parsable2 --allocations --jobs={','.join(ids)} --format={','.join(_FIELDS)}"


def parse_sacct(text: str, ids: Iterable[str]) -> dict[str, Job]:
    """Parse the output of `sacct_line`."""
    rows: list[Job] = []
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) == len(_FIELDS):
            number, state, code, elapsed, nodes = cells
            # CANCELLED is followed by the user who did it, the number of an array's task by its index.
            state, number = state.partition(" ")[0], number.partition("_")[0]
            rows.append(Job(id=number, state=state, exit_code=code, elapsed=elapsed, nodes=nodes))
    return _merge_tasks(rows, ids)


def _merge_tasks(rows: Iterable[Job], ids: Iterable[str]) -> dict[str, Job]:
    """Return one state for each job: of an array, the state of a task that has not ended, else of one that failed."""
    tasks: Mapping[str, list[Job]] = {job: [] for job in ids}
    for row in rows:
        if row.id in tasks:
            tasks[row.id].append(row)
    return {job: min(states, key=_rank) for job, states in tasks.items() if states}


def _rank(row: Job) -> int:
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
    """Submits and follows jobs of one user on the login machine."""

    cluster: Cluster
    user: str
    """A user of the cluster, or root."""

    @property
    def stack(self) -> str:
        return self.cluster.stack

    @cached_property
    def config(self) -> ClusterConfig:
        """The configuration of the cluster. Raises CliError: the stack's outputs have none."""
        # Reports of logs, which import this file, need no models of stack files.
        from cli.stack import stack_config

        return stack_config.from_outputs(self.stack, self.cluster.outputs)

    @property
    def is_rehearsal(self) -> bool:
        """True if the machines are on this host, where GPUs are device files."""
        from cluster.platforms import registry

        on_this_host = registry.get(self.config.platform).on_this_host
        return on_this_host or bool(rehearsals.of(rehearsals.file(self.stack)))

    def prepare(self, *folders: str) -> None:
        """Write the file with the environment of jobs, and create folders for their logs and results."""
        self.put({ENV: render_environment(self.config)})
        self.run(shlex.join(["mkdir", "-p", *folders]))

    def put(self, files: Mapping[str, str]) -> list[str]:
        """Write files below FOLDER as root, each atomically, if they differ. Returns the paths of the files written.

        They are written on the controller, whose NFS server maps root of other machines to nobody, or in a cluster of
        pods on the login pod, which has the jail. `files` is text by absolute path. Files named *.sh get mode 0755,
        others 0644.

        Raises:
            CliError: others than root can write to a parent folder, or the machine does not answer.
        """
        outside = [path for path in files if not path.startswith(f"{FOLDER}/") or ".." in path.split("/")]
        if outside:
            raise ValueError(f"not below {FOLDER}: {', '.join(outside)}")
        rows = {path: [text, 0o755 if path.endswith(".sh") else 0o644] for path, text in files.items()}
        program = (BODIES / "put.py").read_text(encoding="utf-8")
        call = f"\n\nput({FOLDER!r}, json.loads({json.dumps(rows)!r}))\n"
        machine = self.cluster.controller if driver_of(self._login).needs_admin_key else self._login
        return json.loads(
            remote.output(machine, self.cluster.admin_key, "python3 -", stdin=program + call, seconds=120)
        )

    def submit(self, script: str, options: Mapping[str, Option] | None = None) -> str:
        """Submit the text of a batch script and return the job's id. `options` are long options of sbatch, which
        override those in the script.

        Raises:
            CliError: sbatch refused it; with its message.
        """
        printed = self.run(shlex.join(["sbatch", "--parsable", *option_words(options or {})]), stdin=script)
        match = _SUBMITTED.fullmatch(printed.strip().rpartition("\n")[2])
        if not match:
            raise CliError(
                f"sbatch on {self._login.name} printed no job id: {printable(printed.strip()) or '(nothing)'}"
            )
        return match[1]

    def states(self, ids: Iterable[str]) -> dict[str, Job]:
        """Return the states of this user's jobs, without those that neither slurmctld nor the database has yet."""
        ids = list(ids)
        states = parse_squeue(self.run(squeue_line()), ids)
        if missing := [job for job in ids if job not in states]:
            states |= parse_sacct(self.run(sacct_line(missing)), missing)
        return states

    def wait(
        self, ids: Iterable[str], on_change: Callable[[Mapping[str, Job]], None], seconds: float
    ) -> Mapping[str, Job]:
        """Wait until jobs have ended, or for so many seconds, and return their last states.

        `on_change` is called with all states whenever a state, a reason or nodes change. Ctrl-C is not handled here:
        the jobs go on, and the caller cancels them or prints how to follow them.

        Raises:
            CliError: the login machine does not answer, or a job is unknown there.
        """
        ids = list(ids)
        start, pause, last, unknown_since = time.monotonic(), 0.5, None, None
        while True:
            states = self.states(ids)
            current = {job: (row.state, row.reason, row.nodes) for job, row in states.items()}
            if current != last:
                on_change(states)
            now = time.monotonic()
            missing = [job for job in ids if job not in states]
            unknown_since = (unknown_since or now) if missing else None
            if unknown_since and now - unknown_since > _RECORD_SECONDS:
                raise CliError(f"job {', '.join(missing)}: slurmctld and the accounting database do not know it.")
            if not missing and (now - start > seconds or all(row.ended for row in states.values())):
                return states
            pause = 0.5 if current != last else min(_LONGEST_PAUSE, pause * 1.3)
            last = current
            time.sleep(pause)

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel jobs. Jobs that have ended are not changed."""
        if ids := list(ids):
            self.run(shlex.join(["scancel", "--quiet", *ids]))

    def read(self, path: str, most: int) -> str:
        """Return the first `most` bytes of a file, read as the user.

        Raises:
            CliError: the user can't read it.
        """
        return self.run(f"head -c {most} -- {shlex.quote(path)}", seconds=300)

    def run(self, line: str, *, stdin: str = "", seconds: float = _SECONDS) -> str:
        """Run a line in the user's login shell on the login machine, and return its standard output.

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


def read_job_log(cluster: Cluster, job: str, most: int) -> tuple[str, str]:
    """Return the path of a job's log and its first `most` bytes, read as the job's user.

    slurmctld has the path for some minutes after the job's end (MinJobAge). For older jobs the accounting database has
    the user, and the path is that of `./hpc nccl run`.

    Raises:
        CliError: neither has the job, or its user can't read the log.
    """
    root, number = Jobs(cluster, "root"), shlex.quote(job)
    # Not from `scontrol show job`: there the job's name comes before its user, and may contain another user's name.
    user = _first_line(root, f"squeue --noheader --states=all --jobs={number} --format=%u 2>/dev/null || true")
    if _USER.fullmatch(user):
        jobs = Jobs(cluster, user)
        paths = _OUTPUT.findall(jobs.run(f"scontrol show job {number} 2>/dev/null || true"))
        if paths:
            return paths[-1], jobs.read(paths[-1], most)
    user = _first_line(root, f"sacct --noheader --parsable2 --allocations --jobs={number} --format=User")
    if not _USER.fullmatch(user):
        raise CliError(f"job {job}: neither slurmctld nor the accounting database of {cluster.stack} has it.")
    jobs = Jobs(cluster, user)
    path = f"{jobs.run('echo ~').strip()}/{LOGS}/{job}.log"
    try:
        return path, jobs.read(path, most)
    except CliError as error:
        todo = f"if it wrote its output elsewhere, copy that file here and name it: ./hpc nccl report FILE\n{error}"
        raise CliError(f"job {job} of {user}: its log is not {path}; {todo}") from None


def _first_line(jobs: Jobs, line: str) -> str:
    return jobs.run(line).strip().partition("\n")[0].strip()


T = TypeVar("T")
_POLL_SECONDS = 3.0
_SILENCE_SECONDS = 60.0
"""After so many seconds without a new line the last one is printed again, with the time."""
_LOST_SECONDS = 120.0
"""Time for which the login machine may be unreachable before the command gives up following the job."""


@dataclass
class JobProgress:
    """Waits for a job and prints its progress."""

    jobs: Jobs
    id: str
    log: str
    """The job's log on the cluster, below the user's home."""
    shown: str
    """An extended regular expression for grep that selects the lines of the log which show progress."""
    afterwards: str
    """The command that continues after the job's end if this one is interrupted."""
    text: Callable[[str], str] = field(default=lambda line: line)
    """Converts such a line to the text that is printed; an empty text is not printed."""
    _lines: int = field(default=0, init=False)
    _state: str = field(default="", init=False)
    _last: str = field(default="", init=False)
    _last_time: float = field(default=0.0, init=False)
    _start: float = field(default=0.0, init=False)

    def wait(self) -> Job:
        """Wait until the job has ended, and return its last state. Ctrl-C cancels it.

        Raises:
            CliError: the login machine does not answer any more; the job goes on.
        """
        self._start = self._last_time = time.monotonic()
        try:
            while not (state := retry_while_unreachable(self._poll)).ended:
                if time.monotonic() - self._last_time > _SILENCE_SECONDS:
                    self._print(self._last)
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

    def _poll(self) -> Job:
        state = self.jobs.wait([self.id], self._print_state, _POLL_SECONDS)[self.id]
        command = f"grep -aE {shlex.quote(self.shown)} {shlex.quote(self.log)} 2>/dev/null | tail -n +{self._lines + 1}"
        for line in self.jobs.run(command).splitlines():
            self._lines += 1
            if text := self.text(line):
                self._print(text)
        return state

    def _print_state(self, states: Mapping[str, Job]) -> None:
        if state := states.get(self.id):
            text = _describe(state)
            if text != self._state and not state.ended:
                self._state = text
                self._print(text)

    def _print(self, text: str) -> None:
        now = time.monotonic()
        minutes, seconds = divmod(int(now - self._start), 60)
        console.note(f"[{minutes}:{seconds:02}] {text}")
        self._last, self._last_time = text, now


def retry_while_unreachable(poll: Callable[[], T]) -> T:
    """Call `poll` until it succeeds, for _LOST_SECONDS at most: a laptop may be suspended or change its network.

    Raises:
        CliError: the last error of `poll` after that time.
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


def _describe(state: Job) -> str:
    if state.state == "PENDING":
        why = f" ({state.reason}): {explain(state.reason)}" if state.reason not in ("", "None") else ""
        return f"job {state.id} is pending{why.removesuffix(': ')}"
    if state.state == "RUNNING":
        return f"job {state.id} runs on {state.nodes}"
    return f"job {state.id} is {state.state.lower()}"
