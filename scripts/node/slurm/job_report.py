"""One job: its state, why it waits or failed, what it asked for and used, what happened on its nodes meanwhile, and
what to ask for next time.

    hpc-job ID [--json]     ID is a job (7), a task of an array (7_3), or a component of a heterogeneous job (7+1)

Shows what Slurm lets you see, as `sacct` and `squeue` do. `./hpc job STACK ID` shows the same, run by an operator.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from . import hours, job_events, job_failure
from .hostlist import expand
from .job_lines import lines, share, size
from .job_reasons import ENDS, explain, waits_for_service
from .jobs import ENDED, count_tasks
from .output import GPU_USE, count_gpus, parse_json_lines, parse_sacct, parse_tres, sacct_command
from .times import cpu_seconds, epoch, span

RunScript = Callable[[str], str]
"""Runs a script of sh on a machine with Slurm's commands, and returns its standard output."""
ID = re.compile(r"(?P<number>[0-9]{1,10})(?:_[0-9]{1,10}|\+[0-9]{1,5})?")
ALLOWED = "7 (a job), 7_3 (a task of an array), 7+1 (a component of a heterogeneous job)"
FIELDS = tuple(
    "JobIDRaw JobID JobName User Account Partition QOS State ExitCode Submit Eligible Start End ElapsedRaw "
    "TimelimitRaw NodeList ReqTRES AllocTRES TotalCPU CPUTimeRAW TRESUsageInTot TRESUsageInAve Reason "
    "AdminComment".split()
)  # of every release from 22.05 on
WAITING = tuple("id:i state:T reason:r start:S submit:V priority:Q partition:P user:u name:j dependency:E".split())
YEAR_MINUTES = 365 * 24 * 60
"""Time limit that the backfill scheduler gives a job without a limit in a partition without one; the main scheduler
gives it none."""
SHORT_SECONDS = 60
"""A shorter job is no basis for advice: slurmd measures its use every 30 s."""


class JobError(Exception):
    """There is no such job, or neither slurmctld nor the database answers."""


def report(job_id: str, run_script: RunScript, *, now: float | None = None) -> dict[str, Any]:
    """Return the report about a job, as JSON has it. Raises JobError."""
    if not ID.fullmatch(job_id):
        raise JobError(f"{job_id!r} is no job's number. Allowed: {ALLOWED}")
    mark, now = os.urandom(12).hex(), now or time.time()
    records, queue, comment_lines, running = _sections(run_script(_job_script(job_id, mark)), mark, 4)
    notes: list[str] = []
    rows: list[dict[str, str]] = []
    try:
        rows = parse_sacct(records, FIELDS, mark)
    except ValueError:
        last = records.replace(mark, " ").strip().splitlines() or ["no answer"]
        notes.append(f"the accounting database gives no answer, so what is known is slurmctld's: {last[-1]}")
    waiting = _queue_rows(queue, mark)
    if not rows and not waiting:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise JobError(f"neither slurmctld nor the database has a job {job_id}, or it is not for you to see{why}")
    jobs = _jobs(rows, waiting, now)
    live = {job: parse_tres(used) for job, _, used in (line.partition("|") for line in running.splitlines())}
    comments = dict(line.split(maxsplit=1) for line in comment_lines.splitlines() if len(line.split(maxsplit=1)) == 2)
    document: dict[str, Any] = {"job": job_id, "notes": notes, "jobs": jobs}
    for job in jobs:
        _add_live_use(job, live)
        if (text := comments.get(job["id"], "").strip()) and text not in ("(null)", "None", "N/A"):
            job["comment"] = text
    if len(jobs) > 1 and "_" in jobs[0]["id"]:
        document["array"] = _array(jobs)
        document["jobs"] = []
    if document["jobs"]:
        _add_details(document["jobs"], run_script, mark, now)
    for job in document["jobs"]:
        job["next_time"] = advice(job)
    return document


def _job_script(job: str, mark: str) -> str:
    """Return the script that prints four sections: sacct's rows, squeue's, the jobs' comments, and the use of running
    steps."""
    whole = job.partition("+")[0]
    waiting = "".join(f"%{field.partition(':')[2]}{mark}" for field in WAITING)
    return f"""
export SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0; unset SACCT_FORMAT SQUEUE_FORMAT SQUEUE_FORMAT2 SQUEUE_SORT
timeout 30 {sacct_command(FIELDS, mark, f"--jobs={job} --duplicates")} 2>&1
echo {mark}-; q=$(timeout 20 squeue --noheader --jobs={whole} --states=all --format='{waiting}' 2>&1) && echo "$q"
echo {mark}-; timeout 20 squeue --noheader --jobs={whole} --states=all --Format=JobArrayID:40,admin_comment:400 \
2>/dev/null
echo {mark}-; case $q in *RUNNING*) timeout 20 sstat --allsteps --noheader --parsable2 --noconvert \
--format=JobID,TRESUsageInTot --jobs={whole} 2>/dev/null ;; esac
:"""


def _sections(text: str, mark: str, count: int) -> list[str]:
    return [*re.split(f"{mark}-\n", text), *[""] * count][:count]


def _queue_rows(text: str, mark: str) -> list[dict[str, str]]:
    names = tuple(field.partition(":")[0] for field in WAITING)
    try:
        return parse_sacct(text, names, mark)
    except ValueError:
        return []  # squeue printed an error: the job has ended, or slurmctld does not answer


def _jobs(rows: list[dict[str, str]], queue: list[dict[str, str]], now: float) -> list[dict[str, Any]]:
    """Return each job, task or component, with its runs and the steps of its last run."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        number, _, step = row["JobID"].partition(".")
        if not step:
            runs.setdefault(number, []).append({"row": row, "steps": []})
        elif number in runs:
            # sacct prints the steps of a run behind it.
            runs[number][-1]["steps"].append(_step(step, row))
    queued = {row["id"]: row for row in queue}
    if queued:
        # For an array's waiting tasks slurmctld's rows are newer: the database gets a row for each when it starts.
        runs = {number: all_runs for number, all_runs in runs.items() if "[" not in number or number in queued}
    jobs = [_job(number, all_runs, queued.get(number), now) for number, all_runs in runs.items()]
    recorded = {job["number"] for job in jobs}
    # Jobs that the database does not have yet, or all of them if it does not answer.
    jobs += [_job_of_queue(row) for number, row in queued.items() if number not in runs and number not in recorded]
    return jobs


def _job(number: str, runs: list[dict[str, Any]], queued: dict[str, str] | None, now: float) -> dict[str, Any]:
    # Before slurmctld's counter of jobs began again, another user's job may have had the same number.
    row = runs[-1]["row"]
    runs = [run for run in runs if all(run["row"][key] == row[key] for key in ("User", "JobName"))]
    steps, state, limit = runs[-1]["steps"], row["State"], row["TimelimitRaw"]
    # The database's state contains who cancelled a job, but it may be older than slurmctld's.
    if queued and queued["state"] != state.partition(" ")[0]:
        state = queued["state"]
    cpu = sum(step["cpu_seconds"] for step in steps) or cpu_seconds(row["TotalCPU"])
    job: dict[str, Any] = {
        "id": number,
        "number": row["JobIDRaw"],
        "name": row["JobName"],
        "user": row["User"],
        "account": row["Account"],
        "partition": row["Partition"],
        "qos": row["QOS"],
        "state": state,
        "exit_code": row["ExitCode"],
        "exit_text": job_failure.end_in_words(state, row["ExitCode"]),
        # Of a job that has ended, the database keeps why it waited (sacct(1), Reason).
        "reason": row["Reason"] if row["Reason"] in ENDS else "",
        "comment": row["AdminComment"],
        "submitted": epoch(row["Submit"]),
        "eligible": epoch(row["Eligible"]),
        "started": epoch(row["Start"]),
        "ended": epoch(row["End"]),
        "elapsed_seconds": int(row["ElapsedRaw"] or 0),
        "limit_seconds": int(limit) * 60 if limit.isdigit() and int(limit) != YEAR_MINUTES else None,
        "nodes": "" if row["NodeList"] == "None assigned" else row["NodeList"],
        "asked": _resources(parse_tres(row["ReqTRES"])),
        "allocated": _resources(parse_tres(row["AllocTRES"])),
        "steps": steps,
        "used": {
            "cpu_seconds": round(cpu, 3),
            "cpu_efficiency": share(cpu, float(row["CPUTimeRAW"] or 0)),
            "memory_bytes": max((step["memory_bytes"] for step in steps), default=0) or None,
            **_gpu_use(steps),
        },
        "runs": [_run(run["row"]) for run in runs],
        "waits": _pending(queued) if queued else None,
    }
    wait_end = job["started"] or (now if state == "PENDING" else job["ended"])
    job["waited_seconds"] = max(0, round(wait_end - job["submitted"])) if wait_end and job["submitted"] else None
    return job


def _job_of_queue(row: dict[str, str]) -> dict[str, Any]:
    """Return a job that only slurmctld has."""
    empty: dict[str, Any] = dict.fromkeys(("eligible", "started", "ended", "limit_seconds", "waited_seconds"))
    return {
        **empty,
        "id": row["id"],
        "number": row["id"],
        "name": row["name"],
        "user": row["user"],
        "account": "",
        "partition": row["partition"],
        "qos": "",
        "state": row["state"],
        "exit_code": "",
        "exit_text": "",
        "reason": "",
        "comment": "",
        "submitted": epoch(row["submit"]),
        "elapsed_seconds": 0,
        "nodes": "",
        "asked": {},
        "allocated": {},
        "steps": [],
        "used": {},
        "runs": [],
        "waits": _pending(row),
    }


def _pending(row: dict[str, str]) -> dict[str, Any] | None:
    """Return why a job waits, from its row in the queue; None if it does not."""
    if row["state"] != "PENDING":
        return None
    pending: dict[str, Any] = {"reason": row["reason"], "text": explain(row["reason"])}
    pending["start"] = epoch(row["start"])
    pending["priority"] = int(row["priority"]) if row["priority"].isdigit() else None
    if row["dependency"] not in ("", "(null)"):
        pending["dependency"] = row["dependency"]
    return pending


def _step(name: str, row: dict[str, str]) -> dict[str, Any]:
    used = parse_tres(row["TRESUsageInTot"])
    return {
        "step": name,
        "name": row["JobName"],
        "state": row["State"],
        "exit_code": row["ExitCode"],
        "elapsed_seconds": int(row["ElapsedRaw"] or 0),
        "cpu_seconds": cpu_seconds(row["TotalCPU"]),
        "memory_bytes": round(used.get("mem", 0)),
        "gpus": count_gpus(parse_tres(row["AllocTRES"])),
        "gpu_percent": used.get("gres/gpuutil"),
        "gpu_memory_bytes": used.get("gres/gpumem"),
    }


def _gpu_use(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the use of GPUs that Slurm has measured, for the step that used most, by slurmd's last sample. Slurm adds
    up the percent of all GPUs: 200 are two busy ones."""
    measured = [step for step in steps if step["gpu_percent"] is not None and step["gpus"]]
    if not any(step["gpu_percent"] or step["gpu_memory_bytes"] for step in measured):
        return {"gpu_utilization": None, "gpu_memory_bytes": None}
    best = max(measured, key=lambda step: step["gpu_percent"])
    utilization = round(best["gpu_percent"] / 100 / best["gpus"], 3)
    return {"gpu_utilization": utilization, "gpu_memory_bytes": max(s["gpu_memory_bytes"] or 0 for s in measured)}


def _run(row: dict[str, str]) -> dict[str, Any]:
    return {
        "state": row["State"],
        "started": epoch(row["Start"]),
        "ended": epoch(row["End"]),
        "nodes": "" if row["NodeList"] == "None assigned" else row["NodeList"],
        "elapsed_seconds": int(row["ElapsedRaw"] or 0),
        "comment": row["AdminComment"],
    }


def _resources(tres: dict[str, float]) -> dict[str, int]:
    counts = {"nodes": tres.get("node", 0), "cpus": tres.get("cpu", 0), "memory_bytes": tres.get("mem", 0)}
    return {name: round(count) for name, count in {**counts, "gpus": count_gpus(tres)}.items() if count}


def _add_live_use(job: dict[str, Any], live: dict[str, dict[str, float]]) -> None:
    """Add the use of running steps, which the database does not have before they have ended."""
    steps = [tres for step, tres in live.items() if step.partition(".")[0] in (job["id"], job["number"])]
    if not steps or job["state"] != "RUNNING":
        return
    used = job["used"]
    used["cpu_seconds"] = round(used["cpu_seconds"] + sum(tres.get("cpu", 0) for tres in steps), 3)
    cpus = job["allocated"].get("cpus", 0)
    used["cpu_efficiency"] = share(used["cpu_seconds"], cpus * job["elapsed_seconds"])
    used["memory_bytes"] = round(max(used["memory_bytes"] or 0, *(tres.get("mem", 0) for tres in steps))) or None
    percent = max(tres.get("gres/gpuutil", 0) for tres in steps)
    if percent and job["allocated"].get("gpus"):
        used["gpu_utilization"] = round(percent / 100 / job["allocated"]["gpus"], 3)
        used["gpu_memory_bytes"] = round(max(tres.get("gres/gpumem", 0) for tres in steps))


def _add_gpu_metrics(job: dict[str, Any], measured: dict[str, Any]) -> None:
    """Add Prometheus' metrics of the job's GPUs, averages over the time in which they were measured. Use that Slurm has
    measured is not replaced: it is that of the job's steps."""
    used, seconds = job["used"], float(measured.get("seconds") or 0)
    if seconds and job["allocated"].get("gpus"):
        if used.get("gpu_utilization") is None:
            used["gpu_utilization"] = round(measured["busy"] / seconds, 3)
            used["gpu_memory_bytes"] = round(measured["memory_mib"]) << 20
        for name in ("sm_active", "tensor_active"):
            if name in measured:
                used[f"gpu_{name}"] = round(measured[name] / seconds, 3)
        used["gpu_joules"] = round(measured["watts"]) if "watts" in measured else None
        if job["state"] == "RUNNING" and measured.get("idle"):
            used["gpus_idle"] = measured["idle"]


def _array(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the totals of an array. Its waiting tasks are one row."""
    ended = [job for job in jobs if job["state"].partition(" ")[0] in ENDED]
    allocated = sum(job["elapsed_seconds"] * job["allocated"].get("cpus", 0) for job in ended)
    states: Counter[str] = Counter()
    for job in jobs:
        states[job["state"].partition(" ")[0]] += count_tasks(job["id"])
    return {
        "tasks": [{key: job[key] for key in ("id", "state", "elapsed_seconds", "nodes")} for job in jobs],
        "states": dict(states),
        "waits": next((job["waits"] for job in jobs if job["waits"]), None),
        "cpu_efficiency": share(sum(job["used"].get("cpu_seconds", 0) for job in ended), allocated),
        "memory_bytes": max((job["used"].get("memory_bytes") or 0 for job in ended), default=0) or None,
        "longest_seconds": max((job["elapsed_seconds"] for job in ended), default=0),
        "limit_seconds": jobs[0]["limit_seconds"],
    }


def _add_details(jobs: list[dict[str, Any]], run_script: RunScript, mark: str, now: float) -> None:
    """Add the events on the jobs' nodes, use of their GPUs, their outputs, and the jobs that come before them."""
    runs = [run for job in jobs for run in job["runs"] if run["nodes"] and run["started"]]
    since = min((run["started"] for run in runs), default=now) - job_events.BEFORE
    until = max((run["ended"] or now for run in runs), default=now) + job_events.AFTER
    hosts = ",".join(dict.fromkeys(run["nodes"] for run in runs))
    names, numbers = set(expand(hosts)), [job["number"] for job in jobs if job["number"].isdigit()]
    partition = next((job["partition"] for job in jobs if job["waits"]), "")
    started = [job for job in jobs if job["started"]]
    associations = f"timeout 20 {shlex.join(hours.COMMAND)} 2>/dev/null | grep -E {shlex.quote(hours.LIMITED)}"
    outputs = "".join(f"echo {mark}-\n{job_failure.output_script(job)}" for job in started)
    script = f"""
{job_events.script(hosts, names, since, until, mark)}
echo {mark}-; [ -z {shlex.quote(partition)} ] || timeout 20 squeue --noheader --array --states=pending \
--partition={shlex.quote(partition)} --format=%Q 2>/dev/null
echo {mark}-; [ -z {shlex.quote(partition)} ] || timeout 20 sinfo --noheader --list-reasons \
--partition={shlex.quote(partition)} --format='%N: %E' 2>/dev/null
echo {mark}-; [ -r {GPU_USE} ] && grep -E '^\\{{"job": "({"|".join(numbers)})",' {GPU_USE}
echo {mark}-; {associations}
{outputs}:"""
    sections = _sections(run_script(script), mark, 7 + len(jobs))
    states, history, journal, queue, reasons, gpu_use, limits, *texts = sections
    measured = {str(row["job"]): row for row in parse_json_lines(gpu_use) if "job" in row}
    events = job_events.parse(states, history, journal, names)
    output_of = {job["id"]: job_failure.parse_output(text) for job, text in zip(started, texts, strict=False)}
    for job in jobs:
        _add_gpu_metrics(job, measured.get(job["number"], {}))
        job["meanwhile"] = _meanwhile(events, job["runs"])
        job["output"] = output_of.get(job["id"])
        job["failed_steps"] = job_failure.failed_steps(job)
        job["hours"] = [row.left for row in hours.of_job(limits, job["account"], job["user"])]
        waits = job["waits"] or {}
        if waits.get("reason") in ("Priority", "Resources") and waits["priority"] is not None:
            waits["ahead"] = sum(int(text) > waits["priority"] for text in queue.split() if text.isdigit())
        if waits_for_service(waits.get("reason", "")):
            waits["nodes"] = reasons.splitlines()


def _meanwhile(events: list[job_events.Event], runs: list[dict[str, Any]]) -> list[job_events.Event]:
    """Return the events of all runs, each once."""
    found = [
        job_events.of_run(events, run, set(expand(run["nodes"])), failed=job_failure.is_failure(run["state"]))
        for run in runs
        if run["nodes"] and run["started"]
    ]
    return [event for event in events if any(event in of_run for of_run in found)]


# -- what to ask for next time -----------------------------------------------------------------------------------------


def advice(job: dict[str, Any]) -> list[str]:
    """Return what to ask for next time, as sbatch's options with the figures that they follow from. A pure function.

    It is a third more than was used, because runs differ, and slurmd measures use every 30 s.
    """
    state = job["state"].partition(" ")[0]
    used, asked, allocated = job["used"], job["asked"], job["allocated"]
    elapsed, limit = job["elapsed_seconds"], job["limit_seconds"]
    lines: list[str] = []
    peak, memory = used.get("memory_bytes"), asked.get("memory_bytes", 0)
    nodes = max(allocated.get("nodes", 1), 1)
    if state == "TIMEOUT" and limit:
        lines.append(f"--time={span(2 * limit)}, or checkpoints: it reached its limit of {span(limit)}")
    if state == "OUT_OF_MEMORY" and memory:
        lines.append(f"--mem={size(1.5 * memory / nodes, '')}: it needed more than {size(memory / nodes)} on a node")
    if state != "COMPLETED" or elapsed < SHORT_SECONDS:
        return lines
    if limit and elapsed * 2 < limit and limit - elapsed > 600:
        lines.append(
            f"--time={span(-(-elapsed * 4 // 3 // 60) * 60)}: it ran {span(elapsed)} of {span(limit)}; "
            "short jobs start earlier"
        )
    # A job of whole nodes gets all of their CPUs and memory, whatever it asks for.
    is_part = allocated.get("cpus") == asked.get("cpus") and allocated.get("memory_bytes") == memory
    if is_part and peak and memory > 1 << 30 and peak * 2 < memory:
        lines.append(f"--mem={size(max(peak * 4 / 3, 1 << 28) / nodes, '')}: it used {size(peak)} of {size(memory)}")
    cpus, efficiency = allocated.get("cpus", 0), used.get("cpu_efficiency")
    if is_part and efficiency is not None and efficiency < 0.5 and cpus > nodes and not allocated.get("gpus"):
        busy = max(nodes, -(-used["cpu_seconds"] * 4 // 3 // elapsed))
        if busy < cpus:
            lines.append(f"{busy:.0f} CPUs: {used['cpu_seconds'] / elapsed:.1f} of {cpus} were busy on average")
    if (gpu := used.get("gpu_utilization")) is not None and gpu < 0.5 and allocated.get("gpus"):
        lines.append(f"fewer GPUs, or a profile of what it waits for: {allocated['gpus']} were {gpu:.0%} busy")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Run the command hpc-job, and return its exit code."""
    words = [word for word in arguments if word != "--json"]
    if len(words) != 1 or words[0].startswith("-"):
        is_help = words == ["--help"]
        (sys.stdout if is_help else sys.stderr).write(str(__doc__))
        return 0 if is_help else 2
    try:
        document = report(words[0], _run_here)
    except JobError as error:
        sys.stderr.write(f"hpc-job: {error}\n")
        return 1
    text = json.dumps(document, indent=1) if "--json" in arguments else "\n".join(lines(document))
    sys.stdout.write(f"{text}\n")
    return 0


def _run_here(script: str) -> str:
    done = subprocess.run(["/bin/sh", "-c", script], stdout=subprocess.PIPE, check=False)
    return done.stdout.decode(errors="replace")
