"""CPU and GPU hours, efficiency and number of jobs by user, account and partition, from sacct's records."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from scripts.node.slurm.output import count_gpus, cpu_seconds, parse_tres

FIELDS = tuple(
    "JobID User Account Partition ElapsedRaw AllocTRES JobIDRaw State Start End TotalCPU TRESUsageInTot".split()
)
UNENDED = ("RUNNING", "SUSPENDED")
"""States (sacct(1)) of a job without an end in the database."""
ALIVE = "alive"
"""Prefix of the lines with the jobs that slurmctld has."""
GroupKey = Literal["user", "account", "partition"]
GROUP_KEYS: tuple[GroupKey, ...] = ("user", "account", "partition")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Resources that one run of a job held in the requested period."""

    job: str
    user: str
    account: str
    partition: str
    seconds: int
    cpus: int
    gpus: int
    cpu_used: float | None = None
    """CPU seconds that it used. Only known for a run that is entirely in the period, as sacct gives them for whole
    runs."""
    gpu_busy: float | None = None
    """Busy share of its GPUs, if Slurm measured it."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Usage of one user, account, partition or a combination of them."""

    keys: tuple[str, ...]
    cpu_seconds: int = 0
    gpu_seconds: int = 0
    jobs: int = 0
    cpu_efficiency: float | None = None
    """Used share of the CPU time that jobs held, over jobs that are entirely in the period."""
    gpu_utilization: float | None = None
    """Busy share of the GPU time that jobs held, over jobs for which Slurm measured it."""

    @property
    def cpu_hours(self) -> float:
        """The number of CPUs that jobs held, multiplied by hours."""
        return self.cpu_seconds / 3600

    @property
    def gpu_hours(self) -> float:
        return self.gpu_seconds / 3600


def command(since: str, until: str) -> str:
    """Return the command for `parse_records`, of two shell words that are moments on the controller.

    Every run of a requeued job counts (--duplicates), but not the time outside the period (--truncate). A running job
    counts until now.
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
    """Records of jobs, and the number of records that can't be used."""

    records: list[Record]
    runaways: int
    """Jobs without an end in the database that slurmctld does not have, so that their end is unknown."""


def parse_records(text: str, since: str = "", until: str = "9") -> UsageRecords:
    """Parse the output of `command`; `since` and `until` are its moments in sacct's format. Runaways and jobs without
    resources, such as pending ones, are left out. Raises ValueError for a line of another format."""
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
            # A step follows its run. Slurm measures GPUs in percent of one, and only where slurmd has NVML.
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
    """Return a row for each combination of `by`, sorted by use of GPUs, then of CPUs."""
    keys = tuple(by)
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in found:
        groups.setdefault(tuple(getattr(record, key) for key in keys), []).append(record)
    rows = [_row(group, members) for group, members in groups.items()]
    return sorted(rows, key=lambda row: (-row.gpu_seconds, -row.cpu_seconds, row.keys))


def total(found: Iterable[Record]) -> Row:
    """Return the sum of all records. A job with several runs counts as one job."""
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
    """Return the used share of pairs (held, used), of which those without a measurement are left out."""
    measured = [(held, used) for held, used in pairs if used is not None]
    total = sum(held for held, _ in measured)
    return sum(used for _, used in measured) / total if total else None
