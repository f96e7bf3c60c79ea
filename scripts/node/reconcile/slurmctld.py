"""slurmctld on this machine, as the reconcile loop reads and changes it, and what nodes have reported."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from health import acceptance, outcome
from health.check_kinds import kinds_of_reason
from reconcile.world import HEALTH, NEW, Health, ReconciledNode, World
from slurm import hostlist, nodes, output, reservations, scheduler
from slurm.jobs import HOLDING
from slurm.times import local_seconds
from system import cluster_state
from system.host import read_json, run

MAX_CHECK_SECONDS = 3600  # a record's checks count as no longer than this
YOUNG_SECONDS = 60  # after slurmctld's start, in which its nodes may not have registered yet


class Slurmctld:
    """slurmctld on this machine, by its commands. All methods but `young` raise SetupError."""

    def __init__(self) -> None:
        self._comments: dict[str, str] = {}

    def young(self) -> str:
        """Return why the states that slurmctld shows are not reliable now; empty if they are."""
        started = run("systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "--value", "slurmctld").strip()
        if not started.strip("0"):
            return "slurmctld does not run on this machine"
        age = time.monotonic() - int(started) / 1e6
        return f"slurmctld has run for {age:.0f} s" if age < YOUNG_SECONDS else ""

    def nodes(self) -> tuple[dict[str, nodes.Node], dict[str, dict[str, float]]]:
        """Return all nodes by name, and the jobs that hold each with the times at which they end at the
        latest."""
        found = nodes.parse(run(*nodes.COMMAND))
        fields = f"--Format=JobID:|,EndTime:|,NodeList:|,{scheduler.COMMENT}"
        text = run("squeue", "--noheader", "--all", f"--states={HOLDING}", fields)
        jobs: dict[str, dict[str, float]] = {}
        self._comments = {}
        for number, end, hosts, comment in (line.split("|", 3) for line in text.split("\n") if line.count("|") > 2):
            self._comments[number] = comment
            for name in hostlist.expand(hosts):
                jobs.setdefault(name, {})[number] = local_seconds(end)
        return found, jobs

    def update(self, names: Sequence[str], state: str, reason: str) -> None:
        words = ([f"State={state}"] if state else []) + ([f"Reason={reason}"] if reason else [])
        run("scontrol", "update", f"NodeName={','.join(names)}", *words)

    def comment(self, jobs: Sequence[str], text: str) -> None:
        """Write the AdminComment of jobs that `nodes` has returned."""
        scheduler.comment_jobs({job: self._comments.get(job, "") for job in jobs}, text)

    def hasten(self, jobs: Sequence[str]) -> None:
        """Let requeued jobs begin again as soon as they can."""
        scheduler.hasten(jobs)

    def keep_ends(self, ends: Mapping[str, float]) -> None:
        """Reserve each node from the end of its machine on, so that no job is placed past it."""
        reservations.keep_ends("hpc-until-", ends)

    def measure(self, name: str) -> str:
        """Begin the measurement of a node, after which it is resumed. Return what the node waits for; empty where the
        stack has no measurement of it."""
        return acceptance.begin(name)


def node_of(node: nodes.Node, nodeset: str, elastic: bool, jobs: Mapping[str, float]) -> ReconciledNode:  # noqa: FBT001
    """Return a node of the loop from that of slurmctld, and its jobs with the times of their ends."""
    ends = max(jobs.values(), default=0.0)
    return ReconciledNode(node.name, nodeset, elastic, node.states, node.reason, node.by, tuple(jobs), ends)


def joined(world: World) -> dict[str, float]:
    """Return when booting machines have written their last report."""
    times: dict[str, float] = {}
    for name, node in world.nodes.items():
        if "POWERING_UP" in node.states and name in world.instances:
            with contextlib.suppress(OSError):
                times[name] = (cluster_state.REPORTS / f"{name}.json").lstat().st_mtime
    return times


def last_checks(nodes: Mapping[str, ReconciledNode]) -> dict[str, Health]:
    """Return the last health check of each node that is drained for one, or until one has passed."""
    checks: dict[str, Health] = {}
    for name, node in nodes.items():
        if "DRAIN" not in node.states or not node.reason.startswith((HEALTH, NEW)):
            continue
        path = cluster_state.HEALTH / f"{name}.json"
        record = cluster_state.read_object(path)
        try:
            at, passes = output.valid_time(record.get("time")), int(record.get("passes", 0))
            seconds = min(max(output.valid_time(record.get("seconds")) or 0.0, 0.0), MAX_CHECK_SECONDS)
            # The file server's clock counts. If a node's clock is fast, a check before a reboot would count as one
            # after it, and the machine would be replaced at once; if it is slow, no check would ever count.
            began = path.lstat().st_mtime - seconds
            failed = any(check.get("state") == "failed" for check in record.get("checks", {}).values())
            found = [output.valid_time(value) for value in record.get("faults", {}).values()]
            faults = [moment for moment in found if moment is not None]
        except (AttributeError, OSError, OverflowError, TypeError, ValueError):
            continue  # root of the node may have written anything
        if at is None:
            continue
        measured = read_json(outcome.MEASURED / f"{name}.json", {})
        failures = [result for result in measured.values() if result["state"] == "failed" and not result.get("common")]
        slow = max((float(result["time"]) for result in failures), default=0.0)
        since = min(faults) + began - at if faults else 0.0
        checks[name] = Health(began, failed, passes, bool(record.get("repair")), since, slow)
        pair = measured.get("fabric", {})
        if pair.get("state") == "skipped" and "fabric" in kinds_of_reason(node.reason):
            checks[name] = replace(checks[name], unmeasured=float(pair["time"]))
    return checks
