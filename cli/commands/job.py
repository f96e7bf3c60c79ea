"""`./hpc job` and `topology`: one job, and the switches by which Slurm places jobs."""

import secrets
from typing import Annotated

from typer import Argument, Option

from cli import console, options
from cli.cluster.cluster import connect
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from cluster.capability import Capability
from cluster.observe.topology import DISTANCES, TopologyError, parse_topology, topology_command
from scripts.node.slurm.job_lines import lines
from scripts.node.slurm.job_report import ALLOWED, ID, JobError, report

_SECONDS = 180
"""Time limit for reading the records of one job: a large array has many."""


def job(
    stack: options.Stack,
    number: Annotated[str, Argument(metavar="ID", help="7, a task of an array (7_3), or a component (7+1).")],
    *,
    json: options.Json = False,
) -> None:
    """Show one job: why it waits or failed, what it asked for and used, and what happened on its nodes meanwhile.

    Of a job that failed: exit code or signal in words, failed steps, the end of its output and errors of NCCL there.
    With each of its runs if it was requeued, and what to ask for next time. What happened: nodes that Slurm did not
    use, failed health checks and repairs while it ran; around a run that failed from ten minutes before it until five
    minutes after it. GPUs are measured only where slurmd has NVML. Users have the same as `hpc-job ID` on the login
    machine, for what Slurm lets them see.

    JSON: {job, notes, jobs [{id, state, exit_code, exit_text, waits, asked, allocated, used, runs, steps, failed_steps,
    output {path, lines, nccl}, meanwhile, next_time ...}]}, and of a whole array {array {states, tasks, waits ...}}.
    Times are seconds of the epoch, sizes bytes, shares 0 to 1.
    """
    scheduler = Scheduler(connect(stack, Capability.USAGE))
    try:
        document = report(number, lambda script: scheduler.run(script, seconds=_SECONDS))
    except JobError as error:
        raise CliError(f"{error}.") from None
    if json:
        console.json(document)
        return
    for line in lines(document):
        console.line(line)


def topology(
    stack: options.Stack,
    *,
    job: Annotated[str, Option("--job", metavar="ID", help="And how far apart the nodes of this job are.")] = "",
    json: options.Json = False,
) -> None:
    """Show the switches by which Slurm places jobs, and how far apart the nodes of a job are.

    On Google Cloud leaf switches are the blocks in which nodes have reported to be, below their cluster; nodes of
    ns-NODESET have reported none. A job runs below as few leaf switches as possible. Of an ended job, its nodes are
    shown where they are now.

    JSON: {cluster, switches [{name, level, parent, cloud, nodes}], nodes {NAME {switch, state}}, refused, job {id,
    nodes, leaves {NAME count}, common, distance}}. distance is block (one leaf switch), cluster (below one switch that
    is not at the top), or different.
    """
    if job and not ID.fullmatch(job):
        raise CliError(f"--job {job!r} is no job's number. Allowed: {ALLOWED}.")
    cluster = connect(stack, Capability.NODES)
    mark = secrets.token_hex(12)
    try:
        tree = parse_topology(Scheduler(cluster).run(topology_command(mark, job)), mark, job)
    except TopologyError as error:
        raise CliError(f"{cluster.name}: {error}.") from None
    if json:
        console.json({"cluster": cluster.name, **tree.document()})
        return
    console.table(tree.table(), right={1, 2} if job else {1})
    if tree.refused:
        console.note("slurmctld refused topology.conf with the latest places of nodes, and runs with an earlier one.")
        console.note(f"Why: ./hpc logs {stack} topology")
    if job:
        leaves, nodes = len(tree.job["leaves"]), len(tree.job["nodes"])
        common = f", below {tree.job['common']}" if tree.job["common"] else ""
        console.line()
        console.line(
            f"Job {job}: {nodes} {'node' if nodes == 1 else 'nodes'}, "
            f"{leaves} leaf {'switch' if leaves == 1 else 'switches'}{common}: {DISTANCES[tree.job['distance']]}."
        )
