"""`./hpc topology`."""

import secrets
from typing import Annotated

from typer import Option

from cli import console, options
from cli.cluster.cluster import from_outputs
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from cli.stack import outputs
from cluster.observe.topology import DISTANCES, TopologyError, read, script
from cluster.platforms.capability import Capability
from scripts.node.slurm.job_report import ALLOWED, ID


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
    cluster = from_outputs(stack, outputs.read(stack, show_secrets=True), Capability.NODES)
    mark = secrets.token_hex(12)
    try:
        found = read(Scheduler(cluster, stack).ask(script(mark, job)), mark, job)
    except TopologyError as error:
        raise CliError(f"{cluster.name}: {error}.") from None
    if json:
        console.json({"cluster": cluster.name, **found.document()})
        return
    console.table(found.table(), right={1, 2} if job else {1})
    if found.refused:
        console.note("slurmctld refused topology.conf with the latest places of nodes, and runs with an earlier one.")
        console.note(f"Why: ./hpc logs {stack} topology")
    if job:
        leaves, nodes = len(found.job["leaves"]), len(found.job["nodes"])
        common = f", below {found.job['common']}" if found.job["common"] else ""
        console.line()
        console.line(
            f"Job {job}: {nodes} {'node' if nodes == 1 else 'nodes'}, "
            f"{leaves} leaf {'switch' if leaves == 1 else 'switches'}{common}: {DISTANCES[found.job['distance']]}."
        )
