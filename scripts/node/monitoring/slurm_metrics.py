"""Slurm's metrics from the output of its commands. Pure functions.

They mean the same as slurmctld's own of the same name (src/slurmctld/statistics.c at slurm-26-05-3-1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from monitoring.metrics import BACKFILL, JOB_STATES, NODE_FLAGS, NODE_STATES, STATISTICS, Sample
from slurm.job_reasons import waits_for_nodes, waits_for_service
from slurm.jobs import Job
from slurm.nodes import Node
from slurm.output import count_gpus, parse_tres
from slurm.times import utc_seconds

USERS = 100  # users and accounts with metrics: those with the most jobs
_HELD_BACK = frozenset(
    "DRAIN FAIL INVALID_REG MAINTENANCE NOT_RESPONDING PLANNED POWERING_DOWN REBOOT_ISSUED RESERVED".split()
)
"""States in which an idle node takes no pending jobs, for example as a spare, or planned for a job on several nodes."""
_HOLDS = frozenset(("RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING"))
GPU_COLUMNS = "JobID:20|,UserName:64|,Account:64|,tres-alloc:512|"
"""squeue's --Format, which has the allocated TRES."""


def node_metrics(found: Iterable[Node], now: float) -> Iterator[Sample]:
    """Yield metrics of nodes, whose times are UTC."""
    nodes: Counter[str] = Counter(dict.fromkeys((*NODE_STATES.values(), *NODE_FLAGS.values()), 0))
    nodes.update(dict.fromkeys(("drain", "drained", "draining", "unknown"), 0))
    partitions: Counter[tuple[str, str]] = Counter()
    free: Counter[str] = Counter()
    for node in found:
        kinds, gpus, label = _count_as(node), node.gpus, {"node": node.name}
        nodes.update(kinds)
        yield Sample("slurm_node_cpus", node.cpus, label)
        yield Sample("slurm_node_cpus_alloc", node.used_cpus, label)
        yield Sample("slurm_node_cpus_effective", node.usable_cpus, label)
        yield Sample("slurm_node_cpus_idle", node.free_cpus, label)
        yield Sample("slurm_node_memory_bytes", node.memory << 20, label)
        yield Sample("slurm_node_memory_alloc_bytes", node.used_memory << 20, label)
        if gpus:
            yield Sample("slurm_node_gpus", gpus, label)
            yield Sample("slurm_node_gpus_alloc", node.used_gpus, label)
        is_free = "IDLE" in node.states and not node.states & _HELD_BACK
        for partition in node.partitions:
            free[partition] += is_free
            sums = {"nodes": 1, "cpus": node.cpus, "gpus": gpus, **{f"nodes_{kind}": 1 for kind in kinds}}
            partitions.update({(partition, what): count for what, count in sums.items()})
        if node.held and not node.asleep:
            state = "down" if "DOWN" in node.states else "drained"
            yield Sample("hpc_node_unavailable_seconds", _age(node.since, now), {**label, "state": state})
        if node.taken_out:
            yield Sample("hpc_node_taken_out", 1, label)
    yield Sample("slurm_nodes", sum(nodes[kind] for kind in (*NODE_STATES.values(), "unknown")))
    yield from (Sample(f"slurm_nodes_{kind}", count) for kind, count in nodes.items())
    for (partition, what), count in partitions.items():
        yield Sample(f"slurm_partition_{what}", count, {"partition": partition})
    for partition, count in free.items():
        yield Sample("hpc_partition_nodes_free", count, {"partition": partition})


def _count_as(node: Node) -> list[str]:
    """Return the totals in which a node counts."""
    kinds = [next((kind for state, kind in NODE_STATES.items() if state in node.states), "unknown")]
    kinds += [kind for state, kind in NODE_FLAGS.items() if state in node.states]
    if node.drained:
        # A draining node still has jobs. `drain` counts drained nodes only.
        kinds += ["draining"] if node.occupied else ["drain", "drained"]
    return kinds


def _age(when: str, now: float) -> float:
    """Return the seconds since a time as Slurm prints it, in UTC; 0 if it prints none."""
    since = utc_seconds(when)
    return 0.0 if since is None else max(now - since, 0.0)


def job_metrics(jobs: Iterable[Job], partitions: Iterable[str], now: float) -> Iterator[Sample]:
    """Yield metrics of jobs in all states, whose times are UTC. A job array counts as its tasks."""
    total: Counter[str] = Counter(dict.fromkeys((*JOB_STATES.values(), "pending", "hold"), 0))
    by: dict[str, Counter[tuple[str, str]]] = {"partition": Counter(), "user": Counter(), "account": Counter()}
    by["partition"].update({(name, kind): 0 for name in partitions for kind in ("running", "pending", "hold")})
    alloc: Counter[str] = Counter({"cpus_alloc": 0, "nodes_alloc": 0})
    held = count = waiting_jobs = 0
    waits, oldest = Counter(dict.fromkeys(partitions, 0)), dict.fromkeys(partitions, 0.0)
    blocked = Counter(dict.fromkeys(partitions, 0))
    for job in jobs:
        many = job.tasks
        count += many
        found = ["pending"] if job.waits else [JOB_STATES[job.state]] if job.state in JOB_STATES else []
        found += ["hold"] * job.is_held
        held += many * job.needs_operator
        if job.state in _HOLDS:
            alloc["cpus_alloc"] += int(job.cpus or 0)
            alloc["nodes_alloc"] += int(job.count or 0)
        for kind in found:
            total[kind] += many
            by["user"][job.user, kind] += many
            by["account"][job.account, kind] += many
            for partition in job.partitions:
                by["partition"][partition, kind] += many
        if job.waits and waits_for_nodes(job.reason):
            waiting_jobs += many
            for partition in job.partitions:
                waits[partition] += many
                blocked[partition] += many * waits_for_service(job.reason)
                oldest[partition] = max(oldest.get(partition, 0.0), _age(job.submitted, now))
    yield Sample("slurm_jobs", count)
    yield from (Sample(f"slurm_jobs_{kind}", number) for kind, number in {**total, **alloc}.items())
    for (partition, kind), number in by["partition"].items():
        yield Sample(f"slurm_partition_jobs_{kind}", number, {"partition": partition})
    for label, name in (("username", "user"), ("account", "account")):
        yield from _largest(by[name], label, name)
    yield Sample("hpc_jobs_held", held)
    yield Sample("hpc_jobs_waiting", waiting_jobs)
    for partition, number in waits.items():
        yield Sample("hpc_partition_jobs_waiting", number, {"partition": partition})
        yield Sample("hpc_partition_jobs_blocked", blocked[partition], {"partition": partition})
        yield Sample("hpc_partition_oldest_waiting_seconds", oldest[partition], {"partition": partition})


def gpu_job_metrics(text: str) -> Iterator[Sample]:
    """Yield GPUs, user and account of running jobs, by the label hpc_job of GPU metrics, from squeue in GPU_COLUMNS."""
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= 4 and (count := count_gpus(parse_tres(cells[3]))):
            yield Sample("hpc_job_gpus", count, {"hpc_job": cells[0], "user": cells[1], "account": cells[2]})


def _largest(counts: Mapping[tuple[str, str], int], label: str, name: str) -> Iterable[Sample]:
    """Yield running and pending jobs of the users or accounts with the most jobs."""
    sums: Counter[str] = Counter()
    for (who, kind), number in counts.items():
        sums[who] += number if kind in ("running", "pending") else 0
    for who, _ in sums.most_common(USERS):
        for kind in ("running", "pending"):
            yield Sample(f"slurm_{name}_jobs_{kind}", counts.get((who, kind), 0), {label: who})


def scheduler_metrics(text: str) -> Iterator[Sample]:
    """Yield metrics of the scheduler from sdiag."""
    names = STATISTICS
    for line in text.splitlines():
        if line.startswith("Backfilling stats"):
            names = BACKFILL
        elif line.startswith("Latency"):
            return
        key, _, value = line.strip().partition(":")
        if key in names and value.strip().isdigit():
            yield Sample(f"slurm_{names[key]}", int(value))
