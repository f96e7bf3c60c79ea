"""Checks of a cluster by small jobs: one on each node with free resources, then one over all nodes of a partition.

`plan` returns the nodes to check, and the specification for the driver on the login machine
(scripts/jobs/quickcheck/driver.py), which starts the jobs and prints results. `evaluate` completes these.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from scripts.node.health.check_kinds import SMI_EXIT_CODES
from scripts.node.slurm.hostlist import compress
from scripts.node.slurm.nodes import Node

PASS, FAIL, SKIP = "pass", "fail", "skip"
CHECKS: Mapping[str, str] = {
    "hello": "./hpc logs STACK slurmd --on NODE, and ./hpc nodes STACK drain it while it is looked after",
    "home": "./hpc ssh STACK NODE -- findmnt; ./hpc status STACK",
    "shared": "./hpc ssh STACK NODE -- findmnt",
    "memory": "ConstrainRAMSpace=yes in cgroup.conf, and cgroups with memory on the node: ./hpc drift STACK",
    "gpus": "./hpc nodes STACK drain NODE --reason 'GPU missing'; then ./hpc status STACK",
    "confined": "ConstrainDevices=yes in cgroup.conf, and gres.conf's device files: ./hpc drift STACK",
    "container": "start one manually on the node, with ./hpc run STACK -- srun; see docs/guides/quickcheck.md",
    "nccl": "",
    "accounting": "./hpc logs STACK slurmdbd; sacctmgr show runawayjobs; ./hpc up STACK applies accounts and users",
    "together": "srun over these nodes manually; nodes must reach each other's slurmd",
    "mail": "./hpc ssh STACK controller -- mailq; ./hpc logs STACK slurmctld",
    "driver": "",
}
"""The checks in the order of the table's columns, each with what to do if it fails."""
_TASKS = 2
_MEMORY, _CONTAINER_MEMORY, _LEAST_MEMORY = 512, 1024, 64
"""MiB of jobs. nvidia-smi alone uses some hundred, and enroot's unpacking of an image counts."""


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
class SkippedNode:
    """A node that was not checked."""

    node: str
    partition: str
    why: str
    todo: str = ""
    unavailable: bool = False
    """True if the node can't take jobs at all, and is not just busy or off."""


@dataclass(frozen=True, kw_only=True)
class ExpectedNode:
    """A node to check: the requests of its jobs, and what they must find."""

    partition: str
    tasks: int
    memory: int
    """MiB of the node's job."""
    container_memory: int
    """MiB of the job that starts a container."""
    gpus: int
    """GPUs according to the stack file, 0 where they are not checked."""
    one_gpu: bool
    """True if the node's job has a GPU."""
    all_gpus: bool
    """True if one job has all GPUs."""
    no_gpus: str = ""
    """The reason why GPUs are not checked; empty if they are."""
    busy_gpus: str = ""
    """The reason why not all GPUs are free; empty if they are."""
    shared: str = ""
    """The reason why a job can't have the whole node; empty if it can."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a check, for the driver too."""

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
    shared_home: bool = True
    """True if the user's home is on the shared file system, and mail is delivered to the user; not so for root."""


@dataclass(frozen=True, kw_only=True)
class CheckPlan:
    """The nodes to check, and those that are left out."""

    expected: Mapping[str, ExpectedNode]
    not_checked: tuple[SkippedNode, ...]
    options: Options
    facts: tuple[PartitionFacts, ...]
    most_nodes: Mapping[str, int]
    """Largest number of nodes of a job, by partition."""
    prolog_seconds: Mapping[str, int]
    """Seconds of the prolog for jobs on several nodes, by partition."""

    @property
    def spec(self) -> str:
        """The driver's argument."""
        groups: dict[ExpectedNode, list[str]] = {}
        for name, node in self.expected.items():
            # Reasons name the node; nodes with equal requests are one group.
            groups.setdefault(replace(node, no_gpus="", busy_gpus="", shared=""), []).append(name)
        partitions: dict[str, dict[str, Any]] = {}
        for row in self.facts:
            nodes = [name for facts in self.facts if facts.name == row.name for name in facts.nodes]
            nodes = [name for name in nodes if name in self.expected]
            most = self.most_nodes.get(row.name, len(nodes))
            partitions[row.name] = {
                "together": compress(nodes) if min(most, len(nodes)) > 1 else "",
                "most_nodes": most,
                "most_minutes": row.time_limit(10**6),
                "prolog_seconds": self.prolog_seconds.get(row.name, 0),
            }
        spec = {
            **asdict(self.options),
            "mail": next(iter(self.expected), "") if self.options.shared_home else "",
            "smi_exit_codes": SMI_EXIT_CODES,
            "groups": [{**asdict(request), "nodes": compress(names)} for request, names in groups.items()],
            "partitions": partitions,
        }
        return json.dumps(spec)


def plan(
    config: ClusterConfig,
    nodes: Mapping[str, Node],
    options: Options,
    *,
    partitions: Iterable[str] | None = None,
    only: frozenset[str] | None = None,
    rehearsed: bool = False,
) -> CheckPlan:
    """Return the check of the nodes of these partitions, or those in `only`. Nodes of a rehearsal may lack GPUs."""
    facts = tuple(row for row in partition_facts(config) if not partitions or row.name in partitions)
    found: dict[str, ExpectedNode | SkippedNode] = {}
    for row in facts:
        for name in row.nodes:
            if name not in found and (only is None or name in only):
                found[name] = _expected(row, name, nodes.get(name), options, rehearsed=rehearsed)
    slurm = config.slurm
    return CheckPlan(
        expected={name: node for name, node in found.items() if isinstance(node, ExpectedNode)},
        not_checked=tuple(node for node in found.values() if isinstance(node, SkippedNode)),
        options=options,
        facts=facts,
        most_nodes={name: row.max_nodes for name, row in config.partitions.items() if row.max_nodes},
        # The prolog of A3 Mega nodes pulls containers for the first job on several nodes.
        prolog_seconds=dict.fromkeys(slurm.rxdm.partitions if slurm.rxdm else (), slurm.timers.prolog_epilog),
    )


def _expected(
    row: PartitionFacts, name: str, node: Node | None, options: Options, *, rehearsed: bool
) -> ExpectedNode | SkippedNode:
    def skipped(why: str, todo: str, *, unavailable: bool = False) -> SkippedNode:
        return SkippedNode(node=name, partition=row.name, why=why, todo=todo, unavailable=unavailable)

    if node is None:
        return skipped("slurmctld does not know it", "run ./hpc up, or add it to slurmctld", unavailable=True)
    if node.fine and (node.asleep or node.booting):
        state = "off until a job needs it" if node.asleep else "booting"
        todo = f"srun --partition={row.name} --nodelist={name} true has it started; check it then"
        return skipped(f"{node.word}: {state}", todo)
    # A completing node is free in a moment.
    if not node._replace(states=node.states - {"COMPLETING"}).fine:
        todo = f"./hpc status STACK; once it is mended ./hpc nodes STACK resume {name}"
        return skipped(f"{node.word}: {node.reason}" if node.reason else node.word, todo, unavailable=True)
    whole = options.exclusive or row.exclusive
    busy = _why_busy(node, node.usable_cpus if whole else 1, _LEAST_MEMORY, node.gpus if whole else 0)
    if busy and not options.wait:
        return skipped(busy, "--wait waits for these jobs to end")
    free = node.emptied if options.wait else node
    promised = row.gpu.count if row.gpu else 0
    no_gpus = "nodes of this rehearsal have no GPUs" if promised and rehearsed and not node.gpus else ""
    checked = 0 if no_gpus else promised
    return ExpectedNode(
        partition=row.name,
        tasks=min(_TASKS, max(1, free.free_cpus)),
        memory=max(_LEAST_MEMORY, min(_MEMORY, free.free_memory)),
        container_memory=max(_LEAST_MEMORY, min(_CONTAINER_MEMORY, free.free_memory)),
        gpus=checked,
        one_gpu=bool(checked) and not _why_busy(free, gpus=1),
        all_gpus=bool(checked) and not _why_busy(free, gpus=checked),
        no_gpus=no_gpus,
        busy_gpus=_why_busy(free, gpus=promised),
        shared=_why_busy(free, node.usable_cpus),
    )


def _why_busy(node: Node, cpus: int = 0, memory: int = 0, gpus: int = 0) -> str:
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


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The results of all checks."""

    results: tuple[CheckResult, ...]
    not_checked: tuple[SkippedNode, ...]

    @property
    def passed(self) -> bool:
        """True if nothing failed, no node is out of service, and something was checked."""
        statuses = {result.status for result in self.results}
        return PASS in statuses and FAIL not in statuses and not any(node.unavailable for node in self.not_checked)


def evaluate(plan: CheckPlan, rows: Iterable[Mapping[str, Any]], more: Iterable[CheckResult] = ()) -> CheckReport:
    """Return the report of a run by the lines of the driver, and results of other checks. A node without a result
    failed."""
    rows = list(rows)
    lost = [SkippedNode(**row) for row in rows if "why" in row]
    nodes: dict[str, dict[str, CheckResult]] = {name: {} for name in plan.expected}
    results: list[CheckResult] = []
    for result in (*(CheckResult(**row) for row in rows if "check" in row), *more):
        if not result.node:
            results.append(result)
        # Both the node and the login machine check a home: the first failure counts, which is the cause of the other.
        elif (earlier := nodes[result.node].get(result.check)) is None or earlier.status != FAIL:
            nodes[result.node][result.check] = result
    of_nodes = [
        result
        for name, found in nodes.items()
        for result in _completed(name, plan.expected[name], found, lost=any(row.node == name for row in lost))
    ]
    every = (
        replace(result, todo=CHECKS.get(result.check, "").replace("NODE", result.node))
        if result.status == FAIL and not result.todo
        else result
        for result in (*of_nodes, *results)
    )
    return CheckReport(results=tuple(every), not_checked=(*plan.not_checked, *lost))


def _completed(name: str, node: ExpectedNode, found: dict[str, CheckResult], *, lost: bool) -> list[CheckResult]:
    """Return the results of a node in the order of CHECKS, with those that no job had."""

    def add(check: str, status: str, text: str) -> None:
        found[check] = CheckResult(check=check, status=status, node=name, partition=node.partition, text=text)

    if "hello" not in found and not lost:
        add("hello", FAIL, "the check ended before this node's job did")
    if node.no_gpus and "home" in found:
        add("gpus", SKIP, node.no_gpus)
        add("confined", SKIP, node.no_gpus)
    elif node.busy_gpus and (gpus := found.get("gpus")):
        found["gpus"] = replace(gpus, text=f"{gpus.text}; not tried together: {node.busy_gpus}")
        if not node.one_gpu:
            add("confined", SKIP, node.busy_gpus)
    return [found[check] for check in CHECKS if check in found]
