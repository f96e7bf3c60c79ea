"""Reboots nodes through slurmctld, which drains them, waits for their jobs, has slurmd reboot, and resumes them.

A node whose slurmd does not answer slurmctld is drained, rebooted and resumed by this module, over SSH.
"""

import time
from collections.abc import Sequence

from cli import console
from cli.access import remote
from cli.cluster import maintenance
from cli.cluster.scheduler import Scheduler, busy_lines
from cli.errors import CliError
from cluster.observe.nodes import Node
from cluster.slurm.hostlist import compress

MARK = "reboot by hpc"
"""Start of the reason with which nodes are drained here, by which a repeated command knows its own drains."""
# /run is empty after a boot, so the mark tells one from the next, on every kind of machine.
_FLAG = "/run/hpc-reboot"
_REBOOT = f"touch {_FLAG} && {{ nohup sh -c 'sleep 0.3; systemctl --no-wall reboot' >/dev/null 2>&1 </dev/null & }}"
_BOOTED = f"test ! -e {_FLAG}"
_ASK_SECONDS = 5.0


def reboot(
    scheduler: Scheduler, nodes: Sequence[Node], *, reason: str, force: bool, wait: bool, timeout: float
) -> None:
    """Reboot nodes; those that were in service come back into it, those that somebody drained stay drained.

    Raises:
        CliError: a job runs on one of them and neither `force` nor `wait` is given, one is no machine of its own, or
            one did not come back within `timeout` seconds.
    """
    _refuse_shared(scheduler, nodes)
    how = "To let them end first: --wait. To end them now (those that can be requeued wait again): --force."
    if not (force or wait):
        maintenance.refuse_busy(nodes, how)
    names = [node.name for node in nodes]
    by_slurm = scheduler.reboots()
    unanswering = [node.name for node in nodes if "NOT_RESPONDING" in node.states or not by_slurm]
    before = {node.name: node.started for node in nodes}
    start = time.monotonic()
    text = f"{MARK}: {reason}" if reason else MARK
    undrained = [node.name for node in nodes if not node.drained]
    ours = [node.name for node in nodes if not node.drained or node.reason.startswith(MARK)]
    # A reboot that an interrupted command asked for is pending already.
    asked = [node.name for node in nodes if node.name not in unanswering and not node.rebooting]
    _ask_slurmctld(scheduler, [name for name in asked if name in ours], text)
    _ask_slurmctld(scheduler, [name for name in asked if name not in ours], "")
    if drained := [name for name in unanswering if name in undrained]:
        scheduler.set(drained, "DRAIN", text)
    _wait_until_idle(scheduler, names, undrained, how, force=force, wait=wait)
    rebooting = [name for name in names if name not in unanswering]
    rebooting += _reboot_by_ssh(scheduler, unanswering) if unanswering else []
    console.note(f"Rebooting {compress(rebooting)} ...")
    late = _wait_for_boot(scheduler, rebooting, unanswering, before, timeout)
    back = [name for name in rebooting if name not in late]
    if to_serve := [name for name in back if name in ours and name in unanswering]:
        scheduler.resume(to_serve)
    for node in nodes:
        if node.name in back and node.name in asked and node.name not in ours:
            # slurmctld puts what it did behind the reason that the node is drained for.
            scheduler.set([node.name], "DRAIN", node.reason)
    weak = scheduler.wait(
        [name for name in back if name in ours], lambda node: node.fine, say=maintenance.waiting_for, seconds=timeout
    )
    _report(scheduler, names, rebooting, {*late, *(node.name for node in weak)}, time.monotonic() - start)


def _refuse_shared(scheduler: Scheduler, nodes: Sequence[Node]) -> None:
    shared = [node.name for node in nodes if scheduler.cluster.targets[node.name].roles != ("node",)]
    if shared:
        raise CliError(
            f"{', '.join(shared)}: the machine is controller or login machine as well, and would take the cluster "
            f"along. When nobody needs it: ./hpc ssh {scheduler.stack} {shared[0]} -- systemctl reboot"
        )


def _ask_slurmctld(scheduler: Scheduler, names: list[str], reason: str) -> None:
    if names:
        scheduler.reboot(names, reason)


def _wait_until_idle(
    scheduler: Scheduler, names: list[str], undrained: list[str], how: str, *, force: bool, wait: bool
) -> None:
    """See that nothing runs on the nodes, which take no new jobs any more."""
    if wait:
        maintenance.wait_for_jobs(scheduler, names)
        return
    now = scheduler.nodes()
    busy = [now[name] for name in names if name in now and now[name].busy]
    if busy and not force:
        # They began between our look and the drain. What is idle may reboot already.
        if pending := [node.name for node in busy if "REBOOT_REQUESTED" in node.states]:
            scheduler.ask(f"scontrol cancel_reboot {compress(pending)}")
        if still := [node.name for node in scheduler.nodes().values() if node.name in undrained and node.drained]:
            scheduler.resume(still)
        maintenance.refuse_busy(busy, how)
    if busy:
        console.note("\n".join(["Ending:", *busy_lines(busy)]))
        scheduler.end({job.number: job for node in busy for job in node.busy}.values())
    maintenance.wait_for_cleanup(scheduler, names)
    # slurmctld reboots no node on which something is still completing. What does not go (KillWait is 30 s) ends with
    # the machine: DOWN, slurmctld waits for it no longer.
    now = scheduler.nodes()
    stuck = [now[name] for name in names if name in now and now[name].jobs and "REBOOT_REQUESTED" in now[name].states]
    for node in stuck:
        scheduler.set([node], "DOWN", node.reason)


def _reboot_by_ssh(scheduler: Scheduler, names: list[str]) -> list[str]:
    """Reboot machines over SSH; those that accepted the command.

    Raises:
        CliError: none accepted it.
    """
    machines = [scheduler.cluster.targets[name] for name in names]
    answers = remote.gather(machines, scheduler.cluster.admin_key, _REBOOT)
    failed = {name: done for name, done in answers.items() if done.code}
    for name, done in failed.items():
        console.note(f"{name}: can't be told to reboot: {done.err.strip() or f'exit code {done.code}'}")
    if len(failed) == len(names):
        raise CliError(
            f"{compress(names)}: stays drained. A machine that does not answer is started by what runs it, on this "
            f"host by: ./hpc up {scheduler.stack}"
        )
    return [name for name in names if name not in failed]


def _wait_for_boot(
    scheduler: Scheduler, names: list[str], unanswering: list[str], before: dict[str, str], timeout: float
) -> list[str]:
    """Wait until the machines have booted and their slurmd has registered; those that have not after `timeout`.

    slurmctld knows of a boot that it asked for; of the others, `unanswering`, the machines are asked.
    """
    machines = scheduler.cluster.targets
    booted = {name for name in names if name not in unanswering}
    seen = 0
    end = time.monotonic() + timeout
    while True:
        asked = [machines[name] for name in names if name not in booted]
        answers = remote.gather(asked, scheduler.cluster.admin_key, _BOOTED, seconds=_ASK_SECONDS) if asked else {}
        booted |= {name for name, done in answers.items() if done.code == 0}
        nodes = scheduler.nodes()
        # It has registered anew, and slurmctld does not believe its boot time: in a rehearsal it may be the host's.
        there = [nodes[name] for name in names if name in nodes]
        doubted = [one.name for one in there if "REBOOT_ISSUED" in one.states and one.started != before.get(one.name)]
        if doubted:
            scheduler.resume(doubted)
        back = [name for name in names if name in booted and _registered(nodes.get(name), before.get(name, ""))]
        if len(back) == len(names) or time.monotonic() > end:
            return [name for name in names if name not in back]
        if len(back) != seen:
            seen = len(back)
            console.note(f"{seen} of {len(names)} are back in the cluster")
        time.sleep(0.5)


def _registered(node: Node | None, before: str) -> bool:
    return (
        node is not None
        and node.started != before
        and not node.rebooting
        and not node.states & {"NOT_RESPONDING", "DOWN"}
    )


def _report(scheduler: Scheduler, names: list[str], rebooting: list[str], late: set[str], seconds: float) -> None:
    now = scheduler.nodes()
    for name in rebooting:
        if name not in late:
            node = now[name]
            kept = f", as it was before: {node.reason}" if node.drained else ""
            console.line(f"{name}: {node.word}{kept}")
    lost = [name for name in names if name not in rebooting or name in late]
    if lost:
        short = scheduler.cluster.name + "-"
        raise CliError(
            f"{compress(lost)}: did not come back, and stays as it is: "
            + ", ".join(f"{name} {now[name].word}" for name in lost if name in now)
            + f". What it says: ./hpc logs {scheduler.stack} {lost[0].removeprefix(short)}. When it is there: "
            f"./hpc nodes {scheduler.stack} resume {compress(lost)}"
        )
    console.note(f"Rebooted in {seconds:.0f} s")
