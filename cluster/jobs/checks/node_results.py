"""What the jobs of one node showed, against what was promised."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cluster.jobs.checks.plan import CONTAINER, GPUS, NODE, Expected, Plan
from cluster.jobs.checks.result import FAIL, PASS, SKIP, Event, Result, found_no_room, output_of, tasks_of
from scripts.node.health.kinds import smi_exit

_MIB = 1024 * 1024
_PAGE = 65_536
"""The kernel rounds a limit to pages; the largest base page of Linux."""


def node_results(
    plan: Plan, expected: Expected, event: Callable[[str], Event | None], last: Mapping[str, Event]
) -> Iterator[Result]:
    def result(check: str, status: str, text: str = "", output: str = "", todo: str = "") -> Result:
        return Result(
            check=check, status=status, node=expected.node, partition=expected.partition, text=text, output=output,
            todo=todo,
        )  # fmt: skip

    job = event(NODE)
    tasks = tasks_of(job)
    answer = _hello(expected, job, tasks)
    if answer:
        todo = f"./hpc logs STACK slurmd --on {expected.node}, and ./hpc nodes STACK drain it while it is looked after"
        yield result("hello", FAIL, answer, output_of(job), todo)
        return
    cpus = max(int(task.get("cpus", 0)) for task in tasks)
    yield result("hello", PASS, f"{len(tasks)} tasks, {cpus} CPUs")
    full = next((task for task in tasks if "gpus" in task), {})
    yield _home(plan, expected, full, last.get("home"), result)
    yield (
        result("shared", PASS)
        if full.get("shared")
        else result("shared", FAIL, "/opt/apps/hpc can't be read", todo=f"./hpc ssh STACK {expected.node} -- findmnt")
    )
    yield _memory(expected, full, result)
    if expected.no_gpus:
        yield result("gpus", SKIP, expected.no_gpus)
        yield result("confined", SKIP, expected.no_gpus)
    elif expected.gpus:
        yield from _gpus(expected, full.get("gpus") or {}, event(GPUS), result)
    if "container" in plan.options.suites:
        yield _container(event(CONTAINER), result)
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


Make = Callable[..., Result]


def _home(plan: Plan, expected: Expected, full: Mapping[str, Any], event: Event | None, result: Make) -> Result:
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


def _memory(expected: Expected, full: Mapping[str, Any], result: Make) -> Result:
    limit, wanted = full.get("memory"), expected.memory * _MIB
    if limit is None:
        return result("memory", SKIP, "the job sees no memory cgroup")
    todo = "ConstrainRAMSpace=yes in cgroup.conf, and cgroups with memory on the node: ./hpc drift STACK"
    if limit < 0:
        return result("memory", FAIL, "no limit on a job's memory", todo=todo)
    if limit > wanted + _PAGE:
        return result("memory", FAIL, f"limit {limit // _MIB} MiB, asked for {expected.memory} MiB", todo=todo)
    return result("memory", PASS, f"{expected.memory} MiB")


def _gpus(expected: Expected, seen: Mapping[str, Any], whole: Event | None, result: Make) -> Iterator[Result]:
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


def _confined(expected: Expected, seen: Mapping[str, Any], result: Make) -> Result:
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


def _container(event: Event | None, result: Make) -> Result:
    todo = "start one by hand on the node, with ./hpc run STACK -- srun; docs/guides/quickcheck.md has the commands"
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


def _accounting(expected: Expected, event: Event | None, result: Make) -> Result:
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
