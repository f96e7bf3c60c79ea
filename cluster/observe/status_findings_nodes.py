"""Findings about nodes that this host or the node itself explains, and about running jobs without processes."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.findings import ClusterFinding
from cluster.observe import status_findings_machines as machines
from cluster.observe.observation import ClusterObservation, MachineObservation
from cluster.slurm.paths import LOGS
from scripts.node.judge.document import last_words, setup_failure
from scripts.node.slurm.findings import NAMED_JOBS
from scripts.node.slurm.hostlist import expand
from scripts.node.slurm.nodes import Node
from scripts.node.slurm.times import seconds_of

STARTED_SECONDS = 60
"""A younger job may have been observed before its processes."""


def causes(cluster: ClusterObservation) -> dict[str, ClusterFinding | None]:
    """Return by node the cause why it is down, as far as this host or the node itself shows one that slurmctld does not
    see; None where another finding is about it."""
    found: dict[str, ClusterFinding | None] = {}
    known = cluster.slurm_nodes
    unauthenticated = machines.unauthenticated(cluster)
    for machine in cluster.nodes:
        node = (known or {}).get(machine.name)
        if machine.late:
            found[machine.name] = None
        elif not machine.reached:
            found[machine.name] = None if "controller" in machine.roles else _unreachable(cluster, machine, node)
        elif known is not None and node is None:
            found[machine.name] = ClusterFinding(
                id="node-down",
                where=(machine.name,),
                what="is a machine of this stack, but slurmctld does not know it",
                todo=f"./hpc drift {cluster.stack}",
            )
        elif (unit := machine.daemons.get("slurmd")) and unit["state"] != "active":
            # slurmd starts after the set-up, so a failed set-up is the cause and has its own finding.
            failed = setup_failure(machine.facts)
            found[machine.name] = None if failed else _stopped(cluster, machine, node, unit)
        elif machine.controller.get("reached") is False or (node and node.silent and machine.name in unauthenticated):
            found[machine.name] = None  # the findings about networks, MUNGE keys and clocks give the cause
        elif node and node.silent and node.down:
            found[machine.name] = _silent(cluster, node)
    return found


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
    setup = machine.daemons.get("hpc-node")
    if setup and setup["state"] == "activating":
        return ClusterFinding(
            id="node-down",
            where=(machine.name,),
            what=f"is joining the cluster; slurmd starts when its set-up is done{noticed}",
            todo=f"./hpc ssh {cluster.stack} {machine.name} -- journalctl -u hpc-node -n 20",
            since=setup["since"] or None,
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
        listed = ", ".join(job["id"] for job in jobs[:NAMED_JOBS]) + (", ..." if len(jobs) > NAMED_JOBS else "")
        yield ClusterFinding(
            id="jobs-missing",
            where=(cluster.controller.name,),
            what=f"{len(jobs)} running job{'s' * (len(jobs) > 1)} without a process on any node: {listed}. slurmctld "
            "was killed before it recorded how they ended, and keeps their nodes for them",
            todo=f"./hpc ssh {cluster.stack} controller -- journalctl -u hpc-lost-jobs -n 20",
            note="They are requeued or cancelled two to three minutes after slurmctld's start; "
            "`systemctl restart hpc-lost-jobs` there looks once more.",
        )
