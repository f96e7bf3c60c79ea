"""One job: its state, why it waits, what it asked for and used, what happened on its nodes meanwhile, and what to ask
for next time.

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

from .hostlist import expand
from .output import (
    JOURNAL,
    count_gpus,
    count_tasks,
    cpu_seconds,
    parse_json_lines,
    parse_sacct,
    parse_tres,
    split_reason,
    text_values,
)
from .pending_reasons import explain

Ask = Callable[[str], str]
"""Runs a script of sh where Slurm's commands are; its standard output."""
ID = re.compile(r"(?P<number>[0-9]{1,10})(?:_[0-9]{1,10}|\+[0-9]{1,5})?")
ALLOWED = "7 (a job), 7_3 (a task of an array), 7+1 (a component of a heterogeneous job)"
FIELDS = tuple(
    "JobIDRaw JobID JobName User Account Partition QOS State ExitCode Submit Eligible Start End ElapsedRaw "
    "TimelimitRaw NodeList ReqTRES AllocTRES TotalCPU CPUTimeRAW TRESUsageInTot TRESUsageInAve Reason "
    "AdminComment".split()
)  # of every release from 22.05 on
WAITING = tuple("id:i state:T reason:r start:S submit:V priority:Q partition:P user:u name:j dependency:E".split())
GPU_USE = "/opt/apps/adm/hpc/gpu-use.jsonl"  # a job a line, as monitoring/gpu_use.py keeps it
HISTORY = "/opt/apps/adm/hpc/health"  # NODE.jsonl, as health/outcome.py keeps it
BEFORE, AFTER = 600, 300
"""Seconds around a run in which trouble on its nodes counts as its own: the window of arXiv 2410.21680."""
UNENDED = {"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "COMPLETING", "CONFIGURING"}
NO_GPU_USE = (
    "not measured: that takes `monitoring` in the stack file and dcgm-exporter on the nodes, or a slurmd with NVML and "
    "AutoDetect=nvml in gres.conf. `nvidia-smi` on a node of the job shows it while it runs"
)
MOST_NODES = 2000
"""Nodes whose histories are read: more names would not fit into one command."""
SHORT = 60
"""Seconds of a job that is too short to learn from: slurmd reads what it uses every 30."""


class JobError(Exception):
    """There is no such job, or nobody to ask; the message says which."""


def report(given: str, ask: Ask, *, now: float | None = None) -> dict[str, Any]:
    """Return what there is to say of a job, as JSON has it. Raises JobError."""
    found = ID.fullmatch(given)
    if not found:
        raise JobError(f"{given!r} is no job's number. Allowed: {ALLOWED}")
    mark, moment = os.urandom(12).hex(), now or time.time()
    records, queue, more, running = _parts(ask(_first(given, mark)), mark, 4)
    notes: list[str] = []
    rows: list[dict[str, str]] = []
    try:
        rows = parse_sacct(records, FIELDS, mark)
    except ValueError:
        last = records.replace(mark, " ").strip().splitlines() or ["no answer"]
        notes.append(f"the accounting database gives no answer, so what is known is slurmctld's: {last[-1]}")
    waiting = _queue(queue, mark)
    if not rows and not waiting:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise JobError(f"neither slurmctld nor the database has a job {given}, or it is not for you to see{why}")
    jobs = _jobs(rows, waiting, moment)
    live = {job: parse_tres(used) for job, _, used in (line.partition("|") for line in running.splitlines())}
    comments = dict(line.split(maxsplit=1) for line in more.splitlines() if len(line.split(maxsplit=1)) == 2)
    document: dict[str, Any] = {"job": given, "notes": notes, "jobs": jobs}
    for job in jobs:
        _add_live(job, live)
        if (text := comments.get(job["id"], "").strip()) and text not in ("(null)", "None", "N/A"):
            job["comment"] = text
    if len(jobs) > 1 and "_" in jobs[0]["id"]:
        document["array"] = _array(jobs)
        document["jobs"] = []
    if any(job["nodes"] or job["waits"] for job in document["jobs"]):
        _add_surroundings(document["jobs"], ask, mark, moment)
    for job in document["jobs"]:
        job["next_time"] = advice(job)
    return document


def _first(job: str, mark: str) -> str:
    """The script whose parts are sacct's rows, squeue's, the jobs' comments, and the use of running steps."""
    whole = job.partition("+")[0]
    waiting = "".join(f"%{field.partition(':')[2]}{mark}" for field in WAITING)
    return f"""
export SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0; unset SACCT_FORMAT SQUEUE_FORMAT SQUEUE_FORMAT2 SQUEUE_SORT
timeout 30 sacct --jobs={job} --duplicates --parsable --delimiter={mark} --noheader --noconvert \
--format={",".join(FIELDS)} 2>&1
echo {mark}-; q=$(timeout 20 squeue --noheader --jobs={whole} --states=all --format='{waiting}' 2>&1) && echo "$q"
echo {mark}-; timeout 20 squeue --noheader --jobs={whole} --states=all --Format=JobArrayID:40,admin_comment:400 \
2>/dev/null
echo {mark}-; case $q in *RUNNING*) timeout 20 sstat --allsteps --noheader --parsable2 --noconvert \
--format=JobID,TRESUsageInTot --jobs={whole} 2>/dev/null ;; esac
:"""


def _parts(text: str, mark: str, count: int) -> list[str]:
    found = re.split(f"{mark}-\n", text)
    return [*found, *[""] * count][:count]


def _queue(text: str, mark: str) -> list[dict[str, str]]:
    names = tuple(field.partition(":")[0] for field in WAITING)
    try:
        return parse_sacct(text, names, mark)
    except ValueError:
        return []  # an error of squeue's: an ended job, or no slurmctld


def _jobs(rows: list[dict[str, str]], queue: list[dict[str, str]], now: float) -> list[dict[str, Any]]:
    """Each job, task or component, with its runs and the steps of its last one."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        number, _, step = row["JobID"].partition(".")
        if not step:
            runs.setdefault(number, []).append({"row": row, "steps": []})
        elif number in runs:
            # sacct prints the steps of a run behind it.
            runs[number][-1]["steps"].append(_step(step, row))
    waits = {row["id"]: row for row in queue}
    if waits:
        # Of an array's waiting tasks slurmctld's rows are newer: the database learns of each when it starts.
        runs = {number: all_runs for number, all_runs in runs.items() if "[" not in number or number in waits}
    found = [_job(number, all_runs, waits.get(number), now) for number, all_runs in runs.items()]
    there = {job["number"] for job in found}
    # Not in the database yet, or it is away. Of an array, tasks that wait are one row in both.
    found += [_from_queue(row) for number, row in waits.items() if number not in runs and number not in there]
    return found


def _job(number: str, runs: list[dict[str, Any]], waiting: dict[str, str] | None, now: float) -> dict[str, Any]:
    # Another user's job of the same number ran before the counter began again.
    row = runs[-1]["row"]
    runs = [run for run in runs if all(run["row"][key] == row[key] for key in ("User", "JobName"))]
    steps, state = runs[-1]["steps"], row["State"]
    # The database has who cancelled it, and may be behind.
    if waiting and waiting["state"] != state.partition(" ")[0]:
        state = waiting["state"]
    asked, held = parse_tres(row["ReqTRES"]), parse_tres(row["AllocTRES"])
    cpu = sum(step["cpu_seconds"] for step in steps) or cpu_seconds(row["TotalCPU"])
    elapsed = int(row["ElapsedRaw"] or 0)
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
        "reason": "" if row["Reason"] in ("None", "") else row["Reason"],
        "comment": row["AdminComment"],
        "submitted": _moment(row["Submit"]),
        "eligible": _moment(row["Eligible"]),
        "started": _moment(row["Start"]),
        "ended": _moment(row["End"]),
        "elapsed_seconds": elapsed,
        "limit_seconds": int(row["TimelimitRaw"]) * 60 if row["TimelimitRaw"].isdigit() else None,
        "nodes": "" if row["NodeList"] == "None assigned" else row["NodeList"],
        "asked": _resources(asked),
        "allocated": _resources(held),
        "steps": steps,
        "used": {
            "cpu_seconds": round(cpu, 3),
            "cpu_efficiency": _share(cpu, float(row["CPUTimeRAW"] or 0)),
            "memory_bytes": max((step["memory_bytes"] for step in steps), default=0) or None,
            **_gpu_use(steps),
        },
        "runs": [_run(run["row"]) for run in runs],
        "waits": _waits(waiting) if waiting and waiting["state"] == "PENDING" else None,
    }
    began = job["started"] or (now if state == "PENDING" else job["ended"])
    job["waited_seconds"] = max(0, round(began - job["submitted"])) if began and job["submitted"] else None
    return job


def _from_queue(row: dict[str, str]) -> dict[str, Any]:
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
        "reason": "",
        "comment": "",
        "submitted": _moment(row["submit"]),
        "elapsed_seconds": 0,
        "nodes": "",
        "asked": {},
        "allocated": {},
        "steps": [],
        "used": {},
        "runs": [],
        "waits": _waits(row) if row["state"] == "PENDING" else None,
    }


def _waits(row: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"reason": row["reason"], "text": explain(row["reason"])}
    found["start"] = _moment(row["start"])
    found["priority"] = int(row["priority"]) if row["priority"].isdigit() else None
    if row["dependency"] not in ("", "(null)"):
        found["dependency"] = row["dependency"]
    return found


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
    """Use of GPUs, where Slurm has measured it: percent of all of them, of the step that used most (200 are two GPUs
    that are busy), by slurmd's last sample."""
    measured = [step for step in steps if step["gpu_percent"] is not None and step["gpus"]]
    if not any(step["gpu_percent"] or step["gpu_memory_bytes"] for step in measured):
        return {"gpu_utilization": None, "gpu_memory_bytes": None}
    best = max(measured, key=lambda step: step["gpu_percent"])
    utilization = round(best["gpu_percent"] / 100 / best["gpus"], 3)
    return {"gpu_utilization": utilization, "gpu_memory_bytes": max(s["gpu_memory_bytes"] or 0 for s in measured)}


def _run(row: dict[str, str]) -> dict[str, Any]:
    return {
        "state": row["State"],
        "started": _moment(row["Start"]),
        "ended": _moment(row["End"]),
        "nodes": "" if row["NodeList"] == "None assigned" else row["NodeList"],
        "elapsed_seconds": int(row["ElapsedRaw"] or 0),
        "comment": row["AdminComment"],
    }


def _resources(found: dict[str, float]) -> dict[str, int]:
    named = {"nodes": found.get("node", 0), "cpus": found.get("cpu", 0), "memory_bytes": found.get("mem", 0)}
    return {name: round(count) for name, count in {**named, "gpus": count_gpus(found)}.items() if count}


def _add_live(job: dict[str, Any], live: dict[str, dict[str, float]]) -> None:
    """Add what steps use that run now: the database has it when they have ended."""
    mine = [used for step, used in live.items() if step.partition(".")[0] in (job["id"], job["number"])]
    if not mine or job["state"] != "RUNNING":
        return
    used = job["used"]
    used["cpu_seconds"] = round(used["cpu_seconds"] + sum(one.get("cpu", 0) for one in mine), 3)
    cpus = job["allocated"].get("cpus", 0)
    used["cpu_efficiency"] = _share(used["cpu_seconds"], cpus * job["elapsed_seconds"])
    used["memory_bytes"] = round(max(used["memory_bytes"] or 0, *(one.get("mem", 0) for one in mine))) or None
    percent = max(one.get("gres/gpuutil", 0) for one in mine)
    if percent and job["allocated"].get("gpus"):
        used["gpu_utilization"] = round(percent / 100 / job["allocated"]["gpus"], 3)
        used["gpu_memory_bytes"] = round(max(one.get("gres/gpumem", 0) for one in mine))


def _add_gpu_metrics(job: dict[str, Any], measured: dict[str, Any]) -> None:
    """Add what Prometheus has of the job's GPUs, averages over the time in which they were measured. Where Slurm has
    measured their use, that stays: it has a job's steps."""
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
    """The tasks of an array together; tasks that wait are one row."""
    ended = [job for job in jobs if job["state"].partition(" ")[0] not in UNENDED]
    held = sum(job["elapsed_seconds"] * job["allocated"].get("cpus", 0) for job in ended)
    states: Counter[str] = Counter()
    for job in jobs:
        states[job["state"].partition(" ")[0]] += count_tasks(job["id"])
    return {
        "tasks": [{key: job[key] for key in ("id", "state", "elapsed_seconds", "nodes")} for job in jobs],
        "states": dict(states),
        "waits": next((job["waits"] for job in jobs if job["waits"]), None),
        "cpu_efficiency": _share(sum(job["used"].get("cpu_seconds", 0) for job in ended), held),
        "memory_bytes": max((job["used"].get("memory_bytes") or 0 for job in ended), default=0) or None,
        "longest_seconds": max((job["elapsed_seconds"] for job in ended), default=0),
        "limit_seconds": jobs[0]["limit_seconds"],
    }


# -- what happened around it -----------------------------------------------------------------------------------------


def _add_surroundings(jobs: list[dict[str, Any]], ask: Ask, mark: str, now: float) -> None:
    runs = [run for job in jobs for run in job["runs"] if run["nodes"] and run["started"]]
    since = min((run["started"] for run in runs), default=now) - BEFORE
    until = max((run["ended"] or now for run in runs), default=now) + AFTER
    hosts = ",".join(dict.fromkeys(run["nodes"] for run in runs))
    names, numbers = set(expand(hosts)), [job["number"] for job in jobs if job["number"].isdigit()]
    partition = next((job["partition"] for job in jobs if job["waits"]), "")
    script = f"""
export SLURM_TIME_FORMAT=%s; hosts={shlex.quote(hosts)}
[ -z "$hosts" ] || timeout 30 sacctmgr --noheader --parsable2 --readonly show event nodes="$hosts" \
start=uts{int(since)} end=uts{int(until) + 1} format=NodeName,Start,End,State,Reason 2>/dev/null
[ -z "$hosts" ] || timeout 20 sinfo --noheader --Node --nodes="$hosts" --states=drain,down,fail \
--format='%N|%H||%T|%E' 2>/dev/null
echo {mark}-; for name in {shlex.join(sorted(names)[:MOST_NODES])}; do
file={HISTORY}/$name.jsonl; [ -f "$file" ] && [ ! -L "$file" ] && timeout 5 tail -c 20000 "$file"; done
echo {mark}-; [ -r {JOURNAL} ] && tail -c 2000000 {JOURNAL}
echo {mark}-; [ -z {shlex.quote(partition)} ] || timeout 20 squeue --noheader --array --states=pending \
--partition={shlex.quote(partition)} --format=%Q 2>/dev/null
echo {mark}-; [ -r {GPU_USE} ] && grep -E '^\\{{"job": "({"|".join(numbers)})",' {GPU_USE}
:"""
    events, history, journal, queue, gpu_use = _parts(ask(script), mark, 5)
    measured = {str(row["job"]): row for row in parse_json_lines(gpu_use) if "job" in row}
    happened = sorted([*_events(events), *_checks(history), *_repairs(journal, names)], key=lambda one: one["time"])
    for job in jobs:
        _add_gpu_metrics(job, measured.get(job["number"], {}))
        spans = [
            (run["started"] - BEFORE, (run["ended"] or now) + AFTER, set(expand(run["nodes"])))
            for run in job["runs"]
            if run["nodes"] and run["started"]
        ]
        job["meanwhile"] = [
            one for one in happened if any(a <= one["time"] <= b and one["node"] in on for a, b, on in spans)
        ]
        waits = job["waits"] or {}
        if waits.get("reason") in ("Priority", "Resources") and waits["priority"] is not None:
            waits["ahead"] = sum(int(text) > waits["priority"] for text in queue.split() if text.isdigit())


def _events(text: str) -> list[dict[str, Any]]:
    """Nodes that Slurm did not use, as its database has it; and those that it gives no new jobs now, of which the
    database has none while a job runs there."""
    found: list[dict[str, Any]] = []
    known: set[tuple[str, str]] = set()
    for line in text.splitlines():
        cells = line.split("|", 4)
        if len(cells) == 5 and cells[0] and (start := _moment(cells[1])):
            node, _, end, state, reason = cells
            why = split_reason(reason)[0] or "no reason given"
            until = _moment(end)
            if end or (node, why) not in known:
                found.append({"time": start, "until": until, "node": node, "what": f"{state.upper()}: {why}"})
            if not until:
                known.add((node, why))  # the database has this one too
    return found


def _checks(text: str) -> list[dict[str, Any]]:
    """Health checks that failed or warned, by the kept history."""
    found: list[dict[str, Any]] = []
    for row in parse_json_lines(text):
        bad = {**text_values(row.get("warning")), **text_values(row.get("failed"))}
        what = "; ".join(f"{kind}: {said}" for kind, said in bad.items())
        if what and isinstance(row.get("time"), (int, float)):
            found.append({"time": row["time"], "until": None, "node": str(row.get("node")), "what": f"health {what}"})
    return found


def _repairs(text: str, names: set[str]) -> list[dict[str, Any]]:
    """Return what the reconcile loop did with the nodes."""
    found: list[dict[str, Any]] = []
    for row in parse_json_lines(text):
        nodes = row.get("nodes")
        if row.get("mode") == "act" and row.get("action") and isinstance(nodes, list):
            what = f"reconcile {row['action']}: {row.get('reason') or row.get('rule')}"
            mine = [str(node) for node in nodes if node in names]
            found += [{"time": row["time"], "until": None, "node": node, "what": what} for node in mine]
    return found


# -- what to ask for next time -----------------------------------------------------------------------------------------


def advice(job: dict[str, Any]) -> list[str]:
    """Return what to ask for next time, as sbatch's options with the figures that they follow from. A pure function.

    A third more than was used: runs differ, and slurmd reads use every 30 s.
    """
    state = job["state"].partition(" ")[0]
    used, asked, held = job["used"], job["asked"], job["allocated"]
    elapsed, limit = job["elapsed_seconds"], job["limit_seconds"]
    found: list[str] = []
    peak, memory = used.get("memory_bytes"), asked.get("memory_bytes", 0)
    nodes = max(held.get("nodes", 1), 1)
    if state == "TIMEOUT" and limit:
        found.append(f"--time={_span(2 * limit)}, or checkpoints: it reached its limit of {_span(limit)}")
    if state == "OUT_OF_MEMORY" and memory:
        found.append(f"--mem={_size(1.5 * memory / nodes, '')}: it needed more than {_size(memory / nodes)} on a node")
    if state != "COMPLETED" or elapsed < SHORT:
        return found
    if limit and elapsed * 2 < limit and limit - elapsed > 600:
        found.append(
            f"--time={_span(-(-elapsed * 4 // 3 // 60) * 60)}: it ran {_span(elapsed)} of {_span(limit)}; "
            "short jobs start earlier"
        )
    # Whole nodes come with all that they have.
    shared = held.get("cpus") == asked.get("cpus") and held.get("memory_bytes") == memory
    if shared and peak and memory > 1 << 30 and peak * 2 < memory:
        found.append(f"--mem={_size(max(peak * 4 / 3, 1 << 28) / nodes, '')}: it used {_size(peak)} of {_size(memory)}")
    cpus, efficiency = held.get("cpus", 0), used.get("cpu_efficiency")
    if shared and efficiency is not None and efficiency < 0.5 and cpus > nodes and not held.get("gpus"):
        busy = max(nodes, -(-used["cpu_seconds"] * 4 // 3 // elapsed))
        if busy < cpus:
            found.append(f"{busy:.0f} CPUs: {used['cpu_seconds'] / elapsed:.1f} of {cpus} were busy on average")
    if (gpu := used.get("gpu_utilization")) is not None and gpu < 0.5 and held.get("gpus"):
        found.append(f"fewer GPUs, or a profile of what it waits for: {held['gpus']} were {gpu:.0%} busy")
    return found


# -- in words ----------------------------------------------------------------------------------------------------------


def lines(document: dict[str, Any]) -> list[str]:
    """The report as text; names of users can do nothing to a terminal. A pure function."""
    found = [f"note: {note}" for note in document["notes"]]
    if array := document.get("array"):
        found += _array_lines(document["job"], array)
    for job in document["jobs"]:
        found += _job_lines(job)
    return ["".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line) for line in found]


def _array_lines(number: str, array: dict[str, Any]) -> list[str]:
    states = ", ".join(f"{count} {state}" for state, count in sorted(array["states"].items()))
    found = [f"job array {number}: {states}"]
    if array["waits"]:
        found.append(_row("waits", _waiting_text(array["waits"])))
    if array["longest_seconds"]:
        limit = f" of {_span(array['limit_seconds'])}" if array["limit_seconds"] else ""
        found.append(_row("longest", f"{_span(array['longest_seconds'])}{limit}"))
        found.append(_row("CPUs", f"{_percent(array['cpu_efficiency'])} busy"))
        peak = array["memory_bytes"]
        found.append(_row("memory", f"{_size(peak)} at most" if peak else "not measured"))
    return [*found, _row("tasks", f"{number}_N shows one")]


def _job_lines(job: dict[str, Any]) -> list[str]:
    owner = [f"of {job['user']}", *(f"{key} {job[key]}" for key in ("account", "partition", "qos") if job[key])]
    found = [f"job {job['id']} {job['name']!r} {', '.join(owner)}"]
    ended = f", exit code {job['exit_code']}" if job["ended"] and job["exit_code"] else ""
    why = explain(job["reason"]) or job["reason"] if job["ended"] else ""
    found.append(_row("state", f"{job['state']}{ended}{f': {why}' if why else ''}"))
    if job["waits"]:
        found.append(_row("waits", _waiting_text(job["waits"])))
    if job["comment"]:
        found.append(_row("comment", job["comment"]))
    found.append(_row("time", _times(job)))
    if job["nodes"]:
        found.append(_row("nodes", f"{job['allocated'].get('nodes', 1)}: {job['nodes']}"))
    found += [_row(name, text) for name, text in _usage(job) if text]
    if len(job["runs"]) > 1:
        for number, run in enumerate(job["runs"], 1):
            comment = f": {run['comment']}" if run["comment"] else ""
            where = f" on {run['nodes']}" if run["nodes"] else ""
            when = f"{_clock(run['started'])}, {_span(run['elapsed_seconds'])}{where}: " if run["started"] else ""
            text = f"{when}{run['state']}{comment}"
            found.append(_row("runs" if number == 1 else "", f"{number}. {text}"))
    for at, one in enumerate(job.get("meanwhile", ())):
        until = f" until {_clock(one['until'])}" if one["until"] else ""
        found.append(_row("" if at else "meanwhile", f"{_clock(one['time'])}{until} {one['node']} {one['what']}"))
    for at, text in enumerate(job["next_time"]):
        found.append(_row("" if at else "next time", text))
    return found


def _waiting_text(waits: dict[str, Any]) -> str:
    text = f"{waits['reason']}: {waits['text']}" if waits["text"] else waits["reason"].replace("_", " ")
    text += f"; {waits['ahead']} jobs of its partition have a higher priority" if waits.get("ahead") else ""
    text += f"; depends on {waits['dependency']}" if waits.get("dependency") else ""
    return text + (f"; starts at {_clock(waits['start'])} as it looks now" if waits["start"] else "")


def _times(job: dict[str, Any]) -> str:
    limit = f" of {_span(job['limit_seconds'])}" if job["limit_seconds"] else ""
    parts = [f"submitted {_clock(job['submitted'])}"] if job["submitted"] else []
    parts += [f"waited {_span(job['waited_seconds'])}"] if job["waited_seconds"] is not None else []
    parts += [f"ran {_span(job['elapsed_seconds'])}{limit}"] if job["started"] else []
    return ", ".join(parts)


def _usage(job: dict[str, Any]) -> list[tuple[str, str]]:
    """CPUs, memory and GPUs: asked for, and used."""
    held, used = job["allocated"] or job["asked"], job["used"]
    if not held:
        return []
    if not job["started"]:
        return [("asked", ", ".join(f"{_size(n) if k == 'memory_bytes' else n} {_NAMES[k]}" for k, n in held.items()))]
    cpus = f"{held.get('cpus', 0)}, {_percent(used['cpu_efficiency'] or 0.0)} busy"
    memory = held.get("memory_bytes", 0)
    peak = f"{_size(used['memory_bytes'])} at most" if used["memory_bytes"] else "use not measured (too short)"
    share = f" of {_size(memory)} ({_percent(_share(used['memory_bytes'] or 0, memory))})" if memory else ""
    gpu = ""
    if held.get("gpus"):
        measured = used["gpu_utilization"]
        gpu = NO_GPU_USE if measured is None else f"{measured:.0%} busy, {_size(used['gpu_memory_bytes'])} of memory"
        gpu = f"{held['gpus']}, {gpu}{_gpu_details(used)}"
    share = share if used["memory_bytes"] else ""
    return [("CPUs", cpus), ("memory", peak + share), ("GPUs", gpu)]


def _gpu_details(used: dict[str, Any]) -> str:
    """Return what metrics have beyond Slurm's own figures."""
    words = [f"{title} {used[key]:.0%}" for key, title in _GPU_SHARES.items() if used.get(key) is not None]
    if used.get("gpu_joules"):
        words.append(f"{used['gpu_joules'] / 3.6e6:.3g} kWh")
    if used.get("gpus_idle"):
        words.append(f"{used['gpus_idle']} have done nothing for ten minutes")
    return "".join(f", {word}" for word in words)


_GPU_SHARES = {"gpu_sm_active": "multiprocessors active", "gpu_tensor_active": "tensor cores active"}
_NAMES = {"nodes": "nodes", "cpus": "CPUs", "memory_bytes": "of memory", "gpus": "GPUs"}


def _row(name: str, text: str) -> str:
    return f"  {name:<10} {text}"


def _moment(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{5,}", text.strip()) else None


def _clock(moment: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment)) if moment else "never"


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole > 0 else None


def _percent(share: float | None) -> str:
    return "not measured" if share is None else f"{share:.0%}"


def _span(seconds: float) -> str:
    """A time as Slurm's options take it: 1-02:03:04, 02:03:04."""
    days, rest = divmod(round(seconds), 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def _size(size: float, unit: str = "iB") -> str:
    """A size: 1.5 GiB; without the unit as sbatch takes it, in whole MiB."""
    if not unit:
        return f"{-(-size // (1 << 20)):.0f}M"
    name, power = next(((n, p) for n, p in (("T", 40), ("G", 30), ("M", 20), ("K", 10)) if size >= 1 << p), ("K", 10))
    return f"{size / (1 << power):.3g} {name}{unit}"


def main(arguments: Sequence[str]) -> int:
    """The command hpc-job; its exit code."""
    given = [word for word in arguments if word != "--json"]
    if len(given) != 1 or given[0].startswith("-"):
        wanted = given == ["--help"]
        (sys.stdout if wanted else sys.stderr).write(str(__doc__))
        return 0 if wanted else 2
    try:
        document = report(given[0], _here)
    except JobError as error:
        sys.stderr.write(f"hpc-job: {error}\n")
        return 1
    text = json.dumps(document, indent=1) if "--json" in arguments else "\n".join(lines(document))
    sys.stdout.write(f"{text}\n")
    return 0


def _here(script: str) -> str:
    done = subprocess.run(["/bin/sh", "-c", script], stdout=subprocess.PIPE, check=False)
    return done.stdout.decode(errors="replace")
