"""Which jobs check a cluster: a small one on each node that has room for it, then one over all nodes of a partition."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from cluster.config.validators.settings import minutes
from cluster.jobs.partition_facts import PartitionFacts
from cluster.observe.nodes import Node
from cluster.slurm.hostlist import compress
from scripts.node.slurm.output import rows

NODE, GPUS, CONTAINER, TOGETHER = "node", "gpus", "container", "together"
"""Keys of jobs: what they check."""
TASKS = 2
MEMORY = 512
"""MiB of a node's job; nvidia-smi alone takes some hundred."""
CONTAINER_MEMORY = 1024
"""MiB of a job that starts a container: enroot unpacks its image within it."""
LEAST_MEMORY = 64
IMMEDIATE = 15
"""Seconds for a node that was free to be free: the epilog of its last job may still run."""
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]+)")
_GPUS_ALLOCATED = re.compile(r"(?:^|,)gres/gpu=([0-9]+)")


@dataclass(frozen=True, kw_only=True)
class Room:
    """CPUs, memory and GPUs of a node."""

    cpus: int = 0
    free_cpus: int = 0
    memory: int = 0
    """MiB."""
    free_memory: int = 0
    """MiB."""
    gpus: int = 0
    free_gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class CheckJob:
    """Jobs of one kind on nodes of one partition, as the driver on the login machine starts them."""

    key: str
    partition: str
    nodes: str
    """Host list."""
    each: bool
    """One job for each node; else one over all of them."""
    tasks: int
    """On each node."""
    options: tuple[str, ...]
    """Of srun."""
    program: tuple[str, ...]
    """A file beside the driver, and its arguments."""
    seconds: int
    """How long it may take, with its wait for the nodes."""
    minutes: int = 0
    """Its time limit in Slurm."""


@dataclass(frozen=True, kw_only=True)
class NotChecked:
    """A node without any result."""

    node: str
    partition: str
    why: str
    todo: str = ""
    unavailable: bool = False
    """Something must be done about it; not only busy."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a node's jobs have to show."""

    node: str
    partition: str
    tasks: int
    memory: int
    """MiB that its job may use."""
    container_memory: int
    """MiB for the start of a container."""
    gpus: int
    """That the stack file promises."""
    no_gpus: str = ""
    """Why they are not looked for, if they are not."""
    held_gpus: str = ""
    """Why its GPUs can't be had now, if they can't."""
    all_gpus: str = ""
    """Why not all its GPUs can be had at once, if they can't."""
    shared: str = ""
    """Why a job can't have the whole node, if it can't."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user asked for."""

    run: str
    """Unique for each run: names of jobs and files have it."""
    suites: frozenset[str] = frozenset({"hello"})
    wait: bool = False
    exclusive: bool = False
    seconds: int = 60
    """For one job to start and end."""
    image: str = ""
    pyxis: bool = False
    mail: bool = False
    rehearsed: bool = False
    """Machines stand for others, and may lack their GPUs."""
    shared_home: bool = True
    """Whether the user's home is on the shared file system; root's is not."""
    most_nodes: Mapping[str, int] = field(default_factory=dict)
    """Of one job, in partitions that have such a limit."""
    prolog_seconds: Mapping[str, int] = field(default_factory=dict)
    """Partitions whose prolog takes long for jobs on several nodes, as the one of A3 Mega."""


@dataclass(frozen=True, kw_only=True)
class CheckPlan:
    """All jobs, what is expected of them, and what is not checked."""

    jobs: tuple[CheckJob, ...]
    expected: Mapping[str, Expected]
    """By node."""
    not_checked: tuple[NotChecked, ...]
    options: Options

    def spec(self) -> str:
        """The driver's argument (scripts/jobs/checks/driver.py)."""
        spec = {name: getattr(self.options, name) for name in ("run", "wait", "image", "pyxis", "shared_home")}
        spec |= {"immediate": IMMEDIATE, "image_seconds": 600, "accounting_seconds": 20}
        spec["mail"] = next(iter(self.expected), "") if self.options.mail else ""
        return json.dumps({**spec, "jobs": [asdict(job) for job in self.jobs]})


def plan(
    facts: Sequence[PartitionFacts],
    nodes: Mapping[str, Node],
    rooms: Mapping[str, Room],
    options: Options,
    *,
    only: frozenset[str] | None = None,
) -> CheckPlan:
    """Jobs for the nodes of these partitions; `only` names the nodes to check, all if None."""
    expected: dict[str, Expected] = {}
    missing: dict[str, NotChecked] = {}
    together: dict[str, list[str]] = {}
    for row in facts:
        for name in row.nodes:
            if only is not None and name not in only:
                continue
            if name not in expected and name not in missing:
                found = _expected(row, name, nodes.get(name), rooms.get(name, Room()), options)
                if isinstance(found, NotChecked):
                    missing[name] = found
                else:
                    expected[name] = found
            if name in expected:
                together.setdefault(row.name, []).append(name)
    jobs = [*_jobs_of_each(expected, options), *_jobs_of_all(together, expected, options)]
    longest = {row.name: minutes(row.max_time) for row in facts}
    # A job that asks for longer than its partition allows never starts.
    jobs = [replace(job, minutes=max(1, int(min(-(-job.seconds // 60), longest[job.partition])))) for job in jobs]
    return CheckPlan(jobs=tuple(jobs), expected=expected, not_checked=tuple(missing.values()), options=options)


def _expected(row: PartitionFacts, name: str, node: Node | None, room: Room, options: Options) -> Expected | NotChecked:
    if node is None:
        todo = "run ./hpc up, or add it to slurmctld"
        return NotChecked(node=name, partition=row.name, why="slurmctld does not know it", todo=todo, unavailable=True)
    if why := _why_unusable(node):
        todo = f"./hpc status STACK; once it is mended ./hpc nodes STACK resume {name}"
        return NotChecked(node=name, partition=row.name, why=why, todo=todo, unavailable=True)
    whole = options.exclusive or row.exclusive
    cpus, gpus = (room.cpus, room.gpus) if whole else (1, 0)
    busy = _why_busy(node, room, cpus=cpus, memory=LEAST_MEMORY, gpus=gpus)
    if busy and not options.wait:
        return NotChecked(node=name, partition=row.name, why=busy, todo="--wait waits for these jobs to end")
    free = replace(room, free_cpus=room.cpus, free_memory=room.memory, free_gpus=room.gpus) if options.wait else room
    promised = row.gpu.count if row.gpu else 0
    return Expected(
        node=name,
        partition=row.name,
        tasks=min(TASKS, max(1, free.free_cpus)),
        memory=max(LEAST_MEMORY, min(MEMORY, free.free_memory)),
        container_memory=max(LEAST_MEMORY, min(CONTAINER_MEMORY, free.free_memory)),
        gpus=promised,
        no_gpus="nodes of this rehearsal have no GPUs" if promised and options.rehearsed and not room.gpus else "",
        held_gpus=_why_busy(node, free, gpus=1) if promised else "",
        all_gpus=_why_busy(node, free, gpus=promised) if promised else "",
        shared=_why_busy(node, free, cpus=room.cpus),
    )


def _jobs_of_each(expected: Mapping[str, Expected], options: Options) -> list[CheckJob]:
    """One job of each kind for nodes that get the same request."""
    kinds: dict[CheckJob, list[str]] = {}
    for node in expected.values():
        for job in _jobs_of(node, options):
            kinds.setdefault(job, []).append(node.node)
    return [replace(job, nodes=compress(nodes)) for job, nodes in kinds.items()]


def _jobs_of(node: Expected, options: Options) -> Iterator[CheckJob]:
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
    if "container" in options.suites:
        yield job(CONTAINER, 1, node.container_memory, program=("container.py",), seconds=300)


def _jobs_of_all(
    partitions: Mapping[str, list[str]], expected: Mapping[str, Expected], options: Options
) -> Iterator[CheckJob]:
    """One job over all nodes of each partition, or several where the partition limits the nodes of a job."""
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


def parse_rooms(text: str) -> dict[str, Room]:
    """What `scontrol --oneliner show node` prints, by the node's name."""
    return {row["NodeName"]: _room(row) for row in rows(text) if "NodeName" in row}


def _room(row: Mapping[str, str]) -> Room:
    cpus, memory = _number(row.get("CPUEfctv") or row.get("CPUTot")), _number(row.get("RealMemory"))
    gpus = sum(int(count) for count in _GPUS.findall(row.get("Gres", "")))
    used = _GPUS_ALLOCATED.search(row.get("AllocTRES", ""))
    return Room(
        cpus=cpus,
        free_cpus=max(0, cpus - _number(row.get("CPUAlloc"))),
        memory=memory,
        free_memory=max(0, memory - _number(row.get("MemSpecLimit")) - _number(row.get("AllocMem"))),
        gpus=gpus,
        free_gpus=max(0, gpus - (int(used[1]) if used else 0)),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _why_unusable(node: Node) -> str:
    """Why a node takes no jobs at all; empty if it does."""
    # A node whose last job is only cleaned up after is soon free.
    if replace(node, states=node.states - {"COMPLETING"}).fine:
        return ""
    reason = f": {node.reason}" if node.reason else ""
    return f"{node.word}{reason}"


def _why_busy(node: Node, room: Room, *, cpus: int = 0, memory: int = 0, gpus: int = 0) -> str:
    """Why a job of this size can't start on a node now; empty if it can."""
    if gpus > room.gpus:
        return f"slurmctld has {room.gpus} GPUs of {node.name}"
    needed = {"CPU": (room.free_cpus, cpus), "memory": (room.free_memory, memory), "GPU": (room.free_gpus, gpus)}
    lacking = [name for name, (free, least) in needed.items() if free < least]
    if not lacking:
        return ""
    numbers = ", ".join(job.number for job in node.busy)
    jobs = f"busy with job{'s' if len(node.busy) > 1 else ''} {numbers}" if numbers else "busy"
    return f"no free {' and '.join(lacking)} on {node.name}: {jobs}"
