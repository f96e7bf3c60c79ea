"""What becomes of machines, nodes and partitions, and of what Slurm knows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster import roster
from cluster.catalog.parameters import CONF, NODE, RECONFIGURED
from cluster.impact.impact import Consequence, Effect, drain, nothing, reconfigure, refused, replace, restart
from cluster.impact.rule import among, controller_anew, names, who_is_there
from cluster.platforms.local.address_plan import block, plan

if TYPE_CHECKING:
    from cluster.impact.edits import Edit

SHAPE = ("CPUs", "Boards", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")
"""Parameters of a NodeName line that running jobs are tied to: slurmctld ends those whose node has others when it
starts (job_resources.c, valid_job_resources), so the set-up empties the node first (scripts/node/jobs/drain.py)."""


@among(Effect.RESTART, Effect.DRAIN)
def nodeset(edit: Edit) -> Consequence:
    """A nodeset that came or went."""
    if edit.old is None:
        return restart("its nodes join; slurmctld restarts to know them, and jobs elsewhere run on")
    return _leave(roster.node_names(edit.before, edit.name))


@among(Effect.RESTART, Effect.DRAIN)
def count(edit: Edit) -> Consequence:
    """More nodes, or fewer."""
    if _moves(edit):
        return nodes_on(edit)
    old, new = (roster.node_names(config, edit.name) for config in (edit.before, edit.after))
    if len(new) > len(old):
        return restart(f"{names(new[len(old) :])} joins; slurmctld restarts to know it, and jobs elsewhere run on")
    return _leave(old[len(new) :])


@among(Effect.DRAIN)
def nodes_on(edit: Edit) -> Consequence:
    """The nodeset moves to the controller, or away from it."""
    return _leave(roster.node_names(edit.before, edit.name))


@among(Effect.NOTHING, Effect.DRAIN, Effect.REPLACE)
def node_machine(edit: Edit) -> Consequence:
    """Another machine type, or other GPUs: a nodeset's machines."""
    if _moves(edit):
        return nodes_on(edit)
    nodes = staying(edit)
    old, new = (config.nodesets[edit.name] for config in (edit.before, edit.after))
    gpus = [roster.nodeset_gpu(config, one) for config, one in ((edit.before, old), (edit.after, new))]
    if edit.after.platform != "local" or gpus[0] != gpus[1]:
        return nodes_anew(nodes)
    if roster.sizes(edit.before, old) != roster.sizes(edit.after, new):
        return _reshaped(nodes)
    return nothing("the machines are of the same size")


@among(Effect.RESTART, Effect.DRAIN)
def node_conf(edit: Edit) -> Consequence:
    """One parameter of a NodeName line."""
    if NODE.canonical(edit.path[-1]) in SHAPE:
        return _reshaped(roster.node_names(edit.after, edit.name))
    return restart("slurmctld and the nodeset's slurmd restart; jobs run on")


@among(Effect.NOTHING, Effect.REFUSED)
def addresses(edit: Edit) -> Consequence:
    """The block of a nodeset's addresses, as far as it was not that one already."""
    if block(edit.before, edit.name) == block(edit.after, edit.name):
        return nothing("these are the addresses that the nodes have")
    return refused("nodes are known by their addresses", _keep_block(edit, edit.name))


@among(Effect.RESTART, Effect.REFUSED)
def nodeset_order(edit: Edit) -> Consequence:
    """Nodesets in another order: harmless unless addresses follow from it."""
    was, now = plan(edit.before).of, plan(edit.after).of
    moved = [
        name
        for name in edit.old
        if name in edit.new
        for one in roster.node_names(edit.before, name)[:1]
        if now.get(one, was[one]) != was[one]
    ]
    if not moved:
        return restart("the order of topology.conf's switches changes; jobs run on")
    return refused(
        f"addresses follow from the order of nodesets, and those of {', '.join(moved)} would change: put new nodesets "
        "at the end, and give those that stay their addresses before one above them goes",
        " and ".join(_keep_block(edit, name) for name in moved),
    )


@among(Effect.RECONFIGURE, Effect.DRAIN)
def partition(edit: Edit) -> Consequence:
    """A partition that came or went."""
    if edit.old is None:
        return reconfigure("jobs can be sent there from then on")
    return drain(
        "it takes no new jobs, and `up` waits until those that run or wait there are gone; else Slurm would end them",
        f"./hpc run {{stack}} -- squeue --partition={edit.name}",
    )


@among(Effect.RECONFIGURE, Effect.RESTART)
def extra(edit: Edit) -> Consequence:
    """One parameter of slurm.conf."""
    name = CONF.canonical(edit.path[-1]) or edit.path[-1]
    if name.lower() in RECONFIGURED:
        return reconfigure(f"{name} follows `scontrol reconfigure`")
    return restart(f"{name} is read when slurmctld starts; jobs run on")


@among(Effect.NOTHING, Effect.DRAIN, Effect.REPLACE)
def controller_machine(edit: Edit) -> Consequence:
    """The controller's machine type."""
    hosted = [name for name, one in edit.after.nodesets.items() if one.on and edit.before.nodesets.get(name) == one]
    kinds = [roster.machines(config)[0] for config in (edit.before, edit.after)]
    if edit.after.platform != "local":
        return controller_anew(edit, "the controller is stopped, and started as the other type")
    if kinds[0].gpu != kinds[1].gpu:
        return controller_anew(edit)
    if hosted:
        return _reshaped(roster.node_names(edit.after, hosted[0]))
    return nothing("on this platform a machine type says what Slurm schedules by; the controller runs no jobs")


@among(Effect.NOTHING, Effect.REPLACE)
def logins(edit: Edit) -> Consequence:
    """Login machines that come or go."""
    old, new = (
        {one.name for one in roster.machines(config) if "login" in one.roles} for config in (edit.before, edit.after)
    )
    gone = sorted(old - new)
    if not gone:
        return nothing("jobs and people who are logged in are left alone")
    return logins_go(gone, "is removed")


@among(Effect.NOTHING, Effect.REPLACE)
def login_machine(edit: Edit) -> Consequence:
    """The login machines' type."""
    old, new = (
        {one.name: one for one in roster.machines(config) if one.roles == ("login",)}
        for config in (edit.before, edit.after)
    )
    anew = [n for n in old if n in new and (edit.after.platform != "local" or old[n].gpu != new[n].gpu)]
    if not anew:
        return nothing("on this platform a machine type says what Slurm schedules by; login machines run no jobs")
    # A cloud's machine is stopped and started, and keeps its disk.
    return logins_go(anew, "is made anew" if edit.after.platform == "local" else "is stopped and started")


def _moves(edit: Edit) -> bool:
    """Whether the nodeset moves to the controller, or away from it: then its other fields are told of with that."""
    return edit.before.nodesets[edit.name].on != edit.after.nodesets[edit.name].on


def _leave(nodes: tuple[str, ...]) -> Consequence:
    return drain(
        f"{names(nodes)} leaves: no new jobs start there, and `up` waits for those that run before it removes the "
        "machine",
        who_is_there(nodes),
    )


def _reshaped(nodes: tuple[str, ...]) -> Consequence:
    return drain(
        f"{names(nodes)} gets other sockets, cores, threads or GPUs: Slurm would end jobs there, so `up` lets them "
        "finish first and starts no new ones",
        who_is_there(nodes),
    )


def staying(edit: Edit) -> tuple[str, ...]:
    """Nodes of the nodeset that are there before and after."""
    return tuple(n for n in roster.node_names(edit.before, edit.name) if n in roster.node_names(edit.after, edit.name))


def nodes_anew(nodes: tuple[str, ...]) -> Consequence:
    """Nodes whose machines can't be changed into what they are to be."""
    return replace(
        f"{names(nodes)} is made anew; each node takes no new jobs until then, and its jobs finish before it goes",
        who_is_there(nodes),
    )


def logins_go(gone: list[str], how: str) -> Consequence:
    """Login machines that people may be on."""
    return replace(
        f"{names(gone)} {how}: sessions there end, with the interactive jobs (srun, salloc) begun in them; batch "
        "jobs run on",
        f"./hpc ssh {{stack}} {gone[0]} -- who",
    )


def _keep_block(edit: Edit, name: str) -> str:
    return f"write `addresses: {block(edit.before, name)}` under nodesets.{name}"
