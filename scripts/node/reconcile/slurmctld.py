"""What the reconcile loop asks of slurmctld, and slurmctld on this machine."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from health import acceptance, outcome
from health.kinds import kinds
from reconcile import decision, flex
from reconcile.decision import Health, Node, World
from slurm import hostlist, output, scheduler
from system import cluster_state
from system.host import read_json, run

LONGEST_CHECK = 3600  # seconds that a record may say its checks have taken
YOUNG_SECONDS = 60  # after slurmctld's start its nodes have not registered yet


class Slurm:
    """slurmctld on this machine, by its commands. All but `young` raise SetupError."""

    def __init__(self) -> None:
        self._comments: dict[str, str] = {}

    def young(self) -> str:
        """Return why slurmctld is not to be relied on now; empty if it is."""
        started = run("systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "--value", "slurmctld").strip()
        if not started.strip("0"):
            return "slurmctld does not run on this machine"
        age = time.monotonic() - int(started) / 1e6
        return f"slurmctld has run for {age:.0f} s" if age < YOUNG_SECONDS else ""

    def nodes(self) -> tuple[dict[str, dict[str, str]], dict[str, tuple[str, ...]]]:
        """Rows of all nodes by name, and the jobs that hold each."""
        rows = output.rows(run("scontrol", "--oneliner", "--all", "show", "node"))
        wanted = f"--Format=JobID:|,NodeList:|,{scheduler.COMMENT}"
        text = run("squeue", "--noheader", "--all", f"--states={scheduler.RUNS}", wanted)
        jobs: dict[str, tuple[str, ...]] = {}
        self._comments = {}
        for number, hosts, comment in (line.split("|", 2) for line in text.split("\n") if line.count("|") > 1):
            self._comments[number] = comment
            for name in hostlist.expand(hosts):
                jobs[name] = (*jobs.get(name, ()), number)
        return {row["NodeName"]: row for row in rows if "NodeName" in row}, jobs

    def update(self, names: Sequence[str], state: str, reason: str) -> None:
        words = ([f"State={state}"] if state else []) + ([f"Reason={reason}"] if reason else [])
        run("scontrol", "update", f"NodeName={','.join(names)}", *words)

    def comment(self, jobs: Sequence[str], text: str) -> None:
        """Write the AdminComment of jobs that `nodes` has shown."""
        scheduler.comment_jobs({job: self._comments.get(job, "") for job in jobs}, text)

    def hasten(self, jobs: Sequence[str]) -> None:
        """Have jobs that were requeued begin again as soon as they can."""
        scheduler.hasten(jobs)

    def keep_ends(self, ends: Mapping[str, float]) -> None:
        """Have no job placed on nodes past these times, at which their machines are deleted."""
        flex.keep_ends(ends)

    def measure(self, name: str) -> str:
        """Have a node measured that is to be resumed, which resumes it; what that waits for, and empty where the stack
        has no measurement of it."""
        return acceptance.begin(name)


def node_of(name: str, nodeset: str, elastic: bool, row: Mapping[str, str], jobs: tuple[str, ...]) -> Node:  # noqa: FBT001
    reason, by, _ = output.signed(row.get("Reason", ""))
    return Node(name, nodeset, elastic, frozenset(output.node_states(row)), reason, by, jobs)


def joined(world: World) -> dict[str, float]:
    """Return when machines that boot have written their last report."""
    found: dict[str, float] = {}
    for name, node in world.nodes.items():
        if "POWERING_UP" in node.states and name in world.instances:
            with contextlib.suppress(OSError):
                found[name] = (cluster_state.REPORTS / f"{name}.json").lstat().st_mtime
    return found


def health_of(nodes: Mapping[str, Node]) -> dict[str, Health]:
    """The last health checks of nodes that are drained for one, or until one."""
    found: dict[str, Health] = {}
    for name, node in nodes.items():
        if "DRAIN" not in node.states or not node.reason.startswith((decision.HEALTH, decision.NEW)):
            continue
        path = cluster_state.HEALTH / f"{name}.json"
        last = cluster_state.given(path)
        try:
            at, passes = output.moment(last.get("time")), int(last.get("passes", 0))
            seconds = min(max(output.moment(last.get("seconds")) or 0.0, 0.0), LONGEST_CHECK)
            # By the file server's clock: with a node's that is fast, a check before a reboot would be one after it, and
            # the machine would be replaced at once; with one that is slow, none would ever be one after it.
            began = path.lstat().st_mtime - seconds
            failed = any(one.get("state") == "failed" for one in last.get("checks", {}).values())
            faults = [since for fault in last.get("faults", {}).values() if (since := output.moment(fault)) is not None]
        except (AttributeError, OSError, OverflowError, TypeError, ValueError):
            continue  # root of the node may have written anything
        if at is None:
            continue
        measured = read_json(outcome.MEASURED / f"{name}.json", {})
        late = [one for one in measured.values() if one["state"] == "failed" and not one.get("common")]
        slow = max((float(one["time"]) for one in late), default=0.0)
        since = min(faults) + began - at if faults else 0.0
        found[name] = Health(began, failed, passes, bool(last.get("repair")), since, slow)
        pair = measured.get("fabric", {})
        if pair.get("state") == "skipped" and "fabric" in kinds(node.reason):
            found[name] = replace(found[name], unmeasured=float(pair["time"]))
    return found
