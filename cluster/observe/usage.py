"""CPU and GPU hours and jobs of each user, added up from sacct's records."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

FIELDS = ("JobID", "User", "Account", "Partition", "ElapsedRaw", "AllocTRES", "JobIDRaw", "State")
UNENDED = ("RUNNING", "SUSPENDED")
"""States (sacct(1)) of a job whose end the database does not know."""
ALIVE = "alive"
"""States with which lines of jobs begin that slurmctld has."""
By = Literal["user", "account", "partition"]
EACH: tuple[By, ...] = ("user", "account", "partition")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Resources that one run of a job held, within the time that was asked for."""

    job: str
    user: str
    account: str
    partition: str
    seconds: int
    cpus: int
    gpus: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """Usage of one user, account, partition or a combination of them."""

    keys: tuple[str, ...]
    cpu_seconds: int = 0
    gpu_seconds: int = 0
    jobs: int = 0

    @property
    def cpu_hours(self) -> float:
        """CPUs that jobs held, times the hours that they held them."""
        return self.cpu_seconds / 3600

    @property
    def gpu_hours(self) -> float:
        return self.gpu_seconds / 3600


def command(since: str, until: str) -> str:
    """The line that asks the controller, of two shell words that are moments there.

    Every run of a requeued job counts (--duplicates), what lies outside the two moments does not (--truncate), and a
    job that still runs has run until now.
    """
    fields = ",".join(FIELDS)
    return (
        f"sacct --allusers --allocations --duplicates --parsable2 --noheader --noconvert --truncate "
        f"--starttime={since} --endtime={until} --format={fields} && "
        # Without slurmctld's answer no job counts as a runaway.
        f"{{ squeue --noheader --array --states=running,suspended --format='{ALIVE} %A' && echo '{ALIVE} all'; }}"
    )


@dataclass(frozen=True, kw_only=True)
class Found:
    """Usage according to sacct's records."""

    records: list[Record]
    runaways: int
    """Jobs that have no end in the database and that slurmctld does not know: they ended at an unknown time."""


def records(text: str) -> Found:
    """sacct's lines; jobs that never held anything, as those that wait, and runaways are left out.

    One that ended within a second held nothing for long, and is a job all the same.

    Raises:
        ValueError: a line is not what `command` asks for.
    """
    found: list[Record] = []
    lines = [line for line in text.split("\n") if line]
    alive = {line.partition(" ")[2] for line in lines if line.startswith(f"{ALIVE} ")}
    runaways: set[str] = set()
    for line in lines:
        if line.startswith(f"{ALIVE} "):
            continue
        cells = line.split("|")
        if len(cells) != len(FIELDS):
            raise ValueError(f"sacct printed a line with {len(cells)} fields instead of {len(FIELDS)}: {line!r}")
        job, user, account, partition, elapsed, allocated, raw, state = cells
        held = tres(allocated)
        if "all" in alive and state in UNENDED and raw not in alive:
            runaways.add(job)
        elif held:
            who = {"user": user, "account": account, "partition": partition}
            found.append(Record(job=job, seconds=int(elapsed or 0), cpus=held.get("cpu", 0), gpus=gpus(held), **who))
    return Found(records=found, runaways=len(runaways))


def tres(text: str) -> dict[str, int]:
    """Slurm's list of resources, `cpu=2,gres/gpu:a100=1,mem=2048M`, as far as it counts things."""
    pairs = (part.rpartition("=") for part in text.split(",") if part)
    return {name: int(count) for name, _, count in pairs if count.isdigit()}


def gpus(held: Mapping[str, int]) -> int:
    """GPUs among resources: `gres/gpu` counts all of them, those of each type stand beside it again."""
    if "gres/gpu" in held:
        return held["gres/gpu"]
    return sum(count for name, count in held.items() if name.startswith("gres/gpu:"))


def table(found: Iterable[Record], by: Iterable[By] = EACH) -> list[Row]:
    """Rows for each combination of `by`, the largest users of GPUs first, then of CPUs."""
    keys = tuple(by)
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in found:
        groups.setdefault(tuple(getattr(record, key) for key in keys), []).append(record)
    rows = [_row(group, members) for group, members in groups.items()]
    return sorted(rows, key=lambda row: (-row.gpu_seconds, -row.cpu_seconds, row.keys))


def total(found: Iterable[Record]) -> Row:
    """All of them together; a job that ran twice is one job."""
    return _row((), list(found))


def _row(keys: tuple[str, ...], members: list[Record]) -> Row:
    def held(of: Callable[[Record], int]) -> int:
        return sum(record.seconds * of(record) for record in members)

    return Row(
        keys=keys,
        cpu_seconds=held(lambda record: record.cpus),
        gpu_seconds=held(lambda record: record.gpus),
        jobs=len({record.job for record in members}),
    )
