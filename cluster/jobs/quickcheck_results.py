"""Results of a check's jobs, for each node and each partition."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.jobs.quickcheck_plan import CONTAINER, GPUS, NODE, TOGETHER, CheckPlan, Expected, NotChecked
from cluster.observe.nodes import Node
from cluster.slurm.hostlist import compress
from scripts.node.health.kinds import smi_exit

PASS, FAIL, SKIP = "pass", "fail", "skip"
MARK = "hpc-check "
"""In front of what programs of scripts/jobs/checks print for this package."""
Event = Mapping[str, Any]
"""A line of the driver's (scripts/jobs/checks/driver.py)."""
_BUSY = ("nodes are busy", "Immediate execution impossible", "Resources temporarily unavailable")
"""What srun prints when --immediate has passed (slurm_errno.c: ESLURM_NODES_BUSY, ESLURM_CAN_NOT_START_IMMEDIATELY)."""
_MIB = 1024 * 1024
_PAGE = 65_536
"""The kernel rounds a limit to pages; the largest base page of Linux."""
_REFUSED = (
    "Invalid account",
    "not permitted to use this partition",
    "Required partition not available",
    "Invalid qos",
    "violates accounting/QOS policy",
    "Access/permission denied",
    "node count specification invalid",
    "Requested node configuration is not available",
)
"""What slurmctld answers to a job that this user can't have (slurm_errno.c)."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """How one check ended on one node, or on all of them."""

    check: str
    status: str
    node: str = ""
    """Empty for a check of the whole cluster or of a partition."""
    partition: str = ""
    text: str = ""
    """What was found, on one line; of a skipped one why."""
    output: str = ""
    """What the node printed."""
    todo: str = ""


def found_no_room(event: Event | None) -> bool:
    """Whether a job did not begin, because others have its nodes."""
    return event is not None and bool(event["code"]) and any(text in str(event["err"]) for text in _BUSY)


def tasks_of(event: Event | None) -> list[dict[str, Any]]:
    """What the tasks of a job printed."""
    found: list[dict[str, Any]] = []
    for line in str(event["out"]).splitlines() if event else ():
        if line.startswith(MARK):
            try:
                task = json.loads(line[len(MARK) :])
            except ValueError:
                continue
            if isinstance(task, dict):
                found.append(task)
    return found


def output_of(event: Event | None) -> str:
    """What a job printed, without what is for this module."""
    if event is None:
        return ""
    text = f"{event['err']}\n{event['out']}"
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith(MARK))


def _node_results(
    plan: CheckPlan, expected: Expected, events: Mapping[str, Event], last: Mapping[str, Event]
) -> Iterator[CheckResult]:
    """Results of a node. `events`: how its jobs ended, by their keys; `last`: what the driver found on the login
    machine."""

    def result(check: str, status: str, text: str = "", output: str = "", todo: str = "") -> CheckResult:
        about = {"check": check, "node": expected.node, "partition": expected.partition}
        return CheckResult(**about, status=status, text=text, output=output, todo=todo)

    job = events.get(NODE)
    tasks = tasks_of(job)
    if wrong := _hello(expected, job, tasks):
        todo = f"./hpc logs STACK slurmd --on {expected.node}, and ./hpc nodes STACK drain it while it is looked after"
        yield result("hello", FAIL, wrong, output_of(job), todo)
        return
    cpus = max(int(task.get("cpus", 0)) for task in tasks)
    yield result("hello", PASS, f"{len(tasks)} tasks, {cpus} CPUs")
    full = next((task for task in tasks if "gpus" in task), {})
    yield _home(plan, expected, full, last.get("home"), result)
    if full.get("shared"):
        yield result("shared", PASS)
    else:
        yield result("shared", FAIL, "/opt/apps/hpc can't be read", todo=f"./hpc ssh STACK {expected.node} -- findmnt")
    yield _memory(expected, full, result)
    if expected.no_gpus:
        yield result("gpus", SKIP, expected.no_gpus)
        yield result("confined", SKIP, expected.no_gpus)
    elif expected.gpus:
        yield from _gpus(expected, full.get("gpus") or {}, events.get(GPUS), result)
    if "container" in plan.options.suites:
        yield _container(events.get(CONTAINER), result)
    yield _accounting(expected, last.get("accounting"), result)


def _hello(expected: Expected, event: Event | None, tasks: list[dict[str, Any]]) -> str:
    """What is wrong with a node's answer; empty if nothing."""
    if event is None:
        return "the check ended before this node's job did"
    if event.get("late"):
        return f"no end within {event['seconds']:.0f} s"
    if len(tasks) < expected.tasks:
        return f"{len(tasks)} of {expected.tasks} tasks answered, exit code {event['code']}"
    if others := {str(task.get("node")) for task in tasks} - {expected.node}:
        return f"answered as {', '.join(sorted(others))}"
    if not any("gpus" in task for task in tasks):
        return "the first task did not look at the node"
    return f"exit code {event['code']}" if event["code"] else ""


Make = Callable[..., CheckResult]


def _home(
    plan: CheckPlan, expected: Expected, full: Mapping[str, Any], event: Event | None, result: Make
) -> CheckResult:
    if not plan.options.shared_home:
        return result("home", SKIP, "root's home is not shared: name a user with --as")
    there = full.get("home") or {}
    back = (event or {}).get("files", {}).get(expected.node)
    wrong = ""
    if "error" in there:
        wrong = str(there["error"])
    elif back is None:
        wrong = "what the node wrote is not on the login machine"
    elif "error" in back:
        wrong = str(back["error"])
    elif not back.get("own"):
        wrong = "what the node wrote has another owner on the login machine"
    elif str(back.get("text", "")).split() != [plan.options.run, expected.node]:
        wrong = "what the node wrote has another content on the login machine"
    if wrong:
        return result("home", FAIL, wrong, todo=f"./hpc ssh STACK {expected.node} -- findmnt; ./hpc status STACK")
    return result("home", PASS)


def _memory(expected: Expected, full: Mapping[str, Any], result: Make) -> CheckResult:
    limit, wanted = full.get("memory"), expected.memory * _MIB
    if limit is None:
        return result("memory", SKIP, "the job sees no memory cgroup")
    todo = "ConstrainRAMSpace=yes in cgroup.conf, and cgroups with memory on the node: ./hpc drift STACK"
    if limit < 0:
        return result("memory", FAIL, "no limit on a job's memory", todo=todo)
    if limit > wanted + _PAGE:
        return result("memory", FAIL, f"limit {limit // _MIB} MiB, asked for {expected.memory} MiB", todo=todo)
    return result("memory", PASS, f"{expected.memory} MiB")


def _gpus(expected: Expected, seen: Mapping[str, Any], whole: Event | None, result: Make) -> Iterator[CheckResult]:
    """GPUs as many as promised, and a job that sees and opens its own only."""
    count = seen["driver"] if seen.get("driver") is not None else len(seen.get("devices", ()))
    source = "the driver" if seen.get("driver") is not None else "device files"
    todo = f"./hpc nodes STACK drain {expected.node} --reason 'GPU missing'; then ./hpc status STACK"
    problems = [] if count == expected.gpus else [f"{count} of {expected.gpus} GPUs by {source}"]
    output, skipped = "", expected.all_gpus
    if whole is None and not skipped:
        problems.append(f"the job with all {expected.gpus} GPUs did not end")
    elif found_no_room(whole):
        skipped = "other jobs took GPUs of the node meanwhile"
    elif whole is not None:
        tasks = tasks_of(whole)
        full = (tasks[0].get("gpus") if tasks else None) or {}
        if not tasks:
            problems.append(f"a job with all {expected.gpus} GPUs gave no answer, exit code {whole['code']}")
            output = output_of(whole)
        for name, what in (("open", "can be opened"), ("visible", "in CUDA_VISIBLE_DEVICES"), ("smi", "by nvidia-smi")):
            if name in full and len(full[name]) != expected.gpus:
                problems.append(f"{len(full[name])} of {expected.gpus} GPUs {what} in a job that has all")
        if "smi_error" in full:
            problems.append(f"nvidia-smi ended with {smi_exit(int(full.get('smi_code') or 255))}")
            output = str(full["smi_error"])
    if problems:
        yield result("gpus", FAIL, "; ".join(problems), output, todo)
    else:
        note = f"; not tried together: {skipped}" if skipped else ""
        yield result("gpus", PASS, f"{count} GPUs by {source}{note}")
    yield _confined(expected, seen, result)


def _confined(expected: Expected, seen: Mapping[str, Any], result: Make) -> CheckResult:
    if expected.held_gpus:
        return result("confined", SKIP, expected.held_gpus)
    counts = {
        "in CUDA_VISIBLE_DEVICES": len(seen.get("visible", ())),
        "can be opened": len(seen.get("open", ())),
        **({"by nvidia-smi": len(seen["smi"])} if "smi" in seen else {}),
    }
    wrong = [f"{count} {what}" for what, count in counts.items() if count != 1]
    if wrong:
        todo = "ConstrainDevices=yes in cgroup.conf, and gres.conf's device files: ./hpc drift STACK"
        return result("confined", FAIL, f"a job with 1 GPU: {', '.join(wrong)}", todo=todo)
    return result("confined", PASS, "a job with 1 GPU opens that one only")


def _container(event: Event | None, result: Make) -> CheckResult:
    todo = "start one manually on the node, with ./hpc run STACK -- srun; docs/guides/quickcheck.md has the commands"
    if event is None or found_no_room(event):
        status, text = (SKIP, "other jobs took the node meanwhile") if event else (FAIL, "its job did not end")
        return result("container", status, text, todo="" if event else todo)
    seen = next(iter(tasks_of(event)), None)
    if seen is None:
        # pyxis: what the container printed comes as it is.
        if event["code"] == 0 and "ID=" in event["out"]:
            return result("container", PASS, "pyxis")
        late = "no end in time" if event.get("late") else f"exit code {event['code']}"
        return result("container", FAIL, f"no container started, {late}", output_of(event), todo)
    runtime = seen.get("runtime")
    if not runtime or "skip" in seen:
        return result("container", SKIP, str(seen.get("skip") or "no pyxis, enroot, apptainer or podman on the node"))
    if "error" in seen or str(seen.get("wanted")) not in str(seen.get("out")):
        return result("container", FAIL, f"{runtime} did not start one", str(seen.get("error", "")), todo)
    return result("container", PASS, str(runtime))


def _accounting(expected: Expected, event: Event | None, result: Make) -> CheckResult:
    todo = "./hpc logs STACK slurmdbd; sacctmgr show runaway"
    if event is None or event.get("error"):
        return result("accounting", FAIL, "sacct gave no answer", str((event or {}).get("error", "")), todo)
    rows = [line.split("|") for line in str(event["text"]).splitlines()]
    mine = [row for row in rows if len(row) == 6 and row[5] == expected.node]
    if not mine:
        return result("accounting", FAIL, "sacct has no job of this node", todo=todo)
    number, user, account, qos = mine[0][:4]
    lacking = [name for name, value in (("user", user), ("account", account), ("QOS", qos)) if not value]
    if lacking:
        text = f"job {number} is recorded without {', '.join(lacking)}"
        return result("accounting", FAIL, text, todo="./hpc up STACK applies accounts and users")
    return result("accounting", PASS, f"account {account}, QOS {qos}")


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """All results."""

    results: tuple[CheckResult, ...]
    not_checked: tuple[NotChecked, ...]

    @property
    def passed(self) -> bool:
        """Nothing failed, no node is out of service, and something was checked."""
        return (
            not any(result.status == FAIL for result in self.results)
            and not any(one.unavailable for one in self.not_checked)
            and any(result.status == PASS for result in self.results)
        )


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """The driver's lines; what else stands on its output is left out."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            yield event


def results(
    plan: CheckPlan, events: Iterable[Event], *, more: Iterable[CheckResult] = (), now: Mapping[str, Node] | None = None
) -> CheckReport:
    """The report of a run. A check that never ended failed.

    `more` are results of other checks; `now` has the jobs of nodes that became busy meanwhile.
    """
    every = list(events)
    ended = {(one["key"], tuple(one["nodes"])): one for one in every if one["event"] == "end"}
    last = {one["event"]: one for one in every if one["event"] in ("home", "accounting", "failed")}
    found: list[CheckResult] = []
    missing = list(plan.not_checked)
    for node, expected in plan.expected.items():
        of_node = {key: event for (key, nodes), event in ended.items() if nodes == (node,)}
        if lost := _lost(expected, of_node.get(NODE), (now or {}).get(node)):
            missing.append(lost)
        else:
            found += _node_results(plan, expected, of_node, last)
    found += _of_partitions(plan, ended)
    if "failed" in last:
        found.append(CheckResult(check="driver", status=FAIL, text=str(last["failed"].get("text"))))
    found += more
    return CheckReport(results=tuple(found), not_checked=tuple(missing))


def _lost(expected: Expected, event: Event | None, now: Node | None) -> NotChecked | None:
    """A node on which no job could begin, because others were faster or the user may not use it."""
    if event is None or event["code"] == 0 or MARK in event["out"]:
        return None
    why = " ".join(str(event["err"]).split())
    if found_no_room(event):
        jobs = [f"{job.number}{'' if job.running else ' (completing)'}" for job in now.jobs] if now else []
        busy = f"busy with jobs {', '.join(jobs)}" if jobs else why
        text = f"no room on {expected.node}: {busy}"
        todo = "run it again, or with --wait"
        return NotChecked(node=expected.node, partition=expected.partition, why=text, todo=todo)
    if any(text in why for text in _REFUSED):
        todo = "choose a user who may with --as USER, or other nodes with --partition or --nodes"
        return NotChecked(node=expected.node, partition=expected.partition, why=why, todo=todo, unavailable=True)
    return None


def _of_partitions(plan: CheckPlan, ended: Mapping[tuple[str, tuple[str, ...]], Event]) -> Iterator[CheckResult]:
    """Jobs over all nodes of a partition."""
    for partition in dict.fromkeys(job.partition for job in plan.jobs if job.key == TOGETHER):
        tasks = min(job.tasks for job in plan.jobs if job.key == TOGETHER and job.partition == partition)
        every = [one for (key, _), one in ended.items() if key == TOGETHER and one["partition"] == partition]
        for event in every or [None]:
            yield _together(partition, tasks, event)


def _together(partition: str, tasks: int, event: Event | None) -> CheckResult:
    if event is None:
        text = "fewer than two nodes answered alone"
        return CheckResult(check="together", status=SKIP, partition=partition, text=text)
    nodes, seen = list(event["nodes"]), tasks_of(event)
    wanted = len(nodes) * tasks
    found = {(str(one.get("node")), one.get("task")) for one in seen}
    silent = [node for node in nodes if sum(name == node for name, _ in found) < tasks]
    if found_no_room(event):
        text = f"no room on all {len(nodes)} nodes at once"
        return CheckResult(check="together", status=SKIP, partition=partition, text=text)
    if silent or event["code"]:
        late = f"no end within {event['seconds']:.0f} s" if event.get("late") else f"exit code {event['code']}"
        text = f"{len(found)} of {wanted} tasks on {len(nodes)} nodes answered, {late}"
        text += f"; not all of {compress(silent)}" if silent else ""
        todo = "srun over these nodes manually; nodes must reach each other's slurmd"
        return CheckResult(
            check="together", status=FAIL, partition=partition, text=text, output=output_of(event), todo=todo
        )
    return CheckResult(check="together", status=PASS, partition=partition, text=f"{wanted} tasks on {len(nodes)} nodes")
