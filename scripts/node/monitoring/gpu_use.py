"""What jobs make of their GPUs, from the metrics that dcgm-exporter has of them: summed up by `hpc-metrics` on the
controller, kept in a file that users can read, shown by `hpc-job` and `./hpc job`. Where Prometheus has a machine of
its own, that machine gives the controller the figures of now in the cluster state.

Each collection asks Prometheus for the values of now, so that a job costs the same however long it runs, and its
figures outlive the metrics. GPUs that a job leaves idle for ten minutes are named to its user, once, if the job asks
for mail about its failure (--mail-type=FAIL, or ALL).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from monitoring import prometheus
from monitoring.slurm_metrics import Sample
from slurm import output
from system import cluster_state
from system.host import SetupError, log, run, write

FILE = cluster_state.FOLDER / "gpu-use.jsonl"  # a job a line, as users' hpc-job looks for its own
GIVEN = cluster_state.METRICS / "gpus.json"  # from Prometheus' own machine
KEPT = 2000  # jobs of the file; then those go that were measured longest ago
LONGEST_GAP = 300.0  # seconds between two collections that count: after more, what the GPUs did is not known
MAIL = "/usr/local/sbin/hpc-mail"
QUERIES = {
    "gpus": 'count by (hpc_job) (DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}) and on (hpc_job) last_over_time(hpc_job_gpus[3m])',
    "busy": 'sum by (hpc_job) (DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}) / 100',
    "sm_active": 'sum by (hpc_job) (DCGM_FI_PROF_SM_ACTIVE{hpc_job!=""})',
    "tensor_active": 'sum by (hpc_job) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{hpc_job!=""})',
    "watts": 'sum by (hpc_job) (DCGM_FI_DEV_POWER_USAGE{hpc_job!=""})',
    "memory_mib": 'max by (hpc_job) (DCGM_FI_DEV_FB_USED{hpc_job!=""})',
}
"""PromQL of each figure of now, by job. A job that has ended is none of `gpus`, whatever its nodes say."""
SUMS = ("busy", "sm_active", "tensor_active", "watts")
"""Figures that are summed up over time: GPU seconds, of `watts` joules."""
_MAIL = re.compile(r"^ *MailUser=(?P<user>\S+) MailType=(?P<types>\S+)$", re.MULTILINE)
_JOB = re.compile("[0-9][0-9_]*")
Figures = Mapping[str, Mapping[str, float]]
Job = dict[str, Any]


def now(idle: str) -> dict[str, dict[str, float]]:
    """Each figure of now, by job; `idle` is the query of those that are idle. Raises OSError: Prometheus does not
    answer."""
    return {
        name: {row["metric"].get("hpc_job", ""): float(row["value"][1]) for row in prometheus.query(expression)}
        for name, expression in {**QUERIES, "idle": idle}.items()
    }


def give(idle: str) -> None:
    """Give the figures of now to the controller: nothing but this machine reaches Prometheus."""
    cluster_state.write_as_slurm(GIVEN, json.dumps({"time": time.time(), **now(idle)}) + "\n")


def given() -> dict[str, dict[str, float]]:
    """The figures that Prometheus' own machine has given. Raises SetupError: there are none of now."""
    found = cluster_state.read_object(GIVEN)
    try:
        age = time.time() - float(found.get("time", 0))
        # Root of any machine may write there, and numbers of jobs become arguments of commands.
        figures = {
            name: {job: float(value) for job, value in found.get(name, {}).items() if _JOB.fullmatch(job)}
            for name in (*QUERIES, "idle")
        }
    except (AttributeError, TypeError, ValueError):
        raise SetupError(f"{GIVEN} can't be read") from None
    if not abs(age) < LONGEST_GAP:
        raise SetupError(f"{GIVEN} has nothing new: does hpc-metrics run on the machine of Prometheus?")
    return figures


def collect(found: Figures) -> Iterator[Sample]:
    """Sum up what jobs use now, and write to users whose GPUs have become idle. It has no metrics of its own."""
    before = (
        {str(job["job"]): job for job in output.parse_json_lines(FILE.read_text()) if "job" in job}
        if FILE.exists()
        else {}
    )
    jobs, named = add(before, found, time.time())
    if jobs:
        # Before any mail, so that none is sent twice.
        write(FILE, "".join(f"{json.dumps(job)}\n" for job in jobs), quiet=True)
    for job in named:
        _write_to_user(job)
    return iter(())


def add(before: Mapping[str, Job], now_used: Figures, now: float) -> tuple[list[Job], list[Job]]:
    """Return all jobs with what they have used up to now, and those whose GPUs have become idle. A pure
    function."""
    jobs = {name: {key: job[key] for key in job if key != "idle"} for name, job in before.items()}
    fresh: list[Job] = []
    for name, gpus in now_used["gpus"].items():
        job = jobs.setdefault(name, {"job": name, "seconds": 0.0, "until": now})
        span = max(0.0, now - job["until"])
        span = span if span <= LONGEST_GAP else 0.0
        job |= {"gpus": max(round(gpus), job.get("gpus", 0)), "until": round(now, 1)}
        job["seconds"] = round(job["seconds"] + gpus * span, 3)
        for figure in SUMS:
            if name in now_used[figure]:
                job[figure] = round(job.get(figure, 0.0) + now_used[figure][name] * span, 3)
        job["memory_mib"] = max(now_used["memory_mib"].get(name, 0), job.get("memory_mib", 0))
        if idle := now_used["idle"].get(name):
            job["idle"] = round(idle)
            if not job.get("named"):
                job["named"] = True
                fresh.append(job)
    newest = sorted(jobs.values(), key=lambda job: job["until"], reverse=True)
    return newest[:KEPT], fresh


def _write_to_user(job: Job) -> None:
    """Mail to the address of a job, if that asks for mail about its failure."""
    try:
        asked = _MAIL.findall(run("scontrol", "show", "job", job["job"], timeout=5))
        if asked and {"FAIL", "ALL"} & set(asked[-1][1].split(",")):
            subject = f"Slurm Job_id={job['job']}: {job['idle']} of {job['gpus']} GPUs idle for ten minutes"
            run("runuser", "-u", "slurm", "--", MAIL, "-s", subject, asked[-1][0], timeout=5)
    except SetupError as error:
        log(f"no mail about idle GPUs of job {job['job']}: {error}")
