"""Effects that depend on what a field was and what it becomes. Pure functions from an edit to its consequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cluster import hostlist, roster
from cluster.addresses import block, plan
from cluster.catalog.parameters import CONF, NODE, RECONFIGURED
from cluster.config.consequence import Consequence, Effect, drain, nothing, reconfigure, refused, replace, restart

if TYPE_CHECKING:
    from cluster.config.edits import Edit

Verdict = Callable[["Edit"], Consequence]
POSSIBLE: dict[Verdict, tuple[Effect, ...]] = {}
"""What each verdict may come to, for whoever reads before there is an edit."""

SHAPE = ("CPUs", "Boards", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")
"""Parameters of a NodeName line that running jobs are tied to: slurmctld ends those whose node has others when it
starts (job_resources.c, valid_job_resources), so the set-up empties the node first (scripts/node/drain.py)."""
DATABASE_LOST = (
    "the controller is made anew, with Slurm's state and the accounting database: running jobs end, and job records "
    "are lost unless they are saved first"
)
SAVE_RECORDS = "./hpc accounting backup {stack}"


def among(*effects: Effect) -> Callable[[Verdict], Verdict]:
    """Say what a verdict may come to."""

    def note(verdict: Verdict) -> Verdict:
        POSSIBLE[verdict] = effects
        return verdict

    return note


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
        return restart(f"{_names(new[len(old) :])} joins; slurmctld restarts to know it, and jobs elsewhere run on")
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
    nodes = tuple(n for n in roster.node_names(edit.before, edit.name) if n in roster.node_names(edit.after, edit.name))
    old, new = (config.nodesets[edit.name] for config in (edit.before, edit.after))
    names = _names(nodes)
    gpus = [roster.nodeset_gpu(config, one) for config, one in ((edit.before, old), (edit.after, new))]
    if edit.after.platform != "local" or gpus[0] != gpus[1]:
        return replace(
            f"{names} is made anew; each node takes no new jobs until then, and its jobs finish before it goes",
            _who_is_there(nodes),
        )
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
    if edit.after.platform != "local" or kinds[0].gpu != kinds[1].gpu:
        return replace(DATABASE_LOST, SAVE_RECORDS)
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
    return _logins_go(gone, "is removed")


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
    return _logins_go(anew, "is made anew")


@among(Effect.NOTHING, Effect.REFUSED)
def shared(edit: Edit) -> Consequence:
    """Directories that machines share."""
    gone = [path for path in edit.old if path not in edit.new]
    come = [path for path in edit.new if path not in edit.old]
    if gone:
        return refused(
            f"{', '.join(gone)} would be deleted with every file in it, while jobs may use it: put it back "
            "(destroying the cluster deletes it too)"
        )
    if come:
        return nothing(
            f"nodes mount {', '.join(come)} at their next boot, or when their set-up runs again",
            "./hpc ssh {stack} NODE -- systemctl restart hpc-node",
        )
    return nothing("the same directories in another order")


@among(Effect.NOTHING)
def user(edit: Edit) -> Consequence:
    """A user who came or went."""
    if edit.old is None:
        return nothing("the user is made on every machine; nobody else notices")
    return nothing(
        "the account goes, the home folder stays; while the user has jobs, `up` fails before it changes anything",
        f"./hpc ssh {{stack}} controller -- scancel --user={edit.name}",
    )


@among(Effect.NOTHING, Effect.REFUSED)
def gid(edit: Edit) -> Consequence:
    """Number of a user's primary group."""
    old, new = (
        next(user.primary_gid for user in config.users if user.name == edit.name)
        for config in (edit.before, edit.after)
    )
    if old == new:
        return nothing("the group's number stays")
    return refused(f"files of {edit.name} and running jobs belong to the number {old}: put it back")


@among(Effect.NOTHING, Effect.REFUSED)
def group(edit: Edit) -> Consequence:
    """A Unix group that came or went, or its number."""
    if edit.old is None or edit.new is None:
        return nothing("made on, or removed from, every machine; files keep their numbers")
    return refused(f"files of the group belong to the number {edit.old}: put it back")


@among(Effect.NOTHING)
def account(edit: Edit) -> Consequence:
    """An account that came or went."""
    if edit.old is None:
        return nothing("known to the database from then on")
    return nothing(
        "job records stay; sacctmgr refuses while jobs are charged to it, and `up` fails then",
        f"./hpc ssh {{stack}} controller -- squeue --account={edit.name}",
    )


@among(Effect.NOTHING)
def qos(edit: Edit) -> Consequence:
    """A QOS that came or went."""
    if edit.old is None:
        return nothing("known to the database from then on")
    return nothing(
        "jobs that run with it run on; those that wait with it never start, so move them first",
        f"./hpc ssh {{stack}} controller -- squeue --qos={edit.name}",
    )


def _moves(edit: Edit) -> bool:
    """Whether the nodeset moves to the controller, or away from it: then its other fields are told of with that."""
    return edit.before.nodesets[edit.name].on != edit.after.nodesets[edit.name].on


def _leave(nodes: tuple[str, ...]) -> Consequence:
    return drain(
        f"{_names(nodes)} leaves: no new jobs start there, and `up` waits for those that run before it removes the "
        "machine",
        _who_is_there(nodes),
    )


def _reshaped(nodes: tuple[str, ...]) -> Consequence:
    return drain(
        f"{_names(nodes)} gets other sockets, cores, threads or GPUs: Slurm would end jobs there, so `up` lets them "
        "finish first and starts no new ones",
        _who_is_there(nodes),
    )


def _logins_go(names: list[str], how: str) -> Consequence:
    return replace(
        f"{_names(names)} {how}: sessions there end, with the interactive jobs (srun, salloc) begun in them; batch "
        "jobs run on",
        f"./hpc ssh {{stack}} {names[0]} -- who",
    )


def _keep_block(edit: Edit, name: str) -> str:
    return f"write `addresses: {block(edit.before, name)}` under nodesets.{name}"


def _names(names: Iterable[str]) -> str:
    return hostlist.compress(names)


def _who_is_there(nodes: Iterable[str]) -> str:
    return f"./hpc ssh {{stack}} controller -- squeue --nodelist='{_names(nodes)}'"
