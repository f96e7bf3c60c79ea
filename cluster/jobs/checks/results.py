"""What the outputs of a check's jobs mean: a result for each node and check."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cluster.jobs.checks.node_results import node_results
from cluster.jobs.checks.plan import NODE, TOGETHER, Expected, NotChecked, Plan
from cluster.jobs.checks.result import FAIL, MARK, PASS, SKIP, Event, Result, found_no_room, output_of, tasks_of
from cluster.observe.nodes import Node
from cluster.slurm.hostlist import compress

_REFUSED = (
    "Invalid account", "not permitted to use this partition", "Required partition not available", "Invalid qos",
    "violates accounting/QOS policy", "Access/permission denied", "node count specification invalid",
    "Requested node configuration is not available",
)  # fmt: skip
"""What slurmctld answers to a job that this user can't have (slurm_errno.c)."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All results."""

    results: tuple[Result, ...]
    not_checked: tuple[NotChecked, ...]
    log: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Nothing failed, no node is out of service, and something was checked."""
        return (
            not any(one.status == FAIL for one in self.results)
            and not any(one.unavailable for one in self.not_checked)
            and any(one.status == PASS for one in self.results)
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
    plan: Plan, events: Iterable[Event], *, more: Iterable[Result] = (), now: Mapping[str, Node] | None = None
) -> Report:
    """The report of a run. A check that never ended failed.

    `more` are results of other checks; `now` has the jobs of nodes that became busy meanwhile.
    """
    every = list(events)
    ended = {(one["key"], tuple(one["nodes"])): one for one in every if one["event"] == "end"}
    last = {one["event"]: one for one in every if one["event"] in ("home", "accounting", "failed")}
    found: list[Result] = []
    missing = list(plan.not_checked)
    for node, expected in plan.expected.items():
        hello = ended.get((NODE, (node,)))
        if lost := _lost(expected, hello, (now or {}).get(node)):
            missing.append(lost)
            continue
        found += node_results(plan, expected, lambda key, node=node: ended.get((key, (node,))), last)
    found += _of_partitions(plan, ended)
    if "failed" in last:
        found.append(Result(check="driver", status=FAIL, text=str(last["failed"].get("text"))))
    found += more
    return Report(results=tuple(found), not_checked=tuple(missing))


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


def _of_partitions(plan: Plan, ended: Mapping[tuple[str, tuple[str, ...]], Event]) -> Iterator[Result]:
    """Jobs over all nodes of a partition."""
    for partition in dict.fromkeys(job.partition for job in plan.jobs if job.key == TOGETHER):
        tasks = min(job.tasks for job in plan.jobs if job.key == TOGETHER and job.partition == partition)
        every = [one for (key, _), one in ended.items() if key == TOGETHER and one["partition"] == partition]
        for event in every or [None]:
            yield _together(partition, tasks, event)


def _together(partition: str, tasks: int, event: Event | None) -> Result:
    if event is None:
        text = "fewer than two nodes answered alone"
        return Result(check="together", status=SKIP, partition=partition, text=text)
    nodes, seen = list(event["nodes"]), tasks_of(event)
    wanted = len(nodes) * tasks
    found = {(str(one.get("node")), one.get("task")) for one in seen}
    silent = [node for node in nodes if sum(name == node for name, _ in found) < tasks]
    if found_no_room(event):
        text = f"no room on all {len(nodes)} nodes at once"
        return Result(check="together", status=SKIP, partition=partition, text=text)
    if silent or event["code"]:
        late = f"no end within {event['seconds']:.0f} s" if event.get("late") else f"exit code {event['code']}"
        text = f"{len(found)} of {wanted} tasks on {len(nodes)} nodes answered, {late}"
        text += f"; not all of {compress(silent)}" if silent else ""
        todo = "srun over these nodes by hand; nodes must reach each other's slurmd"
        return Result(check="together", status=FAIL, partition=partition, text=text, output=output_of(event), todo=todo)
    return Result(check="together", status=PASS, partition=partition, text=f"{wanted} tasks on {len(nodes)} nodes")
