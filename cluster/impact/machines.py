"""The impact on machines, nodes and partitions, and on what Slurm knows of them, wherever the machines are."""

from collections.abc import Iterable

from cluster import roster
from cluster.catalog.parameters import CONF, NODE, RECONFIGURED
from cluster.config.impact import Drain, Effect, Impact, NoEffect, Reconfigure, Replace, Restart
from cluster.impact.edits import Edit
from cluster.impact.rule import Rule, rule
from cluster.slurm import hostlist

SHAPE = ("CPUs", "Boards", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")
"""Parameters of a NodeName line that running jobs are tied to: slurmctld ends those whose node has others when it
starts (job_resources.c, valid_job_resources), so the set-up empties the node first (scripts/node/jobs/drain.py)."""


@rule(Effect.RESTART, Effect.DRAIN)
def nodeset(edit: Edit) -> Impact:
    """A nodeset that came or went."""
    if edit.old is None:
        return Restart("its nodes join; slurmctld restarts to know them, and jobs elsewhere run on")
    return _leave(roster.node_names(edit.before, edit.name))


@rule(Effect.RESTART, Effect.DRAIN)
def count(edit: Edit) -> Impact:
    if moves(edit):
        return _leave(roster.node_names(edit.before, edit.name))
    old, new = (roster.node_names(config, edit.name) for config in (edit.before, edit.after))
    if len(new) > len(old):
        return Restart(f"{names(new[len(old) :])} joins; slurmctld restarts to know it, and jobs elsewhere run on")
    return _leave(old[len(new) :])


@rule(Effect.DRAIN)
def nodes_on(edit: Edit) -> Impact:
    """The nodeset moves to the controller, or away from it."""
    return _leave(roster.node_names(edit.before, edit.name))


@rule(Effect.RESTART, Effect.DRAIN)
def node_conf(edit: Edit) -> Impact:
    if NODE.canonical(edit.path[-1]) in SHAPE:
        return reshape_nodes(roster.node_names(edit.after, edit.name))
    return Restart("slurmctld and the nodeset's slurmd restart; jobs run on")


@rule(Effect.RECONFIGURE, Effect.DRAIN)
def partition(edit: Edit) -> Impact:
    """A partition that came or went."""
    if edit.old is None:
        return Reconfigure("jobs can be sent there from then on")
    return Drain(
        "it takes no new jobs, and `up` waits until those that run or wait there are gone; else Slurm would end them",
        f"./hpc run {{stack}} -- squeue --partition={edit.name}",
    )


@rule(Effect.RECONFIGURE, Effect.RESTART)
def extra(edit: Edit) -> Impact:
    name = CONF.canonical(edit.path[-1]) or edit.path[-1]
    if name.lower() in RECONFIGURED:
        return Reconfigure(f"{name} follows `scontrol reconfigure`")
    return Restart(f"{name} is read when slurmctld starts; jobs run on")


@rule(Effect.NOTHING, Effect.REPLACE)
def logins(edit: Edit) -> Impact:
    """Login machines that come or go."""
    old, new = (
        {one.name for one in roster.machines(config) if "login" in one.roles} for config in (edit.before, edit.after)
    )
    gone = sorted(old - new)
    if not gone:
        return NoEffect("jobs and people who are logged in are left alone")
    return end_sessions(gone, "is removed")


def unless_moved(then: Rule) -> Rule:
    """A rule for a nodeset's machines, and what it does in place of that to move to the controller or away from it."""
    possible = dict.fromkeys((*then.possible, Effect.DRAIN))
    return Rule(lambda edit: nodes_on(edit) if moves(edit) else then(edit), tuple(possible))


def moves(edit: Edit) -> bool:
    """Whether the nodeset moves to the controller, or away from it: then its other fields have that impact too."""
    return edit.before.nodesets[edit.name].on != edit.after.nodesets[edit.name].on


def _leave(nodes: tuple[str, ...]) -> Impact:
    return Drain(
        f"{names(nodes)} leaves: no new jobs start there, and `up` waits for those that run before it removes the "
        "machine",
        show_jobs(nodes),
    )


def reshape_nodes(nodes: tuple[str, ...]) -> Impact:
    """Nodes that Slurm knows by another size from then on."""
    return Drain(
        f"{names(nodes)} gets other sockets, cores, threads or GPUs: Slurm would end jobs there, so `up` lets them "
        "finish first and starts no new ones",
        show_jobs(nodes),
    )


def recreate_nodes(edit: Edit) -> Impact:
    """The nodes of the nodeset that are there before and after, whose machines can't be changed in place."""
    after = roster.node_names(edit.after, edit.name)
    nodes = tuple(name for name in roster.node_names(edit.before, edit.name) if name in after)
    return Replace(
        f"{names(nodes)} is recreated; each node takes no new jobs until then, and its jobs finish before it goes",
        show_jobs(nodes),
    )


def end_sessions(gone: list[str], how: str) -> Impact:
    """Login machines that people may be on."""
    return Replace(
        f"{names(gone)} {how}: sessions there end, with the interactive jobs (srun, salloc) begun in them; batch "
        "jobs run on",
        f"./hpc ssh {{stack}} {gone[0]} -- who",
    )


def names(machines: Iterable[str]) -> str:
    """Names of machines as Slurm writes them in one: lab-cpu-[0-3]."""
    return hostlist.compress(machines)


def show_jobs(nodes: Iterable[str]) -> str:
    """The command that shows whose jobs run on nodes."""
    return f"./hpc ssh {{stack}} controller -- squeue --nodelist='{names(nodes)}'"


def recreate_controller(edit: Edit, stays: str, how: str = "the controller is recreated") -> Impact:
    """What is lost with the controller; `stays` says what is not."""
    hosted = any(section.on for section in edit.before.nodesets.values())
    return Replace(f"{how}: {stays}" + ("; jobs on the controller itself end" if hosted else ""))
