"""Drains nodes and partitions that leave the cluster: no new jobs start there, and running jobs finish.

A node that leaves, or whose sockets, cores or GPUs change, is drained before slurm.conf changes (`configure`); a node
whose machine is recreated, before the machine is deleted (`leave`). The node's reason says so. Exactly these nodes are
resumed, when the node is back or the edit was reverted. After a kill or a timeout, the next `up` continues to wait.

Machines are recreated a part of each partition at a time: those of idle nodes first, then in the order in which the
jobs of the others end (slurm/turns.py). An `up` starts phase `leave` for many nodes at once, and these processes agree
by Slurm's own state: a node that is drained with the reason REMADE waits for the end of its jobs, and one that is down
with it for its next machine. The processes that wait resume such a node as soon as it has joined, since an `up` itself
waits for its nodes only when the last machine exists.
"""

import json
import math
import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from slurm import conf_changes, join, reservations, scheduler, turns
from slurm.jobs import Job
from slurm.nodes import Node, parse_states
from slurm.scheduler import all_jobs, jobs_left
from system import cluster_state
from system.host import SetupError, hold_lock, log, read_json, run, succeeds, write
from system.locks import LOCKS, open_lock, take_lock

TIMEOUT = Path("/etc/hpc/drain-seconds")  # `slurm.drain_seconds`, which the input of phase `leave` does not have
DEFAULT_TIMEOUT = 3600
CLOSED = Path("/etc/hpc/partitions-drained.json")  # a partition's state has no reason: these were closed here
INTERRUPT = LOCKS / "setup-wanted"  # touched by an `up` that waits for the set-up of another one
OFF_SECONDS = 600  # longer than SuspendTimeout (cluster/slurm/power_saving.py), after which Slurm shows a node as off
LOG_SECONDS = 60  # between two lines of the log about the same wait
PART = Path("/etc/hpc/drain-part")  # slurm.reconcile.max_unavailable
DEFAULT_PART = 0.25
FOLDER = LOCKS / "leave"  # a file for each process of `leave`, locked while it runs
LEFT = Path("/etc/hpc/nodes-left.json")  # by node, the SSH host key of the machine that it leaves
FAILED = LOCKS / "leave-failed"  # touched when a node's jobs did not end: its turn does not end either
JOIN_SECONDS = 900  # for a machine to be recreated and to join; added to the time that jobs have to end
ANNOUNCED_SECONDS = 10  # in which the processes of other nodes start that belong to the same `up`


def drain_removed(old: str, new: str, *, seconds: float, part: float) -> None:
    """Drain the nodes and partitions that the slurm.conf `new` removes or reshapes, and wait for their jobs. `old` is
    the one that slurmctld runs with. Resume what was drained for an edit that was taken back.

    Raises SetupError after `seconds`, naming the jobs. Nothing is changed then, but no new job starts there.
    """
    write(TIMEOUT, f"{seconds:.0f}\n", quiet=True)
    write(PART, f"{part}\n", quiet=True)
    had, has = conf_changes.partitions(old), conf_changes.partitions(new)
    reasons, partitions = nodes_to_drain(old, new), had - has
    if not (reasons or partitions):
        # Where slurmctld does not answer, it may need the new files first.
        if old and succeeds("scontrol", "ping"):
            resume(set(conf_changes.nodes(new)), had, (scheduler.LEAVES,))
        return
    _ensure_slurmctld()
    resume(set(conf_changes.nodes(new)) - set(reasons), had & has, (scheduler.LEAVES,))
    _close(partitions)
    scheduler.drain_nodes(reasons)
    _wait_for_jobs(set(reasons), partitions, seconds)
    _power_down(reasons)


def leave(name: str) -> None:
    """Drain one node whose machine is to be deleted, when it is the node's turn, and wait for its jobs. Then, when few
    enough machines are being recreated, set it down, so that its next machine has to register first. A node that is
    elastic from now on is powered down, so that Slurm requests its next machine; one that Slurm has powered down
    before, because it was idle, is left as it is.

    A node that slurm.conf does not have any more was drained before. Raises SetupError at the stack's limit.
    """
    _ensure_slurmctld()
    if name not in scheduler.read_nodes():
        return
    seconds = _number(TIMEOUT, DEFAULT_TIMEOUT)
    with announce(name):
        _wait_for_turn(name, seconds + JOIN_SECONDS)
        if _is_off(scheduler.read_nodes().get(name)):
            return
        _wait_for_jobs({name}, set(), seconds, meanwhile=resume_joined)
        _wait_for_turn(name, seconds + JOIN_SECONDS, drained=True)
    node = scheduler.read_nodes().get(name)
    if not node or node.reason not in scheduler.DRAIN_REASONS:
        return
    if node.elastic:
        _power_down({name: ""})
    elif "DOWN" not in node.states:
        _set_down(name)


def _is_off(node: Node | None) -> bool:
    """Return whether Slurm has powered a node down. It has no jobs then; and if it were drained now, it would stay so,
    since Slurm takes DRAIN off only as it begins to power a node down (_do_power_work, src/slurmctld/power_save.c)."""
    return node is not None and node.elastic and node.asleep


def _set_down(name: str) -> None:
    scheduler.ask("scontrol", "update", f"NodeName={name}", "State=DOWN", f"Reason={scheduler.REMADE}")


def vacate(names: list[str]) -> None:
    """Drain elastic nodes that are about to be static, wait for their jobs, and let their machines be deleted, as the
    static ones have the same names. The nodes stay drained until these have joined.

    Raises SetupError at the stack's limit. Then no new job starts there, and the next `up` goes on.
    """
    _ensure_slurmctld()
    nodes = scheduler.read_nodes()
    reasons = {name: scheduler.REMADE for name in names if name in nodes and nodes[name].elastic}
    if reasons:
        scheduler.drain_nodes(reasons)
        _wait_for_jobs(set(reasons), set(), _number(TIMEOUT, DEFAULT_TIMEOUT))
        _power_down(reasons)


def _number(file: Path, default: float) -> float:
    return float(file.read_text()) if file.exists() else default


def refuse_busy(users: set[str]) -> None:
    """Raise SetupError, naming the jobs, if a user who leaves has jobs: sacctmgr would refuse to delete the user, and
    nodes could not remove the account. Nothing is changed before."""
    if not users or not succeeds("scontrol", "ping"):
        return
    jobs = [job for job in all_jobs() if job.user in users and not job.ended]
    if jobs:
        names = ",".join(sorted({job.user for job in jobs}))
        lines = [
            f"{names} leaves the cluster and has jobs:",
            *(f"  {job}" for job in jobs),
            "Nothing was changed.",
            f"  to end them:      scancel --user={names} (on the controller), then `up`",
            "  to let them be:   put the user back, and take the user away when they have ended",
        ]
        raise SetupError("\n".join(lines))


def resume_drained(conf: str) -> None:
    """Resume everything that an earlier, unfinished `up` had drained, after an `up` that succeeded."""
    resume(set(conf_changes.nodes(conf)), conf_changes.partitions(conf), scheduler.DRAIN_REASONS)


def nodes_to_drain(old: str, new: str) -> dict[str, str]:
    """Return the nodes to drain before `new` replaces `old`, each with the reason. A pure function."""
    before, after = conf_changes.nodes(old), conf_changes.nodes(new)
    return {
        name: scheduler.LEAVES if name not in after else scheduler.RESHAPED
        for name, shape in before.items()
        if after.get(name) != shape
    }


def resume(nodes: set[str], partitions: set[str], reasons: tuple[str, ...]) -> None:
    """Resume the nodes that were drained here for any of the reasons, and open partitions that were closed here."""
    drained = {name: node for name, node in scheduler.read_nodes().items() if name in nodes and node.reason in reasons}
    scheduler.resume_nodes(sorted(name for name, node in drained.items() if node.states & {"DRAIN", "DOWN"}))
    closed = set(read_json(CLOSED, []))
    for name in sorted(closed & partitions):
        run("scontrol", "update", f"PartitionName={name}", "State=UP")
        log(f"partition {name} takes jobs again")
    if closed:
        # Partitions that do not exist any more are forgotten too: another one may get the name.
        write(CLOSED, "[]\n", quiet=True)


def _ensure_slurmctld() -> None:
    """Wait until slurmctld answers. If it was stopped, start it with the files that it had."""
    if not succeeds("scontrol", "ping"):
        run("systemctl", "start", "slurmctld")
        hint = "something leaves, and only slurmctld can list the jobs there: put it back to mend slurmctld first"
        scheduler.wait_until_answers(hint=hint)


def _power_down(reasons: dict[str, str]) -> None:
    """Power down the elastic nodes among these, so that their machines are deleted. Slurm takes DRAIN off a node that
    it powers down, so a node with a reason is drained again as soon as it is off.

    A node without a reason is not drained again: Slurm gives it to jobs after SuspendTimeout. If it were drained, and
    resumed while it is off, it would have NOT_RESPONDING, and slurmctld gives such a node no job after its next restart
    (24.11). Raises SetupError after OFF_SECONDS.
    """
    requested: set[str] = set()
    end = time.monotonic() + OFF_SECONDS
    while True:
        elastic = {name: node for name, node in scheduler.read_nodes().items() if name in reasons and node.elastic}
        on = {name for name, node in elastic.items() if not node.asleep}
        requested &= on
        for name in sorted(on - requested):
            # POWER_DOWN alone waits for the end of a boot.
            force = "_FORCE" if elastic[name].booting else ""
            run("scontrol", "update", f"NodeName={name}", f"State=POWER_DOWN{force}")
            log(f"powered down {name}: its machine is deleted")
        requested |= on
        off = {name for name, node in elastic.items() if node.off}
        scheduler.drain_nodes({name: reasons[name] for name in off if reasons[name]})
        waiting = on | {name for name in elastic if reasons[name] and not (name in off and elastic[name].drained)}
        if not waiting:
            return
        if time.monotonic() > end:
            raise SetupError(
                f"{', '.join(sorted(waiting))}: not powered down after {OFF_SECONDS} s; the machines may still be "
                "there. `journalctl -u hpc-reconcile` on the controller says why; then run `up` again"
            )
        time.sleep(1)


def _close(partitions: set[str]) -> None:
    """Let no new job start in partitions. They are recorded before, so that a kill in between does no harm."""
    if partitions:
        write(CLOSED, json.dumps(sorted(set(read_json(CLOSED, [])) | partitions)) + "\n", quiet=True)
    for name in sorted(partitions):
        run("scontrol", "update", f"PartitionName={name}", "State=DRAIN")
        log(f"partition {name} takes no new jobs")


def interruption_check() -> Callable[[], bool]:
    """Return a function that returns whether the `up` that started this process is gone, or the next one is here,
    perhaps with the edit taken back."""
    began = time.time()
    # If nobody reads the output any more, the connection has ended with the `up`.
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)

    def is_interrupted() -> bool:
        ended = any(event & (select.POLLERR | select.POLLHUP) for _, event in reader.poll(0))
        return ended or (INTERRUPT.exists() and INTERRUPT.stat().st_mtime > began)

    return is_interrupted


def _wait_for_jobs(
    nodes: set[str], partitions: set[str], seconds: float, *, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Wait until no job is left there, and log which ones are waited for. Raises SetupError after `seconds`."""
    end, next_log = time.monotonic() + seconds, 0.0
    logged: set[str] = set()
    is_interrupted = interruption_check()
    while True:
        jobs = jobs_left(all_jobs(), nodes, partitions)
        if not jobs:
            # Jobs may have begun on a node that somebody resumed meanwhile.
            known = scheduler.read_nodes()
            resumed = sorted(name for name in nodes if name in known and not known[name].drained)
            if resumed:
                raise SetupError(f"{', '.join(resumed)} was resumed while its jobs were waited for: run `up` again")
            return
        now = time.monotonic()
        if now > end:
            raise SetupError(timeout_error(jobs, nodes, partitions, seconds))
        if {job.id for job in jobs} != logged or now > next_log:
            logged, next_log = {job.id for job in jobs}, now + LOG_SECONDS
            span = f"{end - now:.0f} s" if end - now < 120 else f"{(end - now) / 60:.0f} min"
            more = f"; and {len(jobs) - 5} more" if len(jobs) > 5 else ""
            listed = "; ".join(map(str, jobs[:5])) + more
            log(f"waiting for {len(jobs)} job{'' if len(jobs) == 1 else 's'}, {span} at most: {listed}")
        if is_interrupted():
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
        f"  to end them:      scancel {' '.join(job.id for job in jobs)} (on the controller), then `up`",
        "  to let them be:   put the old value back, then ./hpc up; or, on the controller:",
        *(f"                    {line}" for line in resume),
    ]
    return "\n".join(lines)


# -- turns of nodes whose machines are recreated ---------------------------------------------------------------------


def has_turn(node: Node) -> bool:
    """Return whether a node is out of service because its machine is recreated."""
    return node.reason == scheduler.REMADE and bool(node.states & {"DRAIN", "DOWN"})


def next_turns(
    waiting: set[str], nodes: Mapping[str, Node], part: float, ends: Mapping[str, float] | None = None
) -> list[str]:
    """Return the waiting nodes that may be drained now, and of the drained ones whose jobs have ended those whose
    machines may be recreated now. A pure function.

    `ends` has the times at which the jobs of busy nodes end. A node that takes no jobs anyway does not count.
    """
    sizes = Counter(partition for node in nodes.values() for partition in node.partitions)
    names = sorted(waiting & set(nodes), key=lambda name: (not has_turn(nodes[name]), name))
    broken = [name for name in names if not has_turn(nodes[name]) and nodes[name].broken]

    def member(name: str) -> turns.Member:
        node = nodes[name]
        return turns.Member(node.partitions, node.occupied, (ends or {}).get(name, math.inf))

    drained = {name for name in names if has_turn(nodes[name]) and "DOWN" not in nodes[name].states}
    out = [member(name) for name, node in nodes.items() if has_turn(node) and name not in drained]
    # Until its machine is recreated, a drained node holds up busy ones alone.
    out += [member(name)._replace(busy=True) for name in drained]
    busy = {name for name in drained if nodes[name].occupied}
    ready = [name for name in names if name in drained - busy or not has_turn(nodes[name])]
    return broken + turns.next_turns({n: member(n) for n in ready if n not in broken}, out, sizes, part)


@contextmanager
def announce(name: str) -> Generator[None]:
    """Show the other processes in this context that the node waits for its turn, and then whether it failed."""
    with open_lock(FOLDER / name) as file:
        take_lock(file, seconds=60)  # a process whose `up` is gone holds it until it notices that
        try:
            yield
        except SetupError:
            FAILED.touch()
            raise
        finally:
            (FOLDER / name).unlink(missing_ok=True)


def take_turn(name: str, *, began: float, drained: bool = False) -> tuple[bool, frozenset[tuple[str, str]]]:
    """Drain the node if it is its turn; set it down, `drained`, if its machine may be recreated. Return whether it was
    its turn, and the nodes that have theirs with their states: if these change, there is progress.

    Raises SetupError when the jobs of another node did not end since `began`.
    """
    what = "recreated" if drained else "drained"
    with hold_lock(FOLDER / ".lock", "the choice of nodes that leave"):
        _resume_joined()
        nodes = scheduler.read_nodes()
        node = nodes.get(name)
        if _is_off(node):
            return True, frozenset()
        waits = node and not drained and not has_turn(node) and node.occupied
        early = waits and time.time() < began + ANNOUNCED_SECONDS
        ends = scheduler.job_ends() if waits and not early else {}
        turn = not early and name in next_turns(_waiting() | {name}, nodes, _number(PART, DEFAULT_PART), ends)
        if drained:
            if node and has_turn(node) and turn and not node.elastic:
                _set_down(name)
            if not node or not has_turn(node) or turn or "DOWN" in node.states:
                return True, frozenset()
        elif not node or has_turn(node) or turn:
            # The next machine has another host key than this one.
            key = cluster_state.read_object(cluster_state.REPORTS / f"{name}.json").get("host_key", "")
            write(LEFT, json.dumps({**read_json(LEFT, {}), name: key}) + "\n", quiet=True)
            scheduler.drain_nodes({name: scheduler.REMADE})
            return True, frozenset()
    if FAILED.exists() and FAILED.stat().st_mtime > began:
        raise SetupError(f"{name} was not {what}: jobs of another node that leaves did not end. Run `up` again")
    return False, frozenset(
        (other, "+".join(sorted(node.states))) for other, node in nodes.items() if other != name and has_turn(node)
    )


def resume_joined() -> None:
    """Resume nodes whose next machine has joined, so that jobs run there while other nodes leave."""
    if LEFT.exists():
        with hold_lock(FOLDER / ".lock", "the choice of nodes that leave"):
            _resume_joined()


def _resume_joined() -> None:
    nodes = scheduler.read_nodes()
    left: dict[str, str] = read_json(LEFT, {})
    keys = {name: key for name, key in left.items() if name in nodes and has_turn(nodes[name])}
    config = read_json(cluster_state.CONFIG, {}) if keys else {}
    joined: list[str] = []
    for name, key in keys.items():
        report = cluster_state.read_object(cluster_state.REPORTS / f"{name}.json")
        if not key or report.get("host_key", key) == key:
            continue
        version, munge = config.get("digest", ""), config.get("munge", "")
        why = join.missing([name], {name: nodes[name]}, {name: report}, version, key=munge)
        if why.get(name, "").startswith("down: "):
            joined.append(name)
    scheduler.resume_nodes(joined)
    if left != (keys := {name: key for name, key in keys.items() if name not in joined}):
        write(LEFT, json.dumps(keys) + "\n", quiet=True)


def _waiting() -> set[str]:
    """Return the nodes with a process of `leave`. The file of a killed process is not locked, and is deleted."""
    names: set[str] = set()
    for path in FOLDER.glob("[!.]*"):
        with suppress(FileNotFoundError), path.open() as file:
            if take_lock(file):
                path.unlink(missing_ok=True)
            else:
                names.add(path.name)
    return names


def _wait_for_turn(name: str, seconds: float, *, drained: bool = False) -> None:
    """Wait until a node may be drained; `drained`, until its machine may be recreated. Raises SetupError when other
    nodes have made no progress for `seconds`."""
    is_interrupted, began = interruption_check(), time.time()
    before, end, next_log, what = None, 0.0, 0.0, "recreated" if drained else "drained"
    while True:
        now = time.monotonic()
        try:
            taken, under_way = take_turn(name, began=began, drained=drained)
        except SetupError:
            if succeeds("scontrol", "ping"):
                raise
            scheduler.wait_until_answers()  # the same `up` may restart it
            continue
        if taken:
            return
        if now > next_log:
            # Also so that no firewall ends a connection that is idle for long.
            log(describe_wait(name, under_way))
            next_log = now + LOG_SECONDS
        if under_way != before:
            before, end = under_way, time.monotonic() + seconds
        if time.monotonic() > end:
            names = ", ".join(sorted(node for node, _ in under_way))
            raise SetupError(
                f"{name} was not {what}: for {seconds:.0f} s, nothing has come of "
                f"{names}, whose turn is before its. `./hpc status` says what they lack; then run `up` again"
            )
        if is_interrupted():
            raise SetupError(f"interrupted: {name} was not {what}, and the next `up` goes on")
        # Where many processes wait, asking slurmctld takes long.
        time.sleep(max(2, 5 * (time.monotonic() - now)))


def describe_wait(name: str, under_way: frozenset[tuple[str, str]]) -> str:
    """Return in a line why a node waits for its turn. For a machine whose set-up fails, as with a broken image, the
    line has the reason."""
    if not under_way:
        return f"{name} waits for its turn: nodes without jobs go first"
    rows: list[str] = []
    for other, states in sorted(under_way)[:5]:
        node = Node(other, parse_states(states))
        what = "waits for its jobs" if node.occupied else "is drained"
        what = "is being recreated" if "DOWN" in node.states else what
        report = cluster_state.read_object(cluster_state.REPORTS / f"{other}.json")
        if report.get("state") == "failed":
            what += f" (its set-up fails: {str(report.get('message', ''))[:200]})"
        rows.append(f"{other} {what}")
    more = f", and {len(under_way) - 5} more" if len(under_way) > 5 else ""
    return f"{name} waits for its turn: {', '.join(rows)}{more}"


def reserve_ends(payload: dict[str, Any]) -> None:
    """Reserve each node from the end of its machine on. An end that is unknown (0) or over has no reservation."""
    reservations.keep_ends("hpc-end-", {node: end for node, end in payload["ends"].items() if end > time.time()})
