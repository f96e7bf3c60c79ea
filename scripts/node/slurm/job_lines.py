"""The report about a job as lines for people. Pure functions."""

import time
from typing import Any

from .job_failure import has_failed
from .job_reasons import explain
from .times import span

NO_GPU_USE = (
    "not measured: that takes `monitoring` in the stack file and dcgm-exporter on the nodes. `nvidia-smi` on a node of "
    "the job shows it while it runs"
)


def lines(document: dict[str, Any]) -> list[str]:
    """Return the lines of a report. Unprintable characters in users' texts are escaped. A pure function."""
    text = [f"note: {note}" for note in document["notes"]]
    if array := document.get("array"):
        text += _array_lines(document["job"], array)
    for job in document["jobs"]:
        text += _job_lines(job)
    return ["".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line) for line in text]


def _array_lines(number: str, array: dict[str, Any]) -> list[str]:
    states = ", ".join(f"{count} {state}" for state, count in sorted(array["states"].items()))
    text = [f"job array {number}: {states}"]
    if array["waits"]:
        text.append(_row("waits", _pending_text(array["waits"])))
    if array["longest_seconds"]:
        limit = f" of {span(array['limit_seconds'])}" if array["limit_seconds"] else ""
        text.append(_row("longest", f"{span(array['longest_seconds'])}{limit}"))
        text.append(_row("CPUs", f"{_percent(array['cpu_efficiency'])} busy"))
        peak = array["memory_bytes"]
        text.append(_row("memory", f"{size(peak)} at most" if peak else "not measured"))
    return [*text, _row("tasks", f"{number}_N shows one")]


def _job_lines(job: dict[str, Any]) -> list[str]:
    owner = [f"of {job['user']}", *(f"{key} {job[key]}" for key in ("account", "partition", "qos") if job[key])]
    text = [f"job {job['id']} {job['name']!r} {', '.join(owner)}"]
    text.append(_row("state", _state_text(job)))
    if job["waits"]:
        text.append(_row("waits", _pending_text(job["waits"])))
        text += _rows("reasons", job["waits"].get("nodes", []))
    if job["comment"]:
        text.append(_row("comment", job["comment"]))
    limit = f" of {span(job['limit_seconds'])}" if job["limit_seconds"] else ""
    times = [f"submitted {_clock(job['submitted'])}"] if job["submitted"] else []
    times += [f"waited {span(job['waited_seconds'])}"] if job["waited_seconds"] is not None else []
    times += [f"ran {span(job['elapsed_seconds'])}{limit}"] if job["started"] else []
    text.append(_row("time", ", ".join(times)))
    if job["nodes"]:
        text.append(_row("nodes", f"{job['allocated'].get('nodes', 1)}: {job['nodes']}"))
    text += [_row(name, words) for name, words in _usage(job) if words]
    text += _rows("failed", [_step_text(step) for step in job.get("failed_steps", ())])
    text += _rows("hours", job.get("hours", []))
    text += _output_lines(job)
    if len(job["runs"]) > 1:
        for number, run in enumerate(job["runs"], 1):
            comment = f": {run['comment']}" if run["comment"] else ""
            where = f" on {run['nodes']}" if run["nodes"] else ""
            when = f"{_clock(run['started'])}, {span(run['elapsed_seconds'])}{where}: " if run["started"] else ""
            text.append(_row("runs" if number == 1 else "", f"{number}. {when}{run['state']}{comment}"))
    text += _rows("meanwhile", [_event_text(event) for event in job.get("meanwhile", ())])
    return text + _rows("next time", job["next_time"])


def _state_text(job: dict[str, Any]) -> str:
    text = job["state"]
    if job["ended"]:
        text += f", exit code {job['exit_code']}" if job["exit_code"] else ""
        why = [job["exit_text"], explain(job["reason"]) or job["reason"]]
        text += "".join(f": {words}" for words in list(filter(None, why))[:1])
    return text


def _step_text(step: dict[str, Any]) -> str:
    why = f": {step['text']}" if step["text"] else ""
    return f"step {step['step']} ({step['name']}) {step['state']}, exit code {step['exit_code']}{why}"


def _output_lines(job: dict[str, Any]) -> list[str]:
    """Return the path of the output, and of a job that failed its end."""
    output = job.get("output")
    if not output or not output["path"]:
        return []
    text = [_row("output", output["path"])]
    if has_failed(job):
        text += _rows("NCCL", [output["nccl"]] if output["nccl"] else [])
        text += _rows("its end", output["lines"])
    return text


def _event_text(event: dict[str, Any]) -> str:
    ended = event["until"] not in (None, event["time"])
    until = f" until {_clock(event['until'])}" if ended else ""
    return f"{_clock(event['time'])}{until} {event['node']} {event['what']}"


def _pending_text(pending: dict[str, Any]) -> str:
    text = f"{pending['reason']}: {pending['text']}" if pending["text"] else pending["reason"].replace("_", " ")
    if ahead := pending.get("ahead"):
        have = "job of its partition has" if ahead == 1 else "jobs of its partition have"
        text += f"; {ahead} {have} a higher priority"
    text += f"; depends on {pending['dependency']}" if pending.get("dependency") else ""
    return text + (f"; starts at {_clock(pending['start'])} as it looks now" if pending["start"] else "")


def _usage(job: dict[str, Any]) -> list[tuple[str, str]]:
    """Return rows about CPUs, memory and GPUs: how many the job has, and their use."""
    resources, used = job["allocated"] or job["asked"], job["used"]
    if not resources:
        return []
    memory = resources.get("memory_bytes", 0)
    if not job["started"]:
        words = [f"{size(n) if key == 'memory_bytes' else n} {_NAMES[key]}" for key, n in resources.items()]
        return [("asked", ", ".join(words))]
    cpus = f"{resources.get('cpus', 0)}, {_percent(used['cpu_efficiency'] or 0.0)} busy"
    peak = "use not measured (too short)"
    if used["memory_bytes"]:
        part = f" of {size(memory)} ({_percent(share(used['memory_bytes'], memory))})" if memory else ""
        peak = f"{size(used['memory_bytes'])} at most{part}"
    gpu = ""
    if resources.get("gpus"):
        measured = used["gpu_utilization"]
        gpu = NO_GPU_USE if measured is None else f"{measured:.0%} busy, {size(used['gpu_memory_bytes'])} of memory"
        words = [gpu, *(f"{title} {used[key]:.0%}" for key, title in _GPU_SHARES.items() if used.get(key) is not None)]
        words += [f"{used['gpu_joules'] / 3.6e6:.3g} kWh"] if used.get("gpu_joules") else []
        words += [f"{used['gpus_idle']} have done nothing for ten minutes"] if used.get("gpus_idle") else []
        gpu = ", ".join([str(resources["gpus"]), *words])
    return [("CPUs", cpus), ("memory", peak), ("GPUs", gpu)]


_GPU_SHARES = {"gpu_sm_active": "multiprocessors active", "gpu_tensor_active": "tensor cores active"}
_NAMES = {"nodes": "nodes", "cpus": "CPUs", "memory_bytes": "of memory", "gpus": "GPUs"}


def _rows(name: str, texts: list[str]) -> list[str]:
    return [_row("" if at else name, text) for at, text in enumerate(texts)]


def _row(name: str, text: str) -> str:
    return f"  {name:<10} {text}"


def _clock(timestamp: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp)) if timestamp else "never"


def _percent(share: float | None) -> str:
    return "not measured" if share is None else f"{share:.0%}"


def share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole > 0 else None


def size(count: float, unit: str = "iB") -> str:
    """Return a size as text: 1.5 GiB. If `unit` is empty, it is in whole MiB, as sbatch takes it."""
    if not unit:
        return f"{-(-count // (1 << 20)):.0f}M"
    name, power = next(((n, p) for n, p in (("T", 40), ("G", 30), ("M", 20), ("K", 10)) if count >= 1 << p), ("K", 10))
    return f"{count / (1 << power):.3g} {name}{unit}"
