"""Findings about nodes that take no jobs (down, cut off, drained), and about held and missing jobs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cluster.findings import ClusterFinding
from cluster.observe import health_check_results
from cluster.observe import status_findings_machines as machines
from cluster.observe.observation import ClusterObservation, MachineObservation
from cluster.observe.status_findings_daemons import NAMED_JOBS, last_words, list_jobs
from cluster.observe.status_findings_machines import setup_failure, setup_unit
from cluster.slurm.paths import LOGS
from scripts.node.slurm.hostlist import expand
from scripts.node.slurm.nodes import Node
from scripts.node.slurm.output import CLOUD_REASONS, NO_CAPACITY, NO_MACHINE
from scripts.node.slurm.times import seconds_of

STARTED_SECONDS = 60
"""A younger job may have been observed before its processes."""


def lost(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield nodes that do not answer this host or slurmctld, each with the first cause that can be determined."""
    known = cluster.slurm_nodes
    unauthenticated = machines.unauthenticated(cluster)
    for machine in cluster.nodes:
        node = (known or {}).get(machine.name)
        if machine.late:
            continue
        if not machine.reached:
            if "controller" not in machine.roles:
                yield _unreachable(cluster, machine, node)
        elif known is not None and node is None:
            yield ClusterFinding(
                id="node-down",
                where=(machine.name,),
                what="is a machine of this stack, but slurmctld does not know it",
                todo=f"./hpc drift {cluster.stack}",
            )
        elif (unit := machine.daemons.get("slurmd")) and unit["state"] != "active":
            # slurmd starts after the set-up, so a failed set-up is the cause and has its own finding.
            if not setup_failure(machine):
                yield _stopped(cluster, machine, node, unit)
        elif node and node.silent and machine.name in unauthenticated:
            continue  # the findings about MUNGE keys and clocks give the cause
        elif node and node.down and machine.controller.get("reached") is not False:
            yield _silent(cluster, node) if node.silent else _down(cluster, node)


def unstarted(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield elastic nodes that are down. The stack has no machines for them, so only slurmctld can report on them."""
    observed = {machine.name for machine in cluster.nodes}
    for node in (cluster.slurm_nodes or {}).values():
        if node.name in observed or not node.elastic or not node.down:
            continue
        if not node.off:
            what = f"is an elastic node, and slurmctld says {node.word}: {node.reason}"
            yield replace(_down(cluster, node), what=what)
        # For a lack of capacity the reconcile loop has one finding for all nodes.
        elif not (
            cluster.controller.part("reconcile", "cooling") and node.reason.startswith((NO_CAPACITY, NO_MACHINE))
        ):
            yield ClusterFinding(
                id="node-unstarted",
                where=(node.name,),
                what=f"has no machine, and takes no jobs ({node.word}): {node.reason or 'no reason given'}",
                todo=f"./hpc nodes {cluster.stack} resume {node.name}",
                note="Once the reason is gone; the reconcile service resumes nodes that wait for capacity.",
                since=node.since_utc,
            )


def _unreachable(cluster: ClusterObservation, machine: MachineObservation, node: Node | None) -> ClusterFinding:
    noticed = f"slurmctld says {node.word}" if node else "slurmctld cannot be asked"
    if node and not node.down:
        noticed += ", it has not noticed yet"
    return ClusterFinding(
        id="node-down",
        where=(machine.name,),
        what=f"does not answer SSH ({machine.why}); {noticed}",
        todo=f"./hpc up {cluster.stack}",
        note=f"It starts the machine again if it is not running; on Google Cloud after ./hpc refresh {cluster.stack}.",
        since=node.since_utc if node and node.down else None,
    )


def _stopped(
    cluster: ClusterObservation, machine: MachineObservation, node: Node | None, unit: Mapping[str, Any]
) -> ClusterFinding:
    words = last_words(unit.get("journal") or ())
    noticed = f"; slurmctld says {node.word}" if node else ""
    if setup_unit(machine).get("state") == "activating":
        return ClusterFinding(
            id="node-down",
            where=(machine.name,),
            what=f"is joining the cluster; slurmd starts when its set-up is done{noticed}",
            todo=f"./hpc ssh {cluster.stack} {machine.name} -- journalctl -u hpc-node -n 20",
            since=setup_unit(machine)["since"] or None,
        )
    return ClusterFinding(
        id="node-down",
        where=(machine.name,),
        what=f"slurmd does not run there ({unit['state']}){noticed}"
        + (f". Its last messages: {words}" if words else ""),
        todo=f"./hpc ssh {cluster.stack} {machine.name} -- systemctl start slurmd",
        since=unit["since"] or None,
    )


def _silent(cluster: ClusterObservation, node: Node) -> ClusterFinding:
    return ClusterFinding(
        id="network-cut",
        where=(node.name,),
        what=f"answers SSH from here and its slurmd runs, but slurmctld says that it does not respond ({node.word}): "
        "the way from the controller to its slurmd (port 6818) is cut, or slurmd hangs",
        todo=f"./hpc ssh {cluster.stack} {node.name} -- tail {LOGS}/slurmd.log",
        note="If it hangs: systemctl restart slurmd there; jobs go on.",
        since=node.since_utc,
    )


def _down(cluster: ClusterObservation, node: Node) -> ClusterFinding:
    if "UNKNOWN" in node.states and not node.reason:
        return ClusterFinding(
            id="node-down",
            where=(node.name,),
            what="slurmctld was restarted, and the node has not registered yet",
            todo=f"./hpc status {cluster.stack}",
            note="Ask again in half a minute.",
        )
    reason = f": {node.reason} (said by {node.by})" if node.reason else ", and gives no reason"
    return ClusterFinding(
        id="node-down",
        where=(node.name,),
        what=f"slurmctld says {node.word}{reason}",
        todo=f"./hpc nodes {cluster.stack} resume {node.name}",
        note="Once the reason is gone.",
        since=node.since_utc,
    )


def drained(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield nodes that are drained: by an administrator, a health check, the cloud or a failed prolog."""
    for node in (cluster.slurm_nodes or {}).values():
        name = node.name
        if not node.drained:
            continue
        if by_health_check := health_check_results.drained(cluster.stack, name, node.reason):
            yield replace(by_health_check, since=node.since_utc)
            continue
        resume = f"./hpc nodes {cluster.stack} resume {name}"
        what = f"is drained by {node.by or 'somebody'}, and takes no new jobs: {node.reason or 'no reason given'}"
        todo, note = resume, "Once the reason is gone."
        if node.reason in CLOUD_REASONS:
            what = f"takes no new jobs: {node.reason.partition(': ')[2]}"
            todo = f"./hpc refresh {cluster.stack} && ./hpc up {cluster.stack}"
            note = "If it was stopped: that starts it. It is resumed by itself when it is back."
        elif kind := next((kind for kind in ("prolog", "epilog") if kind in node.reason.lower()), ""):
            what += f". {'A prolog' if kind == 'prolog' else 'An epilog'} failed there, and {LOGS}/{kind}.log says why"
            todo, note = f"./hpc ssh {cluster.stack} {name} -- tail {LOGS}/{kind}.log", f"When that is mended: {resume}"
        yield ClusterFinding(id="node-drained", where=(name,), what=what, todo=todo, note=note, since=node.since_utc)


def held(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield a finding on jobs that Slurm or an operator holds. Jobs that users hold themselves are not counted."""
    jobs = (cluster.slurm("jobs") or {}).get("held", [])
    if not jobs:
        return
    listed = [f"{job['id']} of {job['user']} ({job['reason']})" for job in jobs[:NAMED_JOBS]]
    more = [f"{len(jobs) - NAMED_JOBS} more"] if len(jobs) > NAMED_JOBS else []
    are, they = ("jobs are", "they start") if len(jobs) > 1 else ("job is", "it starts")
    yield ClusterFinding(
        id="jobs-held",
        where=(cluster.controller.name,),
        what=f"{len(jobs)} {are} held, and {they} only when released: {', '.join([*listed, *more])}",
        todo=f"./hpc ssh {cluster.stack} controller -- scontrol release {','.join(job['id'] for job in jobs)}",
        note="Once the reason is gone; slurmctld.log on that machine names the node and what failed there.",
    )


def missing(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield a finding on running jobs without a process on any of their nodes: they ended while slurmctld was down."""
    jobs_on = {machine.name: machine.part("jobs") for machine in cluster.nodes}
    jobs = [
        job
        for job in (cluster.slurm("jobs") or {}).get("first", [])
        if job["state"] == "RUNNING"
        and "+" not in job["id"]
        and (seconds_of(job["seconds"]) or 0) > STARTED_SECONDS
        and all(jobs_on.get(node) is not None and job["number"] not in jobs_on[node] for node in expand(job["nodes"]))
    ]
    if jobs:
        listed = list_jobs([job["id"] for job in jobs])
        yield ClusterFinding(
            id="jobs-missing",
            where=(cluster.controller.name,),
            what=f"{len(jobs)} running job{'s' * (len(jobs) > 1)} without a process on any node: {listed}. slurmctld "
            "was killed before it recorded how they ended, and keeps their nodes for them",
            todo=f"./hpc ssh {cluster.stack} controller -- journalctl -u hpc-lost-jobs -n 20",
            note="They are requeued or cancelled two to three minutes after slurmctld's start; "
            "`systemctl restart hpc-lost-jobs` there looks once more.",
        )


def misplaced(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield a finding if slurmctld refused the topology.conf with the nodes' latest places."""
    if message := cluster.controller.part("topology"):
        yield ClusterFinding(
            id="topology-refused",
            where=(cluster.controller.name,),
            what="places jobs by an earlier topology.conf, as slurmctld refused the latest: "
            f"{' '.join(message.split())[:400]}",
            todo=f"./hpc up {cluster.stack}",
            note="With slurm.topology: nodesets in the stack file, which does without places. By itself the next other "
            f"place that a node reports is tried; the attempts: ./hpc logs {cluster.stack} topology",
        )
