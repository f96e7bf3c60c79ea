"""Findings about nodes and jobs from slurmctld's own view: down, drained, held. Pure functions, which `./hpc` uses too.

In commands, STACK stands for the stack's name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .nodes import Node
from .output import CLOUD_REASONS, NO_CAPACITY, NO_MACHINE

LOGS = "/var/log/slurm"
NAMED_JOBS = 5
"""Jobs that a finding lists; of more, the first ones."""


class MachineFinding(NamedTuple):
    """A problem of a machine or node."""

    id: str
    """Its kind, of judge/kinds.py."""
    where: str
    """The name of the machine, account or user."""
    what: str
    """The rest of a sentence that begins with the machine's name, or a sentence without its full stop."""
    todo: str
    """The command to type."""
    note: str = ""
    """Advice on the command, or the step after it."""
    since: float | None = None
    """Seconds since the epoch; None if unknown."""


Explain = Callable[[Node], MachineFinding | None]
"""Returns the finding about a node with a reason that this cluster's own health checks gave; None for another one."""


def down(nodes: Iterable[Node], *, cooling: bool) -> Iterator[MachineFinding]:
    """Yield nodes that are down, without those that were taken out. `cooling`: the reconcile loop waits for capacity,
    or for the next month's budget, and has one finding for all nodes that lack it."""
    for node in nodes:
        if not node.down or node.taken_out:
            continue
        if not node.elastic:
            yield _down(node)
        elif not node.off:
            yield _down(node)._replace(what=f"is an elastic node, and slurmctld says {node.word}: {node.reason}")
        elif not (cooling and node.reason.startswith((NO_CAPACITY, NO_MACHINE))):
            yield MachineFinding(
                id="node-unstarted",
                where=node.name,
                what=f"has no machine, and takes no jobs ({node.word}): {node.reason or 'no reason given'}",
                todo=f"./hpc nodes STACK resume {node.name}",
                note="Once the reason is gone; the reconcile service resumes nodes that wait for capacity.",
                since=node.since_utc,
            )


def _down(node: Node) -> MachineFinding:
    if "UNKNOWN" in node.states and not node.reason:
        return MachineFinding(
            id="node-down",
            where=node.name,
            what="slurmctld was restarted, and the node has not registered yet",
            todo="./hpc status STACK",
            note="Ask again in half a minute.",
        )
    reason = f": {node.reason} (said by {node.by})" if node.reason else ", and gives no reason"
    silent = node.silent and not node.elastic
    return MachineFinding(
        id="node-down",
        where=node.name,
        what=f"slurmctld says {node.word}{reason}",
        todo="./hpc status STACK" if silent else f"./hpc nodes STACK resume {node.name}",
        note="It connects to the machine, and shows the cause." if silent else "Once the reason is gone.",
        since=node.since_utc,
    )


def drained(nodes: Iterable[Node], explain: Explain) -> Iterator[MachineFinding]:
    """Yield nodes that are drained: by an administrator, a health check, the cloud or a failed prolog."""
    for node in nodes:
        if not node.drained:
            continue
        if by_health_check := explain(node):
            yield by_health_check._replace(since=node.since_utc)
            continue
        resume = f"./hpc nodes STACK resume {node.name}"
        what = f"is drained by {node.by or 'somebody'}, and takes no new jobs: {node.reason or 'no reason given'}"
        todo, note = resume, "Once the reason is gone."
        if node.reason in CLOUD_REASONS:
            what = f"takes no new jobs: {node.reason.partition(': ')[2]}"
            todo = "./hpc refresh STACK && ./hpc up STACK"
            note = "If it was stopped: that starts it. It is resumed by itself when it is back."
        elif kind := next((kind for kind in ("prolog", "epilog") if kind in node.reason.lower()), ""):
            what += f". {'A prolog' if kind == 'prolog' else 'An epilog'} failed there, and {LOGS}/{kind}.log says why"
            todo, note = f"./hpc ssh STACK {node.name} -- tail {LOGS}/{kind}.log", f"When that is mended: {resume}"
        yield MachineFinding("node-drained", node.name, what, todo, note, node.since_utc)


def held(controller: str, jobs: Mapping[str, Any] | None) -> Iterator[MachineFinding]:
    """Yield a finding on jobs that Slurm or an operator holds, of a summary of jobs. Jobs that users hold themselves
    are not counted."""
    rows = (jobs or {}).get("held", [])
    if not rows:
        return
    listed = [f"{job['id']} of {job['user']} ({job['reason']})" for job in rows[:NAMED_JOBS]]
    more = [f"{len(rows) - NAMED_JOBS} more"] if len(rows) > NAMED_JOBS else []
    are, they = ("jobs are", "they start") if len(rows) > 1 else ("job is", "it starts")
    yield MachineFinding(
        id="jobs-held",
        where=controller,
        what=f"{len(rows)} {are} held, and {they} only when released: {', '.join([*listed, *more])}",
        todo=f"./hpc ssh STACK controller -- scontrol release {','.join(job['id'] for job in rows)}",
        note="Once the reason is gone; slurmctld.log on that machine names the node and what failed there.",
    )
