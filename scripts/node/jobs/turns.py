"""Turns of nodes whose machines are recreated: a part of each partition at a time, and idle nodes first.

An `up` starts phase `leave` for many nodes at once. These processes agree by Slurm's own state: a node that is drained
with the reason REMADE has its turn, until it is resumed with its next machine. Those that wait resume it, as soon as it
has joined: an `up` itself waits for its nodes only when the last machine is there.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm import join, scheduler
from slurm.scheduler import State
from system import cluster_state
from system.host import SetupError, read_json, take_lock, write

PART = Path("/etc/hpc/drain-part")  # slurm.reconcile.max_unavailable
DEFAULT_PART = 0.25
FOLDER = Path("/run/hpc/leave")  # a file for each process of `leave`, locked while it runs
LEFT = Path("/etc/hpc/nodes-left.json")  # by node: the SSH host key of the machine that it leaves
FAILED = Path("/run/hpc/leave-failed")  # touched when a node's jobs did not end: its turn does not end either
JOIN_SECONDS = 900  # for a machine to be recreated and to join; added to the time that jobs have to end
IDLE_FIRST_SECONDS = 10  # in which the processes of idle nodes come, that an `up` starts at the same time
BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}


def has_turn(state: State) -> bool:
    """Return whether a node is out of service because its machine is recreated."""
    return state["reason"] == scheduler.REMADE and bool(state["states"] & {"DRAIN", "DOWN"})


def next_ones(waiting: set[str], nodes: Mapping[str, State], part: float) -> list[str]:
    """Return the waiting nodes that may be drained now, idle ones first. A pure function.

    At most `part` of each partition, and at least one node, has its turn at a time. A node that takes no jobs anyway is
    not waited for.
    """
    sizes: Counter[str] = Counter()
    out: Counter[str] = Counter()
    for state in nodes.values():
        sizes.update(state["partitions"])
        out.update(state["partitions"] if has_turn(state) else ())
    found: list[str] = []
    for name in sorted(waiting & set(nodes), key=lambda name: (bool(nodes[name]["states"] & BUSY), name)):
        state = nodes[name]
        if not state["states"] & scheduler.BROKEN:
            if any(out[one] >= max(1, int(part * sizes[one])) for one in state["partitions"]):
                continue
            out.update(state["partitions"])
        found.append(name)
    return found


def holds_back(name: str, nodes: Mapping[str, State]) -> bool:
    """Return whether a node with jobs waits a little for idle ones of its partitions: were it first, these would wait
    until its jobs end. A pure function."""
    if name not in nodes or has_turn(nodes[name]) or not nodes[name]["states"] & BUSY:
        return False
    return any(
        set(state["partitions"]) & set(nodes[name]["partitions"]) and not state["states"] & (BUSY | scheduler.BROKEN)
        for state in nodes.values()
    )


@contextmanager
def present(name: str) -> Generator[None]:
    """Have the other processes see that this node waits, and a failure."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / name).open("w") as mine:
        take_lock(mine, seconds=60)  # a process that was cut off holds it until it sees that
        try:
            yield
        except SetupError:
            FAILED.touch()
            raise
        finally:
            (FOLDER / name).unlink(missing_ok=True)


def take(name: str, *, began: float) -> tuple[bool, frozenset[tuple[str, str]]]:
    """Drain the node if it is its turn. Returns whether it was, and what else is under way: another value is progress.

    Raises SetupError when the jobs of another node did not end since `began`.
    """
    with _alone():
        _resume_joined(scheduler.states())
        nodes = scheduler.states()
        early = time.time() < began + IDLE_FIRST_SECONDS and holds_back(name, nodes)
        turn = not early and name in next_ones(_waiting() | {name}, nodes, _part())
        if name not in nodes or has_turn(nodes[name]) or turn:
            _remember(name)
            scheduler.drain_nodes({name: scheduler.REMADE})
            return True, frozenset()
    if FAILED.exists() and FAILED.stat().st_mtime > began:
        raise SetupError(f"{name} was not drained: jobs of another node that leaves did not end. Run `up` again")
    return False, frozenset((one, "+".join(sorted(nodes[one]["states"]))) for one in nodes if has_turn(nodes[one]))


def resume_joined() -> None:
    """Resume nodes whose next machine has joined, so that jobs run there while other nodes leave."""
    if LEFT.exists():
        with _alone():
            _resume_joined(scheduler.states())


@contextmanager
def _alone() -> Generator[None]:
    with (FOLDER / ".lock").open("w") as lock:
        take_lock(lock, seconds=math.inf)
        yield


def _resume_joined(nodes: Mapping[str, State]) -> None:
    left: dict[str, str] = read_json(LEFT, {})
    kept = {name: key for name, key in left.items() if name in nodes and has_turn(nodes[name])}
    config = read_json(cluster_state.CONFIG, {}) if kept else {}
    found: list[str] = []
    for name, key in kept.items():
        report = cluster_state.read_object(cluster_state.REPORTS / f"{name}.json")
        if not key or report.get("host_key", key) == key:
            continue
        version, munge = config.get("digest", ""), config.get("munge", "")
        why = join.missing([name], {name: nodes[name]}, {name: report}, version, key=munge)
        if why.get(name, "").startswith("down: "):
            found.append(name)
    scheduler.resume_nodes(found)
    if left != (kept := {name: key for name, key in kept.items() if name not in found}):
        write(LEFT, json.dumps(kept) + "\n", quiet=True)


def describe(name: str, under_way: frozenset[tuple[str, str]]) -> str:
    """Return in a line why a node waits: with the reason of a machine whose set-up fails, as by an image that does not
    work."""
    names = sorted(one for one, _ in under_way)
    if not names:
        return f"{name} waits for its turn: idle nodes go first"
    reports = {one: cluster_state.read_object(cluster_state.REPORTS / f"{one}.json") for one in names[:5]}
    failed = {
        one: str(report.get("message", ""))[:200] for one, report in reports.items() if report.get("state") == "failed"
    }
    rows = [f"{one} (its set-up fails: {failed[one]})" if one in failed else one for one in names[:5]]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{name} waits for its turn: {', '.join(rows)}{more} being recreated"


def _waiting() -> set[str]:
    """Nodes with a process of `leave`. The file of one that was killed is not locked, and goes."""
    found: set[str] = set()
    for path in FOLDER.glob("[!.]*"):
        with suppress(FileNotFoundError), path.open() as file:
            if take_lock(file):
                path.unlink(missing_ok=True)
            else:
                found.add(path.name)
    return found


def _part() -> float:
    return float(PART.read_text()) if PART.exists() else DEFAULT_PART


def _remember(name: str) -> None:
    """Keep which machine a node has now: another host key is that of the next one."""
    key = cluster_state.read_object(cluster_state.REPORTS / f"{name}.json").get("host_key", "")
    write(LEFT, json.dumps({**read_json(LEFT, {}), name: key}) + "\n", quiet=True)
