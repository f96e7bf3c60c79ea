"""Checks of a cluster by small jobs: one on each node with free resources, then one over all nodes of a partition.

`plan` returns the jobs. The driver on the login machine (scripts/jobs/quickcheck/driver.py) starts them and prints an
event, a line of JSON, for each that ends. `results` evaluates the events.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cluster.jobs.partition_facts import PartitionFacts
from scripts.node.health.check_kinds import smi_exit
from scripts.node.slurm.hostlist import compress
from scripts.node.slurm.nodes import Node

NODE, GPUS, CONTAINER, TOGETHER = "node", "gpus", "container", "together"
"""Keys of jobs, by what they check."""
TASKS = 2
MEMORY = 512
"""MiB of a node's job. nvidia-smi alone uses some hundred."""
CONTAINER_MEMORY = 1024
"""MiB of a job that starts a container. enroot's unpacking of the image counts."""
LEAST_MEMORY = 64
IMMEDIATE = 15
"""Least seconds that a job waits for a free node, as the epilog of the node's last job may still run."""


@dataclass(frozen=True, kw_only=True)
class CheckJob:
    """Jobs of one kind on nodes of one partition, for the driver on the login machine."""

    key: str
    partition: str
    nodes: str
    """Host list."""
    each: bool
    """True for one job on each node; else one job runs over all of them."""
    tasks: int
    """On each node."""
    options: tuple[str, ...]
    """Options of srun."""
    program: tuple[str, ...]
    """A file beside the driver, and its arguments."""
    seconds: int
    """Time limit in seconds, with the wait for nodes."""
    minutes: int = 0
    """Slurm's time limit in minutes."""


@dataclass(frozen=True, kw_only=True)
class SkippedNode:
    """A node that was not checked."""

    node: str
    partition: str
    why: str
    todo: str = ""
    unavailable: bool = False
    """True if the node can't take jobs at all, and is not just busy or off."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of a check on a node, a partition or the cluster."""

    check: str
    status: str
    node: str = ""
    """Empty for a check of the whole cluster or of a partition."""
    partition: str = ""
    text: str = ""
    """The result on one line; the reason for a skipped check."""
    output: str = ""
    """The job's output."""
    todo: str = ""


@dataclass(frozen=True, kw_only=True)
class ExpectedNode:
    """The values that jobs on a node must report."""

    node: str
    partition: str
    tasks: int
    memory: int
    """MiB of the node's job."""
    container_memory: int
    """MiB of the job that starts a container."""
    gpus: int
    """GPUs according to the stack file."""
    no_gpus: str = ""
    """The reason why GPUs are not checked; empty if they are."""
    held_gpus: str = ""
    """The reason why no GPU is free; empty if one is."""
    all_gpus: str = ""
    """The reason why not all GPUs are free; empty if they are."""
    shared: str = ""
    """The reason why a job can't have the whole node; empty if it can."""

    def result(self, check: str, status: str, text: str = "", output: str = "", todo: str = "") -> CheckResult:
        """Return the result of a check on this node."""
        return CheckResult(
            check=check, node=self.node, partition=self.partition, status=status, text=text, output=output, todo=todo
        )


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a check."""

    run: str
    """A unique name of the run, which is in names of jobs and files."""
    container: bool = False
    """True if each node starts a container too."""
    wait: bool = False
    exclusive: bool = False
    seconds: int = 60
    """Seconds for one job to start and end."""
    image: str = ""
    pyxis: bool = False
    mail: bool = False
    rehearsed: bool = False
    """True in a rehearsal, whose machines may lack GPUs."""
    shared_home: bool = True
    """True if the user's home is on the shared file system; root's is not."""
    most_nodes: Mapping[str, int] = field(default_factory=dict)
    """Largest number of nodes of a job, by partition."""
    prolog_seconds: Mapping[str, int] = field(default_factory=dict)
    """Seconds of the prolog for jobs on several nodes, by partition; that of A3 Mega takes long."""


@dataclass(frozen=True, kw_only=True)
class CheckPlan:
    """The jobs of a check, the expected results, and the nodes that are left out."""

    jobs: tuple[CheckJob, ...]
    expected: Mapping[str, ExpectedNode]
    """Expected results by node."""
    not_checked: tuple[SkippedNode, ...]
    options: Options

    def spec(self) -> str:
        """Return the driver's argument (scripts/jobs/quickcheck/driver.py)."""
        spec = {name: getattr(self.options, name) for name in ("run", "wait", "image", "pyxis", "shared_home")}
        seconds = self.options.seconds
        # slurmdbd of a busy cluster may take as long as jobs do.
        spec |= {"immediate": max(IMMEDIATE, seconds // 4), "image_seconds": 600, "accounting_seconds": seconds}
        spec["mail"] = next(iter(self.expected), "") if self.options.mail else ""
        return json.dumps({**spec, "jobs": [asdict(job) for job in self.jobs]})


def plan(
    facts: Sequence[PartitionFacts],
    nodes: Mapping[str, Node],
    options: Options,
    *,
    only: frozenset[str] | None = None,
) -> CheckPlan:
    """Return the jobs that check the nodes of these partitions, or those in `only`."""
    expected: dict[str, ExpectedNode] = {}
    skipped: dict[str, SkippedNode] = {}
    together: dict[str, list[str]] = {}
    for row in facts:
        for name in row.nodes:
            if only is not None and name not in only:
                continue
            if name not in expected and name not in skipped:
                found = _expected(row, name, nodes.get(name), options)
                if isinstance(found, SkippedNode):
                    skipped[name] = found
                else:
                    expected[name] = found
            if name in expected:
                together.setdefault(row.name, []).append(name)
    kinds: dict[CheckJob, list[str]] = {}
    for node in expected.values():
        for job in _jobs_of(node, options):
            kinds.setdefault(job, []).append(node.node)
    jobs = [replace(job, nodes=compress(names)) for job, names in kinds.items()]
    jobs += _jobs_of_all(together, expected, options)
    # A job that requests more time than its partition allows never starts.
    rows = {row.name: row for row in facts}
    jobs = [replace(job, minutes=rows[job.partition].time_limit(-(-job.seconds // 60))) for job in jobs]
    return CheckPlan(jobs=tuple(jobs), expected=expected, not_checked=tuple(skipped.values()), options=options)


def _expected(row: PartitionFacts, name: str, node: Node | None, options: Options) -> ExpectedNode | SkippedNode:
    if node is None:
        todo = "run ./hpc up, or add it to slurmctld"
        return SkippedNode(node=name, partition=row.name, why="slurmctld does not know it", todo=todo, unavailable=True)
    if node.fine and (node.asleep or node.booting):
        state = "off until a job needs it" if node.asleep else "booting"
        todo = f"srun --partition={row.name} --nodelist={name} true has it started; check it then"
        return SkippedNode(node=name, partition=row.name, why=f"{node.word}: {state}", todo=todo)
    # A completing node is free in a moment.
    if not node._replace(states=node.states - {"COMPLETING"}).fine:
        why = f"{node.word}: {node.reason}" if node.reason else node.word
        todo = f"./hpc status STACK; once it is mended ./hpc nodes STACK resume {name}"
        return SkippedNode(node=name, partition=row.name, why=why, todo=todo, unavailable=True)
    whole = options.exclusive or row.exclusive
    cpus, gpus = (node.usable_cpus, node.gpus) if whole else (1, 0)
    busy = _why_busy(node, cpus=cpus, memory=LEAST_MEMORY, gpus=gpus)
    if busy and not options.wait:
        return SkippedNode(node=name, partition=row.name, why=busy, todo="--wait waits for these jobs to end")
    free = node.emptied if options.wait else node
    promised = row.gpu.count if row.gpu else 0
    return ExpectedNode(
        node=name,
        partition=row.name,
        tasks=min(TASKS, max(1, free.free_cpus)),
        memory=max(LEAST_MEMORY, min(MEMORY, free.free_memory)),
        container_memory=max(LEAST_MEMORY, min(CONTAINER_MEMORY, free.free_memory)),
        gpus=promised,
        no_gpus="nodes of this rehearsal have no GPUs" if promised and options.rehearsed and not node.gpus else "",
        held_gpus=_why_busy(free, gpus=1) if promised else "",
        all_gpus=_why_busy(free, gpus=promised) if promised else "",
        shared=_why_busy(free, cpus=node.usable_cpus),
    )


def _jobs_of(node: ExpectedNode, options: Options) -> Iterator[CheckJob]:
    """Yield the jobs of a node, without the node's name, so that nodes with equal requests share a job."""
    exclusive = ("--exclusive",) if options.exclusive else ()

    def job(key: str, tasks: int, memory: int, *gres: str, program: tuple[str, ...], seconds: int = 0) -> CheckJob:
        return CheckJob(
            key=key,
            partition=node.partition,
            nodes="",
            each=True,
            tasks=tasks,
            options=("--mpi=none", f"--mem={memory}M", *gres, *exclusive),
            program=program,
            seconds=max(options.seconds, seconds),
        )

    gpu = ("--gres=gpu:1",) if node.gpus and not node.held_gpus else ()
    token = options.run if options.shared_home else ""
    yield job(NODE, node.tasks, node.memory, *gpu, program=("node.py", "node", token))
    if node.gpus and not node.all_gpus:
        yield job(GPUS, 1, node.memory, f"--gres=gpu:{node.gpus}", program=("node.py", "gpus"))
    if options.container:
        yield job(CONTAINER, 1, node.container_memory, program=("container.py",), seconds=300)


def _jobs_of_all(
    partitions: Mapping[str, list[str]], expected: Mapping[str, ExpectedNode], options: Options
) -> Iterator[CheckJob]:
    """Yield a job over all nodes of each partition, or several if the partition limits the nodes of a job."""
    for name, every in partitions.items():
        most = options.most_nodes.get(name, len(every))
        for start in range(0, len(every), most):
            nodes = every[start : start + most]
            if len(nodes) > 1:
                memory = min(expected[node].memory for node in nodes)
                yield CheckJob(
                    key=TOGETHER,
                    partition=name,
                    nodes=compress(nodes),
                    each=False,
                    tasks=min(expected[node].tasks for node in nodes),
                    options=(f"--mem={memory}M", *(("--exclusive",) if options.exclusive else ())),
                    program=("node.py", "hello"),
                    seconds=options.seconds + options.prolog_seconds.get(name, 0),
                )


def _why_busy(node: Node, *, cpus: int = 0, memory: int = 0, gpus: int = 0) -> str:
    """Return why a job of this size can't start on a node now; empty if it can."""
    if gpus > node.gpus:
        return f"slurmctld has {node.gpus} GPUs of {node.name}"
    needed = {"CPU": (node.free_cpus, cpus), "memory": (node.free_memory, memory), "GPU": (node.free_gpus, gpus)}
    lacking = [name for name, (free, least) in needed.items() if free < least]
    if not lacking:
        return ""
    numbers = ", ".join(job.id for job in node.busy)
    jobs = f"busy with job{'s' if len(node.busy) > 1 else ''} {numbers}" if numbers else "busy"
    return f"no free {' and '.join(lacking)} on {node.name}: {jobs}"


PASS, FAIL, SKIP = "pass", "fail", "skip"
MARK = "hpc-check "
"""Prefix of the lines that programs of scripts/jobs/quickcheck print for `parse_tasks`."""
Event = Mapping[str, Any]
"""A line of the driver's output (scripts/jobs/quickcheck/driver.py)."""
_BUSY = ("nodes are busy", "Immediate execution impossible", "Resources temporarily unavailable")
"""Messages of srun after --immediate (slurm_errno.c: ESLURM_NODES_BUSY, ESLURM_CAN_NOT_START_IMMEDIATELY)."""
_MIB = 1024 * 1024
_PAGE = 65_536
"""The largest base page of Linux. The kernel rounds a memory limit to pages."""
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
"""Messages of slurmctld for a job that the user may not submit (slurm_errno.c)."""


def was_busy(event: Event | None) -> bool:
    """Return whether a job did not begin because other jobs have its nodes."""
    return event is not None and bool(event["code"]) and any(text in str(event["err"]) for text in _BUSY)


def parse_tasks(event: Event | None) -> list[dict[str, Any]]:
    """Return the reports of a job's tasks."""
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


def job_output(event: Event | None) -> str:
    """Return the output of a job without the reports of its tasks."""
    if event is None:
        return ""
    text = f"{event['err']}\n{event['out']}"
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith(MARK))


def _node_results(
    plan: CheckPlan, expected: ExpectedNode, events: Mapping[str, Event], last: Mapping[str, Event]
) -> Iterator[CheckResult]:
    """Yield the results of a node. `events` are the ends of its jobs by key; `last` are the driver's events about the
    login machine."""
    job, result = events.get(NODE), expected.result
    tasks = parse_tasks(job)
    if wrong := _hello(expected, job, tasks):
        todo = f"./hpc logs STACK slurmd --on {expected.node}, and ./hpc nodes STACK drain it while it is looked after"
        yield result("hello", FAIL, wrong, job_output(job), todo)
        return
    cpus = max(int(task.get("cpus", 0)) for task in tasks)
    yield result("hello", PASS, f"{len(tasks)} tasks, {cpus} CPUs")
    full = next((task for task in tasks if "gpus" in task), {})
    yield _home(plan, expected, full, last.get("home"))
    if full.get("shared"):
        yield result("shared", PASS)
    else:
        yield result("shared", FAIL, "/opt/apps/hpc can't be read", todo=f"./hpc ssh STACK {expected.node} -- findmnt")
    yield _memory(expected, full)
    if expected.no_gpus:
        yield result("gpus", SKIP, expected.no_gpus)
        yield result("confined", SKIP, expected.no_gpus)
    elif expected.gpus:
        yield from _gpus(expected, full.get("gpus") or {}, events.get(GPUS))
    if plan.options.container:
        yield _container(expected, events.get(CONTAINER))
    yield _accounting(expected, last.get("accounting"))


def _hello(expected: ExpectedNode, event: Event | None, tasks: list[dict[str, Any]]) -> str:
    """Return what is wrong with the result of a node's job; empty if nothing is."""
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


def _home(plan: CheckPlan, expected: ExpectedNode, full: Mapping[str, Any], event: Event | None) -> CheckResult:
    if not plan.options.shared_home:
        return expected.result("home", SKIP, "root's home is not shared: name a user with --as")
    on_node = full.get("home") or {}
    on_login = (event or {}).get("files", {}).get(expected.node)
    wrong = str(on_node.get("error") or (on_login or {}).get("error") or "")
    if on_login is None:
        wrong = wrong or "what the node wrote is not on the login machine"
    elif not wrong and not on_login.get("own"):
        wrong = "what the node wrote has another owner on the login machine"
    elif not wrong and str(on_login.get("text", "")).split() != [plan.options.run, expected.node]:
        wrong = "what the node wrote has another content on the login machine"
    if wrong:
        todo = f"./hpc ssh STACK {expected.node} -- findmnt; ./hpc status STACK"
        return expected.result("home", FAIL, wrong, todo=todo)
    return expected.result("home", PASS)


def _memory(expected: ExpectedNode, full: Mapping[str, Any]) -> CheckResult:
    limit, wanted = full.get("memory"), expected.memory * _MIB
    if limit is None:
        return expected.result("memory", SKIP, "the job sees no memory cgroup")
    todo = "ConstrainRAMSpace=yes in cgroup.conf, and cgroups with memory on the node: ./hpc drift STACK"
    if limit < 0:
        return expected.result("memory", FAIL, "no limit on a job's memory", todo=todo)
    if limit > wanted + _PAGE:
        return expected.result("memory", FAIL, f"limit {limit // _MIB} MiB, asked for {expected.memory} MiB", todo=todo)
    return expected.result("memory", PASS, f"{expected.memory} MiB")


def _gpus(expected: ExpectedNode, report: Mapping[str, Any], whole: Event | None) -> Iterator[CheckResult]:
    """Yield whether there are as many GPUs as expected, and whether a job can only open its own. `report` is of the job
    with one GPU, `whole` the end of the job with all."""
    by_driver = report.get("driver")
    count = len(report.get("devices", ())) if by_driver is None else by_driver
    source = "device files" if by_driver is None else "the driver"
    todo = f"./hpc nodes STACK drain {expected.node} --reason 'GPU missing'; then ./hpc status STACK"
    problems = [] if count == expected.gpus else [f"{count} of {expected.gpus} GPUs by {source}"]
    output, skipped = "", expected.all_gpus
    if whole is None and not skipped:
        problems.append(f"the job with all {expected.gpus} GPUs did not end")
    elif was_busy(whole):
        skipped = "other jobs took GPUs of the node meanwhile"
    elif whole is not None:
        tasks = parse_tasks(whole)
        full = (tasks[0].get("gpus") if tasks else None) or {}
        if not tasks:
            problems.append(f"a job with all {expected.gpus} GPUs gave no answer, exit code {whole['code']}")
            output = job_output(whole)
        for name, what in (("open", "can be opened"), ("visible", "in CUDA_VISIBLE_DEVICES"), ("smi", "by nvidia-smi")):
            if name in full and len(full[name]) != expected.gpus:
                problems.append(f"{len(full[name])} of {expected.gpus} GPUs {what} in a job that has all")
        if "smi_error" in full:
            problems.append(f"nvidia-smi ended with {smi_exit(int(full.get('smi_code') or 255))}")
            output = str(full["smi_error"])
    if problems:
        yield expected.result("gpus", FAIL, "; ".join(problems), output, todo)
    else:
        note = f"; not tried together: {skipped}" if skipped else ""
        yield expected.result("gpus", PASS, f"{count} GPUs by {source}{note}")
    yield _confined(expected, report)


def _confined(expected: ExpectedNode, report: Mapping[str, Any]) -> CheckResult:
    if expected.held_gpus:
        return expected.result("confined", SKIP, expected.held_gpus)
    counts = {
        "in CUDA_VISIBLE_DEVICES": len(report.get("visible", ())),
        "can be opened": len(report.get("open", ())),
        **({"by nvidia-smi": len(report["smi"])} if "smi" in report else {}),
    }
    wrong = [f"{count} {what}" for what, count in counts.items() if count != 1]
    if wrong:
        todo = "ConstrainDevices=yes in cgroup.conf, and gres.conf's device files: ./hpc drift STACK"
        return expected.result("confined", FAIL, f"a job with 1 GPU: {', '.join(wrong)}", todo=todo)
    return expected.result("confined", PASS, "a job with 1 GPU opens that one only")


def _container(expected: ExpectedNode, event: Event | None) -> CheckResult:
    todo = "start one manually on the node, with ./hpc run STACK -- srun; docs/guides/quickcheck.md has the commands"
    if event is None or was_busy(event):
        status, text = (SKIP, "other jobs took the node meanwhile") if event else (FAIL, "its job did not end")
        return expected.result("container", status, text, todo="" if event else todo)
    report = next(iter(parse_tasks(event)), None)
    if report is None:
        # With pyxis, the output is that of the container.
        if event["code"] == 0 and "ID=" in event["out"]:
            return expected.result("container", PASS, "pyxis")
        late = "no end in time" if event.get("late") else f"exit code {event['code']}"
        return expected.result("container", FAIL, f"no container started, {late}", job_output(event), todo)
    runtime = report.get("runtime")
    if not runtime or "skip" in report:
        text = str(report.get("skip") or "no pyxis, enroot, apptainer or podman on the node")
        return expected.result("container", SKIP, text)
    if "error" in report or str(report.get("wanted")) not in str(report.get("out")):
        return expected.result("container", FAIL, f"{runtime} did not start one", str(report.get("error", "")), todo)
    return expected.result("container", PASS, str(runtime))


def _accounting(expected: ExpectedNode, event: Event | None) -> CheckResult:
    todo = "./hpc logs STACK slurmdbd; sacctmgr show runaway"
    if event is None or event.get("error"):
        return expected.result("accounting", FAIL, "sacct gave no answer", str((event or {}).get("error", "")), todo)
    rows = [line.split("|") for line in str(event["text"]).splitlines()]
    row = next((row for row in rows if len(row) == 6 and row[5] == expected.node), None)
    if row is None:
        return expected.result("accounting", FAIL, "sacct has no job of this node", todo=todo)
    number, user, account, qos = row[:4]
    lacking = [name for name, value in (("user", user), ("account", account), ("QOS", qos)) if not value]
    if lacking:
        text = f"job {number} is recorded without {', '.join(lacking)}"
        return expected.result("accounting", FAIL, text, todo="./hpc up STACK applies accounts and users")
    return expected.result("accounting", PASS, f"account {account}, QOS {qos}")


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The results of all checks."""

    results: tuple[CheckResult, ...]
    not_checked: tuple[SkippedNode, ...]

    @property
    def passed(self) -> bool:
        """True if nothing failed, no node is out of service, and something was checked."""
        return (
            not any(result.status == FAIL for result in self.results)
            and not any(missing.unavailable for missing in self.not_checked)
            and any(result.status == PASS for result in self.results)
        )


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the driver's events; other lines of its output are left out."""
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
    """Return the report of a run. A check that did not end failed.

    `more` are results of other checks; `now` has the jobs of nodes that became busy during the run.
    """
    every = list(events)
    ended = {(event["key"], tuple(event["nodes"])): event for event in every if event["event"] == "end"}
    last = {event["event"]: event for event in every if event["event"] in ("home", "accounting", "failed")}
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


def _lost(expected: ExpectedNode, event: Event | None, now: Node | None) -> SkippedNode | None:
    """Return the node as skipped if its job could not begin, as others were faster or the user may not use it."""
    if event is None or event["code"] == 0 or MARK in event["out"]:
        return None
    why = " ".join(str(event["err"]).split())
    if was_busy(event):
        jobs = [f"{job.id}{' (completing)' if job.state == 'COMPLETING' else ''}" for job in now.jobs] if now else []
        busy = f"busy with jobs {', '.join(jobs)}" if jobs else why
        text = f"no room on {expected.node}: {busy}"
        todo = "run it again, or with --wait"
        return SkippedNode(node=expected.node, partition=expected.partition, why=text, todo=todo)
    if any(text in why for text in _REFUSED):
        todo = "choose a user who may with --as USER, or other nodes with --partition or --nodes"
        return SkippedNode(node=expected.node, partition=expected.partition, why=why, todo=todo, unavailable=True)
    return None


def _of_partitions(plan: CheckPlan, ended: Mapping[tuple[str, tuple[str, ...]], Event]) -> Iterator[CheckResult]:
    for partition in dict.fromkeys(job.partition for job in plan.jobs if job.key == TOGETHER):
        tasks = min(job.tasks for job in plan.jobs if job.key == TOGETHER and job.partition == partition)
        every = [event for (key, _), event in ended.items() if key == TOGETHER and event["partition"] == partition]
        for event in every or [None]:
            status, text = _together(tasks, event)
            failed = status == FAIL
            yield CheckResult(
                check="together",
                status=status,
                partition=partition,
                text=text,
                output=job_output(event) if failed else "",
                todo="srun over these nodes manually; nodes must reach each other's slurmd" if failed else "",
            )


def _together(tasks: int, event: Event | None) -> tuple[str, str]:
    if event is None:
        return SKIP, "fewer than two nodes answered alone"
    nodes = list(event["nodes"])
    found = {(str(task.get("node")), task.get("task")) for task in parse_tasks(event)}
    silent = [node for node in nodes if sum(name == node for name, _ in found) < tasks]
    if was_busy(event):
        return SKIP, f"no room on all {len(nodes)} nodes at once"
    if silent or event["code"]:
        late = f"no end within {event['seconds']:.0f} s" if event.get("late") else f"exit code {event['code']}"
        text = f"{len(found)} of {len(nodes) * tasks} tasks on {len(nodes)} nodes answered, {late}"
        return FAIL, text + (f"; not all of {compress(silent)}" if silent else "")
    return PASS, f"{len(nodes) * tasks} tasks on {len(nodes)} nodes"
