"""Nodes that take no jobs: down, cut off, or drained. Jobs that start only when somebody releases them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cluster.findings import ClusterFinding
from cluster.observe.health import check_results, machines
from cluster.observe.health.daemons import last_words
from cluster.observe.health.machines import failure, joining
from cluster.observe.nodes import Node
from cluster.observe.observation import ClusterObservation, MachineObservation
from scripts.node.slurm.hostlist import expand
from scripts.node.slurm.output import CLOUD_REASONS, seconds_of

LOGS = "/var/log/slurm"
STARTED_SECONDS = 60
"""A job that began later may have been observed before its processes."""
NAMED_JOBS = 5
"""Most held jobs that are named one by one."""


def lost(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Nodes that do not answer us or slurmctld, each with the first cause that can be seen."""
    known = seen.slurm("nodes")
    strangers = machines.strangers(seen)
    for node in seen.nodes:
        said = Node.of(node.name, known[node.name]) if known and node.name in known else None
        if node.late:
            continue
        if not node.reached:
            if "controller" not in node.roles:
                yield _dead(seen, node, said)
        elif known is not None and said is None:
            yield ClusterFinding(
                id="node-down",
                where=(node.name,),
                what="is a machine of this stack, but slurmctld does not know it",
                todo=f"./hpc drift {seen.stack}",
            )
        elif (unit := node.daemons.get("slurmd")) and unit["state"] != "active":
            # Where the set-up failed, that is what is wrong: slurmd starts after it.
            if not failure(node):
                yield _stopped(seen, node, said, unit)
        elif said and said.silent and node.name in strangers:
            continue  # the findings about MUNGE's keys and clocks say why
        elif said and said.down and node.controller.get("reached") is not False:
            yield _silent(seen, said) if said.silent else _down(seen, said)


def unstarted(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Elastic nodes that are down: no machine of the stack stands for them, so slurmctld's word is all there is."""
    reached = {node.name for node in seen.nodes}
    for name, row in (seen.slurm("nodes") or {}).items():
        said = Node.of(name, row)
        if name in reached or not said.elastic or not said.down:
            continue
        if "POWERED_DOWN" not in said.states:
            yield replace(_down(seen, said), what=f"is an elastic node, and slurmctld says {said.word}: {said.reason}")
            continue
        if said.reason in (seen.controller.part("reconcile", "cooling") or {}).values():
            continue  # the finding of the reconcile loop says it of all
        reason = said.reason or "no reason given"
        yield ClusterFinding(
            id="node-unstarted",
            where=(name,),
            what=f"has no machine, and takes no jobs ({said.word}): {reason}",
            todo=f"./hpc nodes {seen.stack} resume {name}",
            note="Once the reason is gone; the reconcile service resumes nodes that wait for capacity.",
            since=said.since_utc,
        )


def _dead(seen: ClusterObservation, one: MachineObservation, said: Node | None) -> ClusterFinding:
    noticed = f"slurmctld says {said.word}" if said else "slurmctld cannot be asked"
    if said and not said.down:
        noticed += ", it has not noticed yet"
    return ClusterFinding(
        id="node-down",
        where=(one.name,),
        what=f"does not answer SSH ({one.why}); {noticed}",
        todo=f"./hpc up {seen.stack}",
        note=f"It starts the machine again if it is not running; on Google Cloud after ./hpc refresh {seen.stack}.",
        since=said.since_utc if said and said.down else None,
    )


def _stopped(
    seen: ClusterObservation, one: MachineObservation, said: Node | None, unit: Mapping[str, Any]
) -> ClusterFinding:
    words = last_words(unit.get("journal") or ())
    noticed = f"; slurmctld says {said.word}" if said else ""
    if joining(one).get("state") == "activating":
        return ClusterFinding(
            id="node-down",
            where=(one.name,),
            what=f"is joining the cluster; slurmd starts when its set-up is done{noticed}",
            todo=f"./hpc ssh {seen.stack} {one.name} -- journalctl -u hpc-node -n 20",
            since=joining(one)["since"] or None,
        )
    return ClusterFinding(
        id="node-down",
        where=(one.name,),
        what=f"slurmd does not run there ({unit['state']}){noticed}"
        + (f". Its last messages: {words}" if words else ""),
        todo=f"./hpc ssh {seen.stack} {one.name} -- systemctl start slurmd",
        since=unit["since"] or None,
    )


def _silent(seen: ClusterObservation, said: Node) -> ClusterFinding:
    return ClusterFinding(
        id="network-cut",
        where=(said.name,),
        what=f"answers SSH from here and its slurmd runs, but slurmctld says that it does not respond ({said.word}): "
        "the way from the controller to its slurmd (port 6818) is cut, or slurmd hangs",
        todo=f"./hpc ssh {seen.stack} {said.name} -- tail /var/log/slurm/slurmd.log",
        note="If it hangs: systemctl restart slurmd there; jobs go on.",
        since=said.since_utc,
    )


def _down(seen: ClusterObservation, said: Node) -> ClusterFinding:
    if "UNKNOWN" in said.states and not said.reason:
        return ClusterFinding(
            id="node-down",
            where=(said.name,),
            what="slurmctld was restarted, and the node has not registered yet",
            todo=f"./hpc status {seen.stack}",
            note="Ask again in half a minute.",
        )
    reason = f": {said.reason} (said by {said.by})" if said.reason else ", and gives no reason"
    return ClusterFinding(
        id="node-down",
        where=(said.name,),
        what=f"slurmctld says {said.word}{reason}",
        todo=f"./hpc nodes {seen.stack} resume {said.name}",
        note="Once the reason is gone.",
        since=said.since_utc,
    )


def drained(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Nodes that take no new jobs because an administrator drained them or a prolog failed there."""
    for name, row in (seen.slurm("nodes") or {}).items():
        said = Node.of(name, row)
        if not said.drained:
            continue
        if found := check_results.drained(seen.stack, name, said.reason):
            yield replace(found, since=said.since_utc)
            continue
        if said.reason in CLOUD_REASONS:
            yield ClusterFinding(
                id="node-drained",
                where=(name,),
                what=f"takes no new jobs: {said.reason.partition(': ')[2]}",
                todo=f"./hpc refresh {seen.stack} && ./hpc up {seen.stack}",
                note="If it was stopped: that starts it. It is resumed by itself when it is back.",
                since=said.since_utc,
            )
            continue
        what = f"is drained by {said.by or 'somebody'}, and takes no new jobs: {said.reason or 'no reason given'}"
        resume = todo = f"./hpc nodes {seen.stack} resume {name}"
        note = "Once the reason is gone."
        if kind := next((kind for kind in ("prolog", "epilog") if kind in said.reason.lower()), ""):
            what += f". {'A prolog' if kind == 'prolog' else 'An epilog'} failed there, and {LOGS}/{kind}.log says why"
            todo = f"./hpc ssh {seen.stack} {name} -- tail {LOGS}/{kind}.log"
            note = f"When that is mended: {resume}"
        yield ClusterFinding(id="node-drained", where=(name,), what=what, todo=todo, note=note, since=said.since_utc)


def held(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Jobs that Slurm or an operator holds, and why; those that their own users hold are as they are meant to be."""
    found = (seen.slurm("jobs") or {}).get("held", [])
    if not found:
        return
    listed = [f"{job['id']} of {job['user']} ({job['reason']})" for job in found[:NAMED_JOBS]]
    more = [f"{len(found) - NAMED_JOBS} more"] if len(found) > NAMED_JOBS else []
    is_, it = ("jobs are", "they start") if len(found) > 1 else ("job is", "it starts")
    yield ClusterFinding(
        id="jobs-held",
        where=(seen.controller.name,),
        what=f"{len(found)} {is_} held, and {it} only when released: {', '.join([*listed, *more])}",
        todo=f"./hpc ssh {seen.stack} controller -- scontrol release {','.join(job['id'] for job in found)}",
        note="Once the reason is gone; slurmctld.log on that machine names the node and what failed there.",
    )


def missing(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Jobs that slurmctld takes to be running, of which no node has a process: they ended while it was away."""
    known = {node.name: node.part("jobs") for node in seen.nodes}
    found = [
        job
        for job in (seen.slurm("jobs") or {}).get("first", [])
        if job["state"] == "RUNNING"
        and "+" not in job["id"]
        and (seconds_of(job["seconds"]) or 0) > STARTED_SECONDS
        and all(known.get(node) is not None and job["number"] not in known[node] for node in expand(job["nodes"]))
    ]
    if found:
        listed = ", ".join(job["id"] for job in found[:NAMED_JOBS]) + (", ..." if len(found) > NAMED_JOBS else "")
        yield ClusterFinding(
            id="jobs-missing",
            where=(seen.controller.name,),
            what=f"{len(found)} running job{'s' * (len(found) > 1)} without a process on any node: {listed}. slurmctld "
            "was killed before it recorded how they ended, and keeps their nodes for them",
            todo=f"./hpc ssh {seen.stack} controller -- journalctl -u hpc-lost-jobs -n 20",
            note="They are requeued or cancelled two to three minutes after slurmctld's start; "
            "`systemctl restart hpc-lost-jobs` there looks once more.",
        )


def misplaced(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Places of nodes that slurmctld does not go by, as it refused the topology.conf made of them."""
    if said := seen.controller.part("topology"):
        why = " ".join(said.split())[:400]
        yield ClusterFinding(
            id="topology-refused",
            where=(seen.controller.name,),
            what=f"places jobs by an earlier topology.conf, as slurmctld refused the latest: {why}",
            todo=f"./hpc up {seen.stack}",
            note="With slurm.topology: nodesets in the stack file, which does without places. By itself the next other "
            f"place that a node reports is tried; the attempts: ./hpc logs {seen.stack} topology",
        )
