"""The state of jobs by their ids, from squeue while slurmctld remembers them, then from sacct."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
