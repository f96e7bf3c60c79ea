"""`./hpc nodes`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from typer import Argument, Option

from cli import console, observers, options
from cli.cluster.cluster import connect
from cli.cluster.maintenance import drain, reboot, resume
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from cluster.capability import Capability
from cluster.platforms.observers import observer_of
from scripts.node.slurm.nodes import Node

_Action = Literal["drain", "resume", "reboot"]


def nodes(
    stack: options.Stack,
    action: Annotated[
        _Action | None, Argument(metavar="[drain|resume|reboot]", help="Left out: list the nodes.")
    ] = None,
    names: Annotated[
        list[str] | None, options.node_names("Names or ranges, with or without the cluster's: cpu-0, cpu-[0-3,7].")
    ] = None,
    *,
    reason: Annotated[str, Option(metavar="TEXT", help="Why; others read it in sinfo. A drain needs one.")] = "",
    force: Annotated[bool, Option("--force", help="Also where jobs run: see above.")] = False,
    wait: Annotated[bool, Option("--wait", help="Keep new jobs away, and wait for the end of those that run.")] = False,
    json: options.Json = False,
) -> None:
    """List the nodes, or take some out of service and back.

    drain keeps new jobs away; those that run go on to their end. resume brings back what is drained, down or stuck,
    by DOWN and RESUME where RESUME alone does not. reboot has slurmctld drain the node, reboot it and take it back, and
    waits for that; a node that somebody drained stays so.

    No node with a running job is touched, but with --wait, or with --force: drain and resume then leave the jobs
    alone, reboot ends them; those that can be requeued wait again.
    """
    needed = [Capability.NODES, *([Capability.REBOOT] if action == "reboot" else [])]
    cluster = connect(stack, *needed)
    scheduler = Scheduler(cluster)
    if action is None:
        every = list(scheduler.nodes().values())
        actors = None
        if observer := observer_of(cluster.outputs):
            with observers.open_access(cluster) as access:
                actors = observer.actors(access, every)
        _list(every, actors, json=json)
        return
    _check_options(action, names or [], reason, wait=wait, json=json)
    chosen = scheduler.find_nodes(names or [])
    if action == "drain":
        drain(scheduler, chosen, reason=reason, force=force, wait=wait)
    elif action == "resume":
        resume(scheduler, chosen, force=force)
    else:
        from cli.stack import stack_config

        config = stack_config.applied(cluster.outputs)
        timeout = config.slurm.join_seconds if config else 300
        reboot(scheduler, chosen, reason=reason, force=force, wait=wait, timeout=timeout)


def _check_options(action: _Action, names: list[str], reason: str, *, wait: bool, json: bool) -> None:
    """Raise CliError with everything that is wrong with the options of an action."""
    problems: list[str] = []
    if not names:
        problems.append(f"{action}: which nodes? For example: ./hpc nodes STACK {action} cpu-0")
    if action == "drain" and not reason.strip():
        problems.append("drain: --reason is needed: others will ask why, and sinfo -R shows it.")
    if "\n" in reason or not reason.isprintable():
        problems.append(f"--reason {reason!r}: one line of printable characters is expected.")
    if action == "resume" and (wait or reason):
        problems.append("resume: takes neither --wait nor --reason.")
    if json:
        problems.append(f"--json is for the list, not for {action}.")
    if problems:
        raise CliError("\n".join(problems))


def _list(nodes: Sequence[Node], actors: Mapping[str, str] | None, *, json: bool) -> None:
    """Print the nodes, with who must act on drained ones where that is known."""
    if json:
        fields = ("user", "state", "name", "elapsed", "left")
        rows = [
            {
                "node": node.name,
                "state": node.word,
                "states": sorted(node.states),
                "reason": node.reason or None,
                "reservation": node.reservation or None,
                "by": node.by or None,
                "since": node.since or None,
                "jobs": [{"id": job.id, **{key: getattr(job, key) for key in fields}} for job in node.jobs],
                **({"actor": actors.get(node.name)} if actors is not None else {}),
            }
            for node in nodes
        ]
        console.json(rows)
        return
    table = [("NODE", "STATE", "REASON", "SINCE", *(("WHO MUST ACT",) if actors else ()), "JOBS")]
    for node in nodes:
        actor = (actors.get(node.name, "-"),) if actors else ()
        jobs = " ".join(f"{job.id}({job.user})" for job in node.jobs)
        table.append((node.name, node.word, node.why or "-", node.since or "-", *actor, jobs or "-"))
    console.table(table)
