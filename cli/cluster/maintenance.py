"""Drains, resumes and reboots nodes. Safe to repeat. Running jobs are not affected without --force.

slurmctld drains a node that is to be rebooted, waits for its jobs, has slurmd reboot, and resumes it. A node whose
slurmd does not answer slurmctld is drained, rebooted and resumed from here, over SSH.
"""

import time
from collections.abc import Sequence

from cli import console
from cli.access import remote
from cli.cluster.scheduler import Scheduler, busy_lines
from cli.errors import CliError
from scripts.node.slurm.hostlist import compress
from scripts.node.slurm.nodes import Node

_RESUME_SECONDS = 8.0
"""Time for a node to be in service after RESUME: slurmctld pings it at once, jobs that end need a moment."""
_UNDRAIN_SECONDS = 120.0
"""Time for the same after DOWN and RESUME: longer than slurmctld waits for an answer (MessageTimeout, 30 s)."""
_CLEAN_UP_SECONDS = 60.0
"""Time for the clean-up after jobs that have ended: their epilogs, and processes that end slowly."""
UNDRAINING = "undraining"
"""The reason with which a stuck node is set DOWN for a moment."""


def refuse_busy(nodes: Sequence[Node], what: str) -> None:
    """Raise CliError if a job runs on one of the nodes. `what` names the options that allow the action."""
    lines = busy_lines(nodes)
    if lines:
        raise CliError("\n".join(["jobs run there, so nothing was done:", *lines, what]))


def drain(scheduler: Scheduler, nodes: Sequence[Node], *, reason: str, force: bool, wait: bool) -> None:
    """Drain nodes: they take no new jobs, and running jobs go on.

    Raises:
        CliError: a job runs on one of them, and neither `force` nor `wait` allows for it.
    """
    undrained = [node for node in nodes if not node.drained]
    if not (force or wait):
        refuse_busy(
            undrained,
            "A drain lets them go on and keeps new ones away. To drain beside them: --force. To drain and wait until "
            "they have ended: --wait.",
        )
    for node in nodes:
        if node.drained:
            since = f" since {node.since}" if node.since else ""
            console.line(f"{node.name}: is {node.word} already{since}: {node.reason}")
    if undrained:
        scheduler.set(undrained, "DRAIN", reason)
    if wait:
        wait_for_jobs(scheduler, [node.name for node in nodes])
    now = scheduler.nodes()
    for node in (now[node.name] for node in undrained if node.name in now):
        console.line(f"{node.name}: {node.word}" + (f", {_count(node)} still running" if node.busy else ""))


def wait_for_jobs(scheduler: Scheduler, names: Sequence[str]) -> None:
    """Wait until no job runs on these nodes, however long that takes, and for the clean-up after them."""

    def describe(pending: list[Node]) -> str:
        # Without the jobs' run times, which change at every call.
        jobs = sorted({f"{job.id} of {job.user}" for node in pending for job in node.busy})
        return f"Waiting for job {', '.join(jobs)} on {compress(node.name for node in pending)} ..."

    scheduler.wait(names, lambda node: not node.busy, describe=describe)
    wait_for_cleanup(scheduler, names)


def wait_for_cleanup(scheduler: Scheduler, names: Sequence[str]) -> None:
    """Wait up to a minute for the epilogs and processes of jobs that have ended on these nodes."""
    scheduler.wait(names, lambda node: not node.jobs, describe=waiting_for, seconds=_CLEAN_UP_SECONDS)


def resume(scheduler: Scheduler, nodes: Sequence[Node], *, force: bool) -> None:
    """Resume nodes. A node that RESUME alone does not resume is set DOWN first, unless jobs run there. An elastic node
    that is down without a machine is powered down again.

    Raises:
        CliError: a job runs on a drained node and `force` is not given, or a node was not resumed.
    """
    out_of_service = [node for node in nodes if not node.fine]
    if not force:
        refuse_busy(out_of_service, "To lift the drain beside them, which they do not notice: --force.")
    for node in nodes:
        if node.fine:
            console.line(f"{node.name}: is {node.word}; there is nothing to resume")
    if not out_of_service:
        return
    # A node that is resumed without a machine counts as one that does not answer (_require_node_reg of
    # src/slurmctld/node_mgr.c), and no job gets it after a reconfigure. POWER_DOWN clears both (idle_on_node_suspend).
    off = [node.name for node in out_of_service if node.down and "POWERED_DOWN" in node.states]
    held = [node.name for node in out_of_service if node.held and node.name not in off]
    if off:
        scheduler.set(off, "POWER_DOWN")
    if held:
        scheduler.resume(held)
    names = [node.name for node in out_of_service]
    stuck = scheduler.wait(names, lambda node: node.fine, describe=waiting_for, seconds=_RESUME_SECONDS)
    # DOWN does not help a node that only does not answer, and it would end the jobs that run there.
    held_or_completing = [node for node in stuck if node.held or "COMPLETING" in node.states]
    if to_set_down := [node.name for node in held_or_completing if not node.busy and node.name not in off]:
        console.note(f"{compress(to_set_down)}: RESUME was not enough; DOWN first, then RESUME ...")
        scheduler.set(to_set_down, "DOWN", UNDRAINING)
        scheduler.resume(to_set_down)
    if stuck:
        stuck = scheduler.wait(names, lambda node: node.fine, describe=waiting_for, seconds=_UNDRAIN_SECONDS)
    now = scheduler.nodes()
    stuck_names = {node.name for node in stuck}
    for name in names:
        if name not in stuck_names and name in now:
            console.line(f"{name}: {now[name].word}")
    if stuck:
        raise CliError("\n".join(_not_resumed(scheduler, node) for node in stuck))


def _not_resumed(scheduler: Scheduler, node: Node) -> str:
    why = f": {node.reason}" if node.reason else ""
    jobs = f" {_count(node).capitalize()} still running there." if node.busy else ""
    return (
        f"{node.name} did not come back, it is {node.word}{why}.{jobs} Look at what its slurmd says: "
        f"./hpc logs {scheduler.cluster.stack} slurmd --on {node.name.removeprefix(scheduler.cluster.name + '-')}"
    )


def waiting_for(pending: list[Node]) -> str:
    return "Waiting for " + ", ".join(f"{node.name} ({node.word})" for node in pending) + " ..."


def _count(node: Node) -> str:
    return f"{len(node.busy)} job{'s' if len(node.busy) > 1 else ''}"


MARK = "reboot by hpc"
"""Beginning of the reason of drains for a reboot, by which a repeated command finds its own drains."""
# /run is empty after a boot, so this file distinguishes one boot from the next on every kind of machine.
_FLAG = "/run/hpc-reboot"
_REBOOT = f"touch {_FLAG} && {{ nohup sh -c 'sleep 0.3; systemctl --no-wall reboot' >/dev/null 2>&1 </dev/null & }}"
_BOOTED = f"test ! -e {_FLAG}"
_ASK_SECONDS = 5.0


def reboot(
    scheduler: Scheduler, nodes: Sequence[Node], *, reason: str, force: bool, wait: bool, timeout: float
) -> None:
    """Reboot nodes. Nodes that were in service return to service, nodes that somebody drained stay drained.

    Raises:
        CliError: a job runs on one of them and neither `force` nor `wait` is given, a node shares its machine with
            other roles, or a node did not return within `timeout` seconds.
    """
    _refuse_shared(scheduler, nodes)
    _refuse_off(nodes)
    how = "To let them end first: --wait. To end them now (those that can be requeued wait again): --force."
    if not (force or wait):
        refuse_busy(nodes, how)
    names = [node.name for node in nodes]
    slurm_reboots = scheduler.has_reboot_program()
    unanswering = [node.name for node in nodes if "NOT_RESPONDING" in node.states or not slurm_reboots]
    if unreached := [name for name in unanswering if name not in scheduler.cluster.targets]:
        raise CliError(
            f"{compress(unreached)}: does not answer slurmctld, which alone reaches elastic nodes. To do: have another "
            f"machine created: ./hpc ssh {scheduler.cluster.stack} controller -- scontrol update "
            f"NodeName={compress(unreached)} State=POWER_DOWN_FORCE"
        )
    before = {node.name: node.started for node in nodes}
    start = time.monotonic()
    text = f"{MARK}: {reason}" if reason else MARK
    undrained = [node.name for node in nodes if not node.drained]
    to_resume = [node.name for node in nodes if not node.drained or node.reason.startswith(MARK)]
    # A node that is rebooting already was requested by an interrupted command.
    to_request = [node.name for node in nodes if node.name not in unanswering and not node.rebooting]
    stay_drained = [name for name in to_request if name not in to_resume]
    for group, why in (([name for name in to_request if name in to_resume], text), (stay_drained, "")):
        if group:
            scheduler.reboot(group, why)
    if drained := [name for name in unanswering if name in undrained]:
        scheduler.set(drained, "DRAIN", text)
    _wait_until_idle(scheduler, names, undrained, how, force=force, wait=wait)
    rebooting = [name for name in names if name not in unanswering]
    rebooting += _reboot_by_ssh(scheduler, unanswering) if unanswering else []
    console.note(f"Rebooting {compress(rebooting)} ...")
    late = _wait_for_boot(scheduler, rebooting, unanswering, before, timeout)
    booted = [name for name in rebooting if name not in late]
    if to_resume_here := [name for name in booted if name in to_resume and name in unanswering]:
        scheduler.resume(to_resume_here)
    for node in nodes:
        if node.name in booted and node.name in stay_drained:
            # slurmctld appends what it did to the reason of the drain.
            scheduler.set([node.name], "DRAIN", node.reason)
    returning = [name for name in booted if name in to_resume]
    not_fine = scheduler.wait(returning, lambda node: node.fine, describe=waiting_for, seconds=timeout)
    failed = {*late, *(node.name for node in not_fine)}
    _report_reboot(scheduler, names, rebooting, failed, time.monotonic() - start)


def _refuse_shared(scheduler: Scheduler, nodes: Sequence[Node]) -> None:
    targets = scheduler.cluster.targets
    shared = [node.name for node in nodes if node.name in targets and targets[node.name].roles != ("node",)]
    if shared:
        raise CliError(
            f"{', '.join(shared)}: the machine is controller or login machine as well, and would take the cluster "
            f"along. When nobody needs it: ./hpc ssh {scheduler.cluster.stack} {shared[0]} -- systemctl reboot"
        )


def _refuse_off(nodes: Sequence[Node]) -> None:
    if off := [node.name for node in nodes if node.asleep or node.booting]:
        raise CliError(
            f"{compress(off)}: the machine is off or starts for a job, so there is nothing to reboot. To do: name "
            "nodes whose machine runs"
        )


def _wait_until_idle(
    scheduler: Scheduler, names: list[str], undrained: list[str], how: str, *, force: bool, wait: bool
) -> None:
    """Wait until nothing runs on the nodes, which take no new jobs any more. With `force`, end their jobs."""
    if wait:
        wait_for_jobs(scheduler, names)
        return
    nodes = scheduler.nodes()
    busy = [nodes[name] for name in names if name in nodes and nodes[name].busy]
    if busy and not force:
        # These jobs began between the query and the drain. Idle nodes may be rebooting already.
        if pending := [node.name for node in busy if "REBOOT_REQUESTED" in node.states]:
            scheduler.run(f"scontrol cancel_reboot {compress(pending)}")
        if to_resume := [node.name for node in scheduler.nodes().values() if node.name in undrained and node.drained]:
            scheduler.resume(to_resume)
        refuse_busy(busy, how)
    if busy:
        console.note("\n".join(["Ending:", *busy_lines(busy)]))
        scheduler.requeue({job.id: job for node in busy for job in node.busy}.values())
    wait_for_cleanup(scheduler, names)
    # slurmctld does not reboot a node with a completing job. Processes that do not end (KillWait is 30 s) end with the
    # machine: slurmctld does not wait for a node that is DOWN.
    for node in scheduler.nodes().values():
        if node.name in names and node.jobs and "REBOOT_REQUESTED" in node.states:
            scheduler.set([node], "DOWN", node.reason)


def _reboot_by_ssh(scheduler: Scheduler, names: list[str]) -> list[str]:
    """Reboot machines over SSH. Returns the names of those that accepted the command.

    Raises:
        CliError: none accepted it.
    """
    machines = [scheduler.cluster.targets[name] for name in names]
    results = remote.gather(machines, scheduler.cluster.admin_key, _REBOOT)
    failed = {name: done for name, done in results.items() if done.code}
    for name, done in failed.items():
        console.note(f"{name}: can't be asked to reboot: {done.err.strip() or f'exit code {done.code}'}")
    if len(failed) == len(names):
        raise CliError(
            f"{compress(names)}: stays drained. A machine that does not answer is started by what runs it, on this "
            f"host by: ./hpc up {scheduler.cluster.stack}"
        )
    return [name for name in names if name not in failed]


def _wait_for_boot(
    scheduler: Scheduler, names: list[str], unanswering: list[str], before: dict[str, str], timeout: float
) -> list[str]:
    """Wait until the machines have booted and their slurmd has registered. Returns the names of those that have not
    after `timeout` seconds.

    slurmctld reports the boots that it requested. For the others, `unanswering`, the machine itself is queried.
    """
    machines = scheduler.cluster.targets
    booted = {name for name in names if name not in unanswering}
    returned = 0
    deadline = time.monotonic() + timeout
    while True:
        waiting = [machines[name] for name in names if name not in booted]
        results = remote.gather(waiting, scheduler.cluster.admin_key, _BOOTED, seconds=_ASK_SECONDS) if waiting else {}
        booted |= {name for name, done in results.items() if done.code == 0}
        nodes = scheduler.nodes_with_retries()
        # The node has registered, but slurmctld does not accept its boot time: in a rehearsal it may be the host's.
        issued = [name for name in names if name in nodes and "REBOOT_ISSUED" in nodes[name].states]
        registered_again = [name for name in issued if nodes[name].started != before.get(name)]
        if registered_again:
            scheduler.resume(registered_again)
        back = [name for name in names if name in booted and _is_registered(nodes.get(name), before.get(name, ""))]
        if len(back) == len(names) or time.monotonic() > deadline:
            return [name for name in names if name not in back]
        if len(back) != returned:
            returned = len(back)
            console.note(f"{returned} of {len(names)} are back in the cluster")
        time.sleep(0.5)


def _is_registered(node: Node | None, before: str) -> bool:
    """Return whether a node has registered since its boot; `before` is the start of its slurmd before that."""
    return (
        node is not None
        and node.started != before
        and not node.rebooting
        and not node.states & {"NOT_RESPONDING", "DOWN"}
    )


def _report_reboot(
    scheduler: Scheduler, names: list[str], rebooting: list[str], late: set[str], seconds: float
) -> None:
    """Print the state of each node that was rebooted. Raises CliError: nodes did not return."""
    nodes = scheduler.nodes()
    for name in rebooting:
        if name not in late:
            node = nodes[name]
            kept = f", as it was before: {node.reason}" if node.drained else ""
            console.line(f"{name}: {node.word}{kept}")
    missing = [name for name in names if name not in rebooting or name in late]
    if missing:
        short = missing[0].removeprefix(scheduler.cluster.name + "-")
        raise CliError(
            f"{compress(missing)}: did not come back, and stays as it is: "
            + ", ".join(f"{name} {nodes[name].word}" for name in missing if name in nodes)
            + f". What it says: ./hpc logs {scheduler.cluster.stack} {short}. When it is there: "
            f"./hpc nodes {scheduler.cluster.stack} resume {compress(missing)}"
        )
    console.note(f"Rebooted in {seconds:.0f} s")
