"""Runs of jobs in Slurm's database, as `usage` and `reliability` read them."""

from collections.abc import Mapping
from dataclasses import dataclass

from scripts.node.slurm.output import count_gpus, parse_sacct, parse_tres, sacct_command

UNENDED = ("RUNNING", "SUSPENDED")
"""States (sacct(1)) of a job without an end in the database."""


@dataclass(kw_only=True)
class JobRecord:
    """A run of a job that held resources. A requeued job has several."""

    row: Mapping[str, str]
    """Its fields."""
    held: dict[str, float]
    """Quantities by the name of the resource (TRES)."""
    gpus: int
    gpu_busy: float | None = None
    """Busy share of its GPUs in the busiest step, if Slurm measured it: only where slurmd has NVML."""


def records_command(fields: tuple[str, ...], mark: str, options: str) -> str:
    """Return the commands that print two sections for `parse_job_records`: every run of the jobs that the options of
    sacct choose, and the jobs that slurmctld has. `fields` contain JobID, JobIDRaw, State, AllocTRES and
    TRESUsageInTot."""
    records = sacct_command(fields, mark, f"--allusers --duplicates {options}")
    return (
        f"{records} || exit; "
        f"echo {mark}-; squeue --noheader --array --states=running,suspended,completing --format=%A || exit"
    )


def parse_job_records(records: str, alive: str, fields: tuple[str, ...], mark: str) -> tuple[list[JobRecord], int]:
    """Return the runs, and the number of runaways: jobs without an end in the database that slurmctld does not have,
    which ended at an unknown time and are left out. Raises ValueError for a text of another format."""
    running, runaways = set(alive.split()), set[str]()
    runs: list[JobRecord] = []
    current: JobRecord | None = None
    for row in parse_sacct(records, fields, mark):
        if "." in row["JobID"]:
            # A step follows its run. gres/gpuutil is in percent of one GPU.
            percent = parse_tres(row["TRESUsageInTot"]).get("gres/gpuutil")
            if current and current.gpus and percent is not None:
                current.gpu_busy = max(current.gpu_busy or 0.0, min(1.0, percent / 100 / current.gpus))
            continue
        held = parse_tres(row["AllocTRES"])
        is_runaway = row["State"] in UNENDED and row["JobIDRaw"] not in running
        current = JobRecord(row=row, held=held, gpus=count_gpus(held)) if held and not is_runaway else None
        runs += [current] if current else []
        runaways |= {row["JobID"]} if is_runaway else set()
    return runs, len(runaways)
