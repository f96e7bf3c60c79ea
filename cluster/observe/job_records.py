"""Runs of jobs in Slurm's database, as `usage` and `reliability` read them."""

from collections.abc import Mapping
from dataclasses import dataclass

from scripts.node.slurm.output import GPU_USE, count_gpus, parse_json_lines, parse_sacct, parse_tres, sacct_command

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
    """Busy share of its GPUs, if it was measured: that of its busiest step by Slurm, where slurmd has NVML; else the
    average over the job by DCGM."""


def records_command(fields: tuple[str, ...], mark: str, options: str) -> str:
    """Return the commands that print three sections for `parse_job_records`: every run of the jobs that the options of
    sacct choose, the jobs that slurmctld has, and the use of GPUs by DCGM. `fields` contain JobID, JobIDRaw, State,
    AllocTRES and TRESUsageInTot."""
    records = sacct_command(fields, mark, f"--allusers --duplicates {options}")
    return (
        f"{records} || exit; "
        f"echo {mark}-; squeue --noheader --array --states=running,suspended,completing --format=%A || exit; "
        f"echo {mark}-; cat {GPU_USE} 2>/dev/null || :"
    )


def parse_job_records(
    records: str, alive: str, gpu_use: str, fields: tuple[str, ...], mark: str
) -> tuple[list[JobRecord], int]:
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
    if not any(run.gpu_busy for run in runs):  # slurmd without NVML measures nothing, or 0
        busy = _busy_shares(gpu_use)
        for run in runs:
            run.gpu_busy = busy.get(run.row["JobIDRaw"]) if run.gpus else None
    return runs, len(runaways)


def _busy_shares(gpu_use: str) -> dict[str, float]:
    """Return by job the busy share of the GPU time that DCGM measured."""
    measured = [row for row in parse_json_lines(gpu_use) if row.get("seconds") and "busy" in row]
    return {str(row["job"]): min(1.0, row["busy"] / row["seconds"]) for row in measured}
