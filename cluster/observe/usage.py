"""CPU and GPU hours, how busy they were, and jobs of each user, added up from sacct's records."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from scripts.node.slurm.output import count_gpus, cpu_seconds, parse_tres

FIELDS = tuple(
    "JobID User Account Partition ElapsedRaw AllocTRES JobIDRaw State Start End TotalCPU TRESUsageInTot".split()
)
UNENDED = ("RUNNING", "SUSPENDED")
"""States (sacct(1)) of a job whose end the database does not know."""
ALIVE = "alive"
"""States with which lines of jobs begin that slurmctld has."""
GroupKey = Literal["user", "account", "partition"]
GROUP_KEYS: tuple[GroupKey, ...] = ("user", "account", "partition")


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
    cpu_used: float | None = None
    """Seconds of processors that it used; only of one that began and ended within the time, as sacct has no part of
    it."""
    gpu_busy: float | None = None
    """Share of its GPUs that was busy, where Slurm has measured it."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Usage of one user, account, partition or a combination of them."""

    keys: tuple[str, ...]
    cpu_seconds: int = 0
    gpu_seconds: int = 0
    jobs: int = 0
    cpu_efficiency: float | None = None
    """Processor time that jobs used, as a share of what they held; of jobs that began and ended within the time."""
    gpu_utilization: float | None = None
    """Share of held GPU time that was busy, of jobs of which Slurm has measured it."""

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
        f"sacct --allusers --duplicates --parsable2 --noheader --noconvert --truncate "
        f"--starttime={since} --endtime={until} --format={fields} && "
        # Without slurmctld's answer no job counts as a runaway.
        f"{{ squeue --noheader --array --states=running,suspended --format='{ALIVE} %A' && echo '{ALIVE} all'; }}"
    )


@dataclass(frozen=True, kw_only=True)
class UsageRecords:
    """Usage according to sacct's records."""

    records: list[Record]
    runaways: int
    """Jobs that have no end in the database and that slurmctld does not know: they ended at an unknown time."""


def parse_records(text: str, since: str = "", until: str = "9") -> UsageRecords:
    """sacct's lines; jobs that never held anything, as those that wait, and runaways are left out. `since` and `until`
    are the moments of `command`, as sacct prints times.

    One that ended within a second held nothing for long, and is a job all the same.

    Raises:
        ValueError: a line is not what `command` asks for.
    """
    found: list[Record] = []
    lines = [line for line in text.split("\n") if line]
    held: dict[str, float] = {}
    alive = {line.partition(" ")[2] for line in lines if line.startswith(f"{ALIVE} ")}
    runaways: set[str] = set()
    for line in lines:
        if line.startswith(f"{ALIVE} "):
            continue
        cells = line.split("|")
        if len(cells) != len(FIELDS):
            raise ValueError(f"sacct printed a line with {len(cells)} fields instead of {len(FIELDS)}: {line!r}")
        job, user, account, partition, elapsed, allocated, raw, state, start, end, used, measured = cells
        if "." in job:
            # A step stands behind its run. Slurm measures GPUs as percent of one, and only where slurmd has NVML.
            percent = parse_tres(measured).get("gres/gpuutil")
            if percent and held and found and found[-1].gpus:
                busy = max(found[-1].gpu_busy or 0.0, min(1.0, percent / 100 / found[-1].gpus))
                found[-1] = replace(found[-1], gpu_busy=busy)
            continue
        held = parse_tres(allocated)
        if "all" in alive and state in UNENDED and raw not in alive:
            runaways.add(job)
            held = {}
        elif held:
            whole = since < start and end < until and state not in UNENDED
            found.append(Record(
                job=job, user=user, account=account, partition=partition, seconds=int(elapsed or 0),
                cpus=int(held.get("cpu", 0)), gpus=count_gpus(held), cpu_used=cpu_seconds(used) if whole else None,
            ))  # fmt: skip
        else:
            held = {}
    return UsageRecords(records=found, runaways=len(runaways))


def table(found: Iterable[Record], by: Iterable[GroupKey] = GROUP_KEYS) -> list[Row]:
    """Rows for each combination of `by`, the largest users of GPUs first, then of CPUs."""
    keys = tuple(by)
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in found:
        groups.setdefault(tuple(getattr(record, key) for key in keys), []).append(record)
    rows = [_row(group, members) for group, members in groups.items()]
    return sorted(rows, key=lambda row: (-row.gpu_seconds, -row.cpu_seconds, row.keys))


def total(found: Iterable[Record]) -> Row:
    """Return all of them together; a job that ran twice is one job."""
    return _row((), list(found))


def _row(keys: tuple[str, ...], members: list[Record]) -> Row:
    def held(of: Callable[[Record], int]) -> int:
        return sum(record.seconds * of(record) for record in members)

    return Row(
        keys=keys,
        cpu_seconds=held(lambda record: record.cpus),
        gpu_seconds=held(lambda record: record.gpus),
        jobs=len({record.job for record in members}),
        cpu_efficiency=_share((record.seconds * record.cpus, record.cpu_used) for record in members),
        gpu_utilization=_share(
            (size, None if record.gpu_busy is None else size * record.gpu_busy)
            for record in members
            for size in [record.seconds * record.gpus]
        ),
    )


def _share(pairs: Iterable[tuple[float, float | None]]) -> float | None:
    """Return what was used of what was held, of those of which it is measured."""
    known = [(held, used) for held, used in pairs if used is not None]
    whole = sum(held for held, _ in known)
    return sum(used for _, used in known) / whole if whole else None
