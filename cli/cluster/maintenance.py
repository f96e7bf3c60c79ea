"""Drains and resumes nodes. Safe to repeat; running jobs are not touched unless --force is given."""

from collections.abc import Sequence

from cli import console
from cli.cluster.scheduler import Scheduler, busy_lines
from cli.errors import CliError
from cluster.observe.nodes import Node
from cluster.slurm.hostlist import compress

_RESUME_SECONDS = 8.0
"""For a node to be in service after RESUME: slurmctld pings it at once, jobs that end need a moment."""
_UNDRAIN_SECONDS = 40.0
"""The same after DOWN and RESUME: longer than slurmctld waits for an answer (MessageTimeout, 30 s)."""
_CLEAN_UP_SECONDS = 60.0
"""For what is left of jobs that have ended: their epilogs, processes that take long to die."""
UNDRAINING = "undraining"
"""The reason with which a stuck node is set DOWN for a moment."""


def refuse_busy(nodes: Sequence[Node], what: str) -> None:
    """Refuse to touch nodes with running jobs; `what` says which options allow it.

    Raises:
        CliError: one of them runs a job.
    """
    lines = busy_lines(nodes)
    if lines:
        raise CliError("\n".join(["jobs run there, so nothing was done:", *lines, what]))


def drain(scheduler: Scheduler, nodes: Sequence[Node], *, reason: str, force: bool, wait: bool) -> None:
    """Drain nodes: they take no new jobs, and running jobs go on.

    Raises:
        CliError: a job runs on one of them, and neither `force` nor `wait` allows for it.
    """
    wanted = [node for node in nodes if not node.drained]
    if not (force or wait):
        refuse_busy(
            wanted,
            "A drain lets them go on and keeps new ones away. To drain beside them: --force. To drain and wait until "
            "they have ended: --wait.",
        )
    for node in nodes:
        if node.drained:
            since = f" since {node.since}" if node.since else ""
            console.line(f"{node.name}: is {node.word} already{since}: {node.reason}")
    if wanted:
        scheduler.set(wanted, "DRAIN", reason)
    if wait:
        wait_for_jobs(scheduler, [node.name for node in nodes])
    now = scheduler.nodes()
    for node in (now[node.name] for node in wanted if node.name in now):
        console.line(f"{node.name}: {node.word}" + (f", {_count(node)} still running" if node.busy else ""))


def wait_for_jobs(scheduler: Scheduler, names: Sequence[str]) -> None:
    """Wait until no job runs on these nodes, however long that takes, and for the clean-up after them."""

    def waiting(pending: list[Node]) -> str:
        # Without the times, which change at every call.
        jobs = sorted({f"{job.number} of {job.user}" for node in pending for job in node.busy})
        return f"Waiting for job {', '.join(jobs)} on {compress(node.name for node in pending)} ..."

    scheduler.wait(names, lambda node: not node.busy, say=waiting)
    wait_for_cleanup(scheduler, names)


def wait_for_cleanup(scheduler: Scheduler, names: Sequence[str]) -> None:
    """Wait up to a minute for the epilogs and processes of jobs that have ended on these nodes."""
    scheduler.wait(names, lambda node: not node.jobs, say=waiting_for, seconds=_CLEAN_UP_SECONDS)


def resume(scheduler: Scheduler, nodes: Sequence[Node], *, force: bool) -> None:
    """Resume nodes; one that RESUME alone does not bring back is set DOWN first, unless jobs run there.

    Raises:
        CliError: a job runs on a drained one and `force` is not given, or a node did not come back.
    """
    wanted = [node for node in nodes if not node.fine]
    if not force:
        refuse_busy(wanted, "To lift the drain beside them, which they do not notice: --force.")
    for node in nodes:
        if node.fine:
            console.line(f"{node.name}: is {node.word}; there is nothing to resume")
    if not wanted:
        return
    held = [node.name for node in wanted if node.held]
    if held:
        scheduler.resume(held)
    names = [node.name for node in wanted]
    stuck = scheduler.wait(names, lambda node: node.fine, say=waiting_for, seconds=_RESUME_SECONDS)
    # A node that only does not answer is not helped by it; and it would end the jobs that run there.
    stuck_down = [node for node in stuck if (node.held or "COMPLETING" in node.states) and not node.busy]
    if stuck_down:
        console.note(
            f"{compress(node.name for node in stuck_down)}: RESUME was not enough; DOWN first, then RESUME ..."
        )
        scheduler.set(stuck_down, "DOWN", UNDRAINING)
        scheduler.resume([node.name for node in stuck_down])
    if stuck:
        stuck = scheduler.wait(names, lambda node: node.fine, say=waiting_for, seconds=_UNDRAIN_SECONDS)
    now = scheduler.nodes()
    left = {node.name for node in stuck}
    for name in names:
        if name not in left and name in now:
            console.line(f"{name}: {now[name].word}")
    if stuck:
        raise CliError("\n".join(_not_back(scheduler, node) for node in stuck))


def _not_back(scheduler: Scheduler, node: Node) -> str:
    why = f": {node.reason}" if node.reason else ""
    jobs = f" {_count(node).capitalize()} still running there." if node.busy else ""
    return (
        f"{node.name} did not come back, it is {node.word}{why}.{jobs} Look at what its slurmd says: "
        f"./hpc logs {scheduler.stack} slurmd --on {node.name.removeprefix(scheduler.cluster.name + '-')}"
    )


def waiting_for(pending: list[Node]) -> str:
    return "Waiting for " + ", ".join(f"{node.name} ({node.word})" for node in pending) + " ..."


def _count(node: Node) -> str:
    return f"{len(node.busy)} job{'s' if len(node.busy) > 1 else ''}"
