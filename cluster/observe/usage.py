"""CPU and GPU hours, efficiency and number of jobs by user, account and partition, from sacct's records."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from cluster.observe.job_records import UNENDED, parse_job_records, records_command
from scripts.node.slurm.times import cpu_seconds

FIELDS = tuple(
    "JobID User Account Partition ElapsedRaw AllocTRES JobIDRaw State Start End TotalCPU TRESUsageInTot".split()
)
GroupKey = Literal["user", "account", "partition"]
GROUP_KEYS: tuple[GroupKey, ...] = ("user", "account", "partition")


@dataclass(frozen=True, kw_only=True)
class UsageRecord:
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
    """Busy share of its GPUs, if it was measured (JobRecord)."""


@dataclass(frozen=True, kw_only=True)
class UsageRow:
    """Usage of one user, account, partition or a combination of them."""

    keys: tuple[str, ...]
    cpu_seconds: int = 0
    gpu_seconds: int = 0
    jobs: int = 0
    cpu_efficiency: float | None = None
    """Used share of the CPU time that jobs held, over jobs that are entirely in the period."""
    gpu_utilization: float | None = None
    """Busy share of the GPU time that jobs held, over jobs for which it was measured."""

    @property
    def cpu_hours(self) -> float:
        """The number of CPUs that jobs held, multiplied by hours."""
        return self.cpu_seconds / 3600

    @property
    def gpu_hours(self) -> float:
        return self.gpu_seconds / 3600


def command(mark: str, since: str, until: str) -> str:
    """Return the commands for `parse_records`, of two shell words that are moments on the controller.

    Every run of a requeued job counts, but not the time outside the period (--truncate). A running job counts until
    now.
    """
    return records_command(FIELDS, mark, f"--truncate --starttime={since} --endtime={until}")


@dataclass(frozen=True, kw_only=True)
class UsageRecords:
    """Records of jobs, and the number of records that can't be used."""

    records: list[UsageRecord]
    runaways: int
    """Jobs without an end in the database that slurmctld does not have, so that their end is unknown."""


def parse_records(text: str, mark: str, since: str = "", until: str = "9") -> UsageRecords:
    """Parse the output of `command`; `since` and `until` are its moments in sacct's format. Runaways and jobs without
    resources, such as pending ones, are left out. Raises ValueError for a text of another format."""
    records, alive, gpu_use, *_ = [*text.split(f"{mark}-\n"), "", ""]
    runs, runaways = parse_job_records(records, alive, gpu_use, FIELDS, mark)
    found: list[UsageRecord] = []
    for run in runs:
        row = run.row
        whole = since < row["Start"] and row["End"] < until and row["State"] not in UNENDED
        found.append(
            UsageRecord(
                job=row["JobID"],
                user=row["User"],
                account=row["Account"],
                partition=row["Partition"],
                seconds=int(row["ElapsedRaw"] or 0),
                cpus=int(run.held.get("cpu", 0)),
                gpus=run.gpus,
                cpu_used=cpu_seconds(row["TotalCPU"]) if whole else None,
                gpu_busy=run.gpu_busy,
            )
        )
    return UsageRecords(records=found, runaways=runaways)


def table(found: Iterable[UsageRecord], by: Iterable[GroupKey] = GROUP_KEYS) -> list[UsageRow]:
    """Return a row for each combination of `by`, sorted by use of GPUs, then of CPUs."""
    keys = tuple(by)
    groups: dict[tuple[str, ...], list[UsageRecord]] = {}
    for record in found:
        groups.setdefault(tuple(getattr(record, key) for key in keys), []).append(record)
    rows = [_row(group, members) for group, members in groups.items()]
    return sorted(rows, key=lambda row: (-row.gpu_seconds, -row.cpu_seconds, row.keys))


def total(found: Iterable[UsageRecord]) -> UsageRow:
    """Return the sum of all records. A job with several runs counts as one job."""
    return _row((), list(found))


def _row(keys: tuple[str, ...], members: list[UsageRecord]) -> UsageRow:
    def held(of: Callable[[UsageRecord], int]) -> int:
        return sum(record.seconds * of(record) for record in members)

    return UsageRow(
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
