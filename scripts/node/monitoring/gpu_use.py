"""The use of GPUs by jobs, from the metrics of dcgm-exporter.

`hpc-metrics` on the controller sums it up in a file that users can read; `hpc-job`, `./hpc job`, `usage` and
`reliability` read it. If Prometheus has a machine of its own, that machine writes the current figures to the cluster
state.

Each collection queries Prometheus for current values only. So the cost of a job does not depend on its length, and its
figures outlive the metrics. If a job leaves GPUs idle for ten minutes, its user gets one mail, provided that the job
requests mail about its failure (--mail-type=FAIL, or ALL).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from interface import lookback_seconds
from monitoring import prometheus
from monitoring.metrics import Sample
from slurm import output
from system import cluster_state
from system.host import SetupError, log, run, write

FILE = Path(output.GPU_USE)
PUBLISHED = cluster_state.METRICS / "gpus.json"  # written by Prometheus' own machine
KEPT = 10_000  # jobs in the file, 2 MB; those that were measured longest ago are removed
MAIL = "/usr/local/sbin/hpc-mail"
QUERIES = {
    "gpus": 'count by (hpc_job) (DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}) and on (hpc_job) '
    "last_over_time(hpc_job_gpus[LOOKBACKs])",
    "busy": 'sum by (hpc_job) (DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}) / 100',
    "sm_active": 'sum by (hpc_job) (DCGM_FI_PROF_SM_ACTIVE{hpc_job!=""})',
    "tensor_active": 'sum by (hpc_job) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{hpc_job!=""})',
    "watts": 'sum by (hpc_job) (DCGM_FI_DEV_POWER_USAGE{hpc_job!=""})',
    "memory_mib": 'max by (hpc_job) (DCGM_FI_DEV_FB_USED{hpc_job!=""})',
}
"""PromQL of each current figure, by job. `gpus` has no ended jobs, even if their nodes still report them. LOOKBACK
stands for lookback_seconds of the interval of collection."""
SUMS = ("busy", "sm_active", "tensor_active", "watts")
"""Figures that are summed up over time: the sums are GPU seconds, and joules for `watts`."""
_MAIL = re.compile(r"^ *MailUser=(?P<user>\S+) MailType=(?P<types>\S+)$", re.MULTILINE)
_JOB = re.compile("[0-9][0-9_]*")
Figures = Mapping[str, Mapping[str, float]]
Job = dict[str, Any]


def query_now(idle: str, interval: int) -> dict[str, dict[str, float]]:
    """Return each current figure by job; `idle` is the query of idle GPUs, `interval` the seconds between two
    collections. Raises OSError without Prometheus."""
    expressions = {**QUERIES, "idle": idle}
    expressions["gpus"] = QUERIES["gpus"].replace("LOOKBACK", str(lookback_seconds(interval, 180)))
    return {
        name: {row["metric"].get("hpc_job", ""): float(row["value"][1]) for row in prometheus.query(expression)}
        for name, expression in expressions.items()
    }


def publish(idle: str, interval: int) -> None:
    """Write the current figures for the controller, which can't reach Prometheus."""
    cluster_state.write_as_slurm(PUBLISHED, json.dumps({"time": time.time(), **query_now(idle, interval)}) + "\n")


def read_published(interval: int) -> dict[str, dict[str, float]]:
    """Return the figures from Prometheus' own machine. Raises SetupError if there are no current ones."""
    document = cluster_state.read_object(PUBLISHED)
    try:
        age = time.time() - float(document.get("time", 0))
        # Root of any machine may write the file, and the job numbers become arguments of commands.
        figures = {
            name: {job: float(value) for job, value in document.get(name, {}).items() if _JOB.fullmatch(job)}
            for name in (*QUERIES, "idle")
        }
    except (AttributeError, TypeError, ValueError):
        raise SetupError(f"{PUBLISHED} can't be read") from None
    if not abs(age) < lookback_seconds(interval):
        raise SetupError(f"{PUBLISHED} has nothing new: does hpc-metrics run on the machine of Prometheus?")
    return figures


def collect(figures: Figures, interval: int) -> Iterator[Sample]:
    """Add the current figures to the file, and send mail about idle GPUs. It yields no metrics."""
    before = (
        {str(job["job"]): job for job in output.parse_json_lines(FILE.read_text()) if "job" in job}
        if FILE.exists()
        else {}
    )
    jobs, idle = add(before, figures, time.time(), lookback_seconds(interval))
    if jobs:
        # Before any mail, so that no mail is sent twice.
        write(FILE, "".join(f"{json.dumps(job)}\n" for job in jobs), quiet=True)
    for job in idle:
        _send_mail(job)
    return iter(())


def add(before: Mapping[str, Job], figures: Figures, now: float, longest: float) -> tuple[list[Job], list[Job]]:
    """Return all jobs with their use up to now, and those whose GPUs have become idle. If more than `longest` seconds
    lie between two collections, the use in between is unknown and not counted. A pure function."""
    jobs = {name: {key: job[key] for key in job if key != "idle"} for name, job in before.items()}
    newly_idle: list[Job] = []
    for name, gpus in figures["gpus"].items():
        job = jobs.setdefault(name, {"job": name, "seconds": 0.0, "until": now})
        span = max(0.0, now - job["until"])
        span = span if span <= longest else 0.0
        job |= {"gpus": max(round(gpus), job.get("gpus", 0)), "until": round(now, 1)}
        job["seconds"] = round(job["seconds"] + gpus * span, 3)
        for figure in SUMS:
            if name in figures[figure]:
                job[figure] = round(job.get(figure, 0.0) + figures[figure][name] * span, 3)
        job["memory_mib"] = max(figures["memory_mib"].get(name, 0), job.get("memory_mib", 0))
        if idle := figures["idle"].get(name):
            job["idle"] = round(idle)
            if not job.get("named"):
                job["named"] = True
                newly_idle.append(job)
    newest = sorted(jobs.values(), key=lambda job: job["until"], reverse=True)
    return newest[:KEPT], newly_idle


def _send_mail(job: Job) -> None:
    """Send mail about idle GPUs to the address of a job that requests mail about its failure."""
    try:
        requests = _MAIL.findall(run("scontrol", "show", "job", job["job"], timeout=5))
        if requests and {"FAIL", "ALL"} & set(requests[-1][1].split(",")):
            subject = f"Slurm Job_id={job['job']}: {job['idle']} of {job['gpus']} GPUs idle for ten minutes"
            run("runuser", "-u", "slurm", "--", MAIL, "-s", subject, requests[-1][0], timeout=5)
    except SetupError as error:
        log(f"no mail about idle GPUs of job {job['job']}: {error}")
