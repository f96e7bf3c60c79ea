"""Drains what leaves the cluster: no new jobs start there, and running jobs finish.

A node that leaves, or whose sockets, cores or GPUs change, is drained before slurm.conf changes (`configure`); where
its machine is recreated, before that is deleted (`leave`). The node's reason says so; exactly these nodes are resumed:
when the node is back, or the edit was reverted. After a kill or a timeout, the next `up` continues to wait.
"""

import json
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import turns
from slurm import conf_changes, reservations, scheduler
from slurm.scheduler import ENDED, Job, everywhere, jobs_left
from system.host import SetupError, log, read_json, run, succeeds, write

TIMEOUT = Path("/etc/hpc/drain-seconds")  # `slurm.drain_seconds`, which phase `leave` is not given
PARTITIONS = Path("/etc/hpc/partitions-drained.json")  # a partition's state has no reason: these are ours
DEFAULT_SECONDS = 3600
WANTED = Path("/run/hpc/setup-wanted")  # touched by an `up` that finds another one's set-up at work
OFF_SECONDS = 600  # longer than SuspendTimeout (cluster/slurm/power_saving.py), after which Slurm has a node off
REPEAT_SECONDS = 60  # how often a wait says that it still waits for the same jobs


def drain_removed(old: str, new: str, *, seconds: float, part: float) -> None:
    """Empty what the slurm.conf `new` takes away or reshapes of the one slurmctld runs with, `old`; bring back what was
    drained for an edit that was taken back.

    Raises SetupError after `seconds`, naming the jobs; then nothing is changed but that nothing new starts there.
    """
    write(TIMEOUT, f"{seconds:.0f}\n", quiet=True)
    write(turns.PART, f"{part}\n", quiet=True)
    had, has = conf_changes.partitions(old), conf_changes.partitions(new)
    why, parts = leaving(old, new), had - has
    if not (why or parts):
        # Where slurmctld does not answer, the new files may be what it needs.
        if old and succeeds("scontrol", "ping"):
            resume_if(set(conf_changes.nodes(new)), had, (scheduler.LEAVES,))
        return
    _answer()
    resume_if(set(conf_changes.nodes(new)) - set(why), had & has, (scheduler.LEAVES,))
    _close(parts)
    scheduler.drain_nodes(why)
    _wait(set(why), parts, seconds)
    _power_down(why)


def leave(name: str) -> None:
    """Empty one node whose machine goes when it is its turn, and set it down, so that its next machine has to register
    first; one that is elastic from now on is powered down, so that Slurm asks for its next machine.

    A node that slurm.conf does not have any more was emptied before. Raises SetupError at the stack's limit.
    """
    _answer()
    if name not in scheduler.states():
        return
    seconds = float(TIMEOUT.read_text()) if TIMEOUT.exists() else DEFAULT_SECONDS
    with turns.present(name):
        _wait_for_turn(name, seconds + turns.JOIN_SECONDS)
        _wait({name}, set(), seconds, meanwhile=turns.resume_joined)
    found = scheduler.states().get(name)
    if not found or found["reason"] not in scheduler.OURS:
        return
    if scheduler.ELASTIC in found["states"]:
        _power_down({name: ""})
    else:
        run("scontrol", "update", f"NodeName={name}", "State=DOWN", f"Reason={scheduler.REMADE}")


def vacate(names: list[str]) -> None:
    """Empty elastic nodes that are about to be static, and have their machines deleted: the static ones have the same
    names. They stay drained until these have joined.

    Raises SetupError at the stack's limit; then nothing new starts there, and the next `up` goes on.
    """
    _answer()
    found = scheduler.states()
    why = {name: scheduler.REMADE for name in names if name in found and scheduler.ELASTIC in found[name]["states"]}
    if why:
        scheduler.drain_nodes(why)
        _wait(set(why), set(), float(TIMEOUT.read_text()) if TIMEOUT.exists() else DEFAULT_SECONDS)
        _power_down(why)


def refuse_busy(users: set[str]) -> None:
    """Return if no user who leaves has jobs: sacctmgr would refuse, and nodes could not remove the account.

    Raises SetupError naming the jobs, before anything is changed.
    """
    if not users or not succeeds("scontrol", "ping"):
        return
    busy = [job for job in everywhere() if job.user in users and job.state not in ENDED]
    if busy:
        names = ",".join(sorted({job.user for job in busy}))
        lines = [
            f"{names} leaves the cluster and has jobs:",
            *(f"  {job}" for job in busy),
            "Nothing was changed.",
            f"  to end them:      scancel --user={names} (on the controller), then `up`",
            "  to let them be:   put the user back, and take the user away when they have ended",
        ]
        raise SetupError("\n".join(lines))


def resume_drained(conf: str) -> None:
    """After an `up` that brought everything in order: resume whatever an earlier, unfinished one had drained."""
    resume_if(set(conf_changes.nodes(conf)), conf_changes.partitions(conf), scheduler.OURS)


def leaving(old: str, new: str) -> dict[str, str]:
    """Return the nodes to be emptied before `new` takes the place of `old`, each with the reason. A pure function."""
    was, now = conf_changes.nodes(old), conf_changes.nodes(new)
    return {
        name: scheduler.LEAVES if name not in now else scheduler.RESHAPED
        for name, shape in was.items()
        if now.get(name) != shape
    }


def resume_if(nodes: set[str], partitions: set[str], reasons: tuple[str, ...]) -> None:
    """Resume the nodes that were drained here for any of the reasons, and open partitions that were closed here."""
    found = {name: state for name, state in scheduler.states().items() if name in nodes and state["reason"] in reasons}
    scheduler.resume_nodes(sorted(name for name, state in found.items() if state["states"] & {"DRAIN", "DOWN"}))
    closed = _closed()
    for name in sorted(closed & partitions):
        run("scontrol", "update", f"PartitionName={name}", "State=UP")
        log(f"partition {name} takes jobs again")
    if closed:
        # What is not there any more has left: of that name, another one may come.
        write(PARTITIONS, "[]\n", quiet=True)


def _closed() -> set[str]:
    return set(read_json(PARTITIONS, []))


def _answer() -> None:
    """Wait until slurmctld answers. One that was stopped is started, with the files that it had."""
    if not succeeds("scontrol", "ping"):
        run("systemctl", "start", "slurmctld")
        hint = "something leaves, and only slurmctld can list the jobs there: put it back to mend slurmctld first"
        scheduler.wait_until_answers(hint=hint)


def _power_down(why: dict[str, str]) -> None:
    """Power down the elastic nodes among these, so that their machines are deleted. Slurm takes DRAIN off a node that
    it powers down: a node with a reason is drained again as soon as it is off.

    Without one, Slurm has it for jobs after SuspendTimeout: a drain that is lifted while the node is off would leave
    it with NOT_RESPONDING, and slurmctld gives such a node no job after its next restart (24.11). Raises SetupError
    after OFF_SECONDS.
    """
    asked: set[str] = set()
    end = time.monotonic() + OFF_SECONDS
    while True:
        every = {name: state["states"] for name, state in scheduler.states().items() if name in why}
        found = {name: states for name, states in every.items() if scheduler.ELASTIC in states}
        on = {name for name, states in found.items() if not states & scheduler.OFF}
        asked &= on
        for name in sorted(on - asked):
            # A boot is not ended by POWER_DOWN alone, which waits for its end.
            boots = found[name] & scheduler.BOOTING
            run("scontrol", "update", f"NodeName={name}", f"State=POWER_DOWN{'_FORCE' if boots else ''}")
            log(f"powered down {name}: its machine is deleted")
        asked |= on
        off = {name for name, states in found.items() if "POWERED_DOWN" in states}
        scheduler.drain_nodes({name: why[name] for name in off if why[name]})
        left = on | {name for name in found if why[name] and not (name in off and "DRAIN" in found[name])}
        if not left:
            return
        if time.monotonic() > end:
            raise SetupError(
                f"{', '.join(sorted(left))}: not powered down after {OFF_SECONDS} s; the machines may still be there. "
                "`journalctl -u hpc-reconcile` on the controller says why; then run `up` again"
            )
        time.sleep(1)


def _close(partitions: set[str]) -> None:
    """Let nothing new be submitted to partitions; remembered before, so that a kill in between is harmless."""
    if partitions:
        write(PARTITIONS, json.dumps(sorted(_closed() | partitions)) + "\n", quiet=True)
    for name in sorted(partitions):
        run("scontrol", "update", f"PartitionName={name}", "State=DRAIN")
        log(f"partition {name} takes no new jobs")


def _wait_for_turn(name: str, seconds: float) -> None:
    """Wait until a node may be drained. Raises SetupError when nothing has come of other nodes for `seconds`."""
    interrupted, began = interruption(), time.time()
    before, end, again = None, 0.0, 0.0
    while True:
        asked = time.monotonic()
        try:
            taken, under_way = turns.take(name, began=began)
        except SetupError:
            if succeeds("scontrol", "ping"):
                raise
            scheduler.wait_until_answers()  # the same `up` may restart it
            continue
        if taken:
            return
        if asked > again:
            # Also so that no firewall on the way ends a connection that is idle for long.
            log(turns.describe(name, under_way))
            again = asked + REPEAT_SECONDS
        if under_way != before:
            before, end = under_way, time.monotonic() + seconds
        if time.monotonic() > end:
            names = ", ".join(sorted(node for node, _ in under_way))
            raise SetupError(
                f"{name} was not drained: for {seconds:.0f} s, nothing has come of {names}, whose machines are "
                "recreated before it. `./hpc status` says what they lack; then run `up` again"
            )
        if interrupted():
            raise SetupError(f"interrupted: {name} was not drained, and the next `up` goes on")
        time.sleep(max(2, 5 * (time.monotonic() - asked)))


def interruption() -> Callable[[], bool]:
    """Return a function that returns whether the `up` that started this is gone, or the next one is here, perhaps with
    the edit taken back."""
    began = time.time()
    # Where nobody reads the output any more, the connection has ended with whoever started this.
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)

    def interrupted() -> bool:
        ended = any(event & (select.POLLERR | select.POLLHUP) for _, event in reader.poll(0))
        return ended or (WANTED.exists() and WANTED.stat().st_mtime > began)

    return interrupted


def _wait(
    nodes: set[str], partitions: set[str], seconds: float, *, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Wait until no job is left there, telling which. Raises SetupError after `seconds`."""
    end, again = time.monotonic() + seconds, 0.0
    named: set[str] = set()
    interrupted = interruption()
    while True:
        jobs = jobs_left(everywhere(), nodes, partitions)
        if not jobs:
            # Jobs may have begun on a node that somebody resumed meanwhile.
            found = scheduler.states()
            resumed = sorted(name for name in nodes if name in found and "DRAIN" not in found[name]["states"])
            if resumed:
                raise SetupError(f"{', '.join(resumed)} was resumed while its jobs were waited for: run `up` again")
            return
        now = time.monotonic()
        if now > end:
            raise SetupError(timeout_error(jobs, nodes, partitions, seconds))
        if {job.number for job in jobs} != named or now > again:
            named, again = {job.number for job in jobs}, now + REPEAT_SECONDS
            span = f"{end - now:.0f} s" if end - now < 120 else f"{(end - now) / 60:.0f} min"
            more = f"; and {len(jobs) - 5} more" if len(jobs) > 5 else ""
            some = "; ".join(map(str, jobs[:5])) + more
            log(f"waiting for {len(jobs)} job{'' if len(jobs) == 1 else 's'}, {span} at most: {some}")
        if interrupted():
            raise SetupError("interrupted: what is drained stays so, and the next `up` goes on waiting")
        meanwhile()
        time.sleep(0.5 if seconds - (end - now) < 20 else 2)


def timeout_error(jobs: list[Job], nodes: set[str], partitions: set[str], seconds: float) -> str:
    """Return the error at the end of the wait: which jobs are left, what was not changed, and what can be done."""
    resume = [f"scontrol update NodeName={','.join(sorted(nodes))} State=RESUME"] if nodes else []
    resume += [f"scontrol update PartitionName={name} State=UP" for name in sorted(partitions)]
    what = [f"node {name}" for name in sorted(nodes)] + [f"partition {name}" for name in sorted(partitions)]
    lines = [
        f"{', '.join(what)}: jobs are still there after {seconds:.0f} s (slurm.drain_seconds), and would end:",
        *(f"  {job}" for job in jobs),
        "Nothing was changed, and no new job starts there.",
        "  to go on waiting: run `up` again",
        f"  to end them:      scancel {' '.join(job.number for job in jobs)} (on the controller), then `up`",
        "  to let them be:   put the old value back, then ./hpc up; or, on the controller:",
        *(f"                    {line}" for line in resume),
    ]
    return "\n".join(lines)


RESERVATION_PREFIX = "hpc-end-"
RESERVATION_MINUTES = 60  # of the reservation: the machine is gone by then, and the reservation ends by itself


def reserve_ends(payload: dict[str, Any]) -> None:
    """Reserve each node from its end on, and no other; no reservation is made for an end that is not known (0) or
    over."""
    wanted = {
        f"{RESERVATION_PREFIX}{node}": (node, end, RESERVATION_MINUTES)
        for node, end in payload["ends"].items()
        if end > time.time()
    }
    reservations.keep(wanted, lambda name: name.startswith(RESERVATION_PREFIX))
