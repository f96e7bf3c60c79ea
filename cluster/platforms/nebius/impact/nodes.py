"""The impact on nodes of Kubernetes, and on the pods of Slurm that run there."""

from collections.abc import Iterable

from cluster import roster
from cluster.config.cluster import ClusterConfig
from cluster.config.impact import Drain, Effect, Impact, NoEffect, Reconfigure, Refuse, Replace
from cluster.impact.edits import Edit
from cluster.impact.machines import end_sessions, names, show_jobs
from cluster.impact.rule import rule
from cluster.platforms.nebius.node_groups import NodeGroup, node_groups, shape, split
from cluster.platforms.nebius.section import Nebius, Workers

SAME = NoEffect("nodes stay as they are: that is what they have")
_PENDING = "the next `up` continues to wait where this one gave up"


@rule(Effect.RECONFIGURE, Effect.DRAIN)
def nodeset(edit: Edit) -> Impact:
    """A nodeset that came or went."""
    if edit.old is None:
        return Reconfigure("its node groups are created and its nodes join; jobs elsewhere run on")
    return _leave(roster.node_names(edit.before, edit.name))


@rule(Effect.RECONFIGURE, Effect.DRAIN)
def count(edit: Edit) -> Impact:
    old, new = (roster.node_names(config, edit.name) for config in (edit.before, edit.after))
    if len(new) > len(old):
        return Reconfigure(f"{names(new[len(old) :])} joins, in a node group that grows; jobs elsewhere run on")
    return _leave(
        old[len(new) :],
        f". Nebius chooses which machines of {edit.name} it removes: a job on {names(new)} may end with its machine "
        "and be requeued",
    )


@rule(Effect.NOTHING, Effect.REPLACE)
def recreated(edit: Edit) -> Impact:
    """What nodes of nodesets are made of; the services' nodes are not looked at."""
    return _recreate(edit, reshaped(edit)) if reshaped(edit) else SAME


@rule(Effect.NOTHING, Effect.REPLACE)
def everything(edit: Edit) -> Impact:
    """What all node groups are made of: controller and login pods move to other nodes too."""
    changed = _groups(edit)
    if not changed and not reshaped(edit):
        return SAME
    return Replace(
        f"{_nodes(edit, reshaped(edit))}; nodes of {_list(changed)} are recreated one after another: slurmctld starts "
        "again with its state, commands wait for it, and sessions on login pods end",
        show_jobs(_names(edit, reshaped(edit))),
    )


@rule(Effect.NOTHING, Effect.REPLACE)
def controller(edit: Edit) -> Impact:
    if "controller" not in _groups(edit):
        return SAME
    return Replace(
        "the controller's node is recreated: slurmctld starts again with its state, which is on a shared file system; "
        "jobs run on, and commands wait"
    )


@rule(Effect.NOTHING, Effect.REPLACE)
def login(edit: Edit) -> Impact:
    """What login nodes are made of."""
    if "login" not in _groups(edit):
        return SAME
    return end_sessions([one.name for one in roster.machines(edit.before) if one.roles == ("login",)], "is recreated")


@rule(Effect.NOTHING, Effect.REPLACE)
def address(edit: Edit) -> Impact:
    """The login Service's type or exposure."""
    logins = [one.name for one in roster.machines(edit.before) if one.roles == ("login",)]
    return Replace(
        f"users reach {names(logins)} at another address from then on: sessions there end, with the interactive jobs "
        "(srun, salloc) begun in them; batch jobs run on",
        f"./hpc ssh {{stack}} {logins[0]} -- who",
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def nodes_per_group(edit: Edit) -> Impact:
    """Where a nodeset's nodes are split."""
    old, new = (
        [split(config.nodesets[name].count, _workers(config, name).nodes_per_group) for name in _both(edit)]
        for config in (edit.before, edit.after)
    )
    if old == new:
        return NoEffect("the nodeset's node groups stay as they are")
    return Refuse(
        "nodes would move from one node group to another, and Nebius chooses which ones it removes: put it back, or "
        "make a nodeset of its own for further nodes",
        command="put it back",
    )


@rule(Effect.NOTHING)
def services(edit: Edit) -> Impact:
    """Node groups of operators and of accounting."""
    role = edit.path[1]
    if role not in _groups(edit):
        return SAME
    if role == "accounting":
        return NoEffect("slurmdbd and its database move to another node; slurmctld keeps its records until then")
    return NoEffect("nodes of operators are recreated one after another; Slurm and its jobs run on")


def settings_of(config: ClusterConfig) -> Nebius:
    """The section `nebius`; ValueError where there is none."""
    section = config.section(Nebius)
    if section is None:
        raise ValueError(f"{config.name}: no section nebius")
    return section


def reshaped(edit: Edit) -> list[str]:
    """Nodesets whose nodes are recreated."""
    return [
        name
        for name in _both(edit)
        if len({shape(config, settings_of(config), name) for config in (edit.before, edit.after)}) > 1
    ]


def _both(edit: Edit) -> list[str]:
    return [name for name in edit.before.nodesets if name in edit.after.nodesets]


def _workers(config: ClusterConfig, nodeset: str) -> Workers:
    return settings_of(config).workers.get(nodeset) or Workers()


def _groups(edit: Edit) -> list[str]:
    """Service groups whose nodes are recreated: what the API rolls out, so neither their number nor their labels."""
    old, new = ({one.name: _template(one) for one in _all(config)} for config in (edit.before, edit.after))
    return [name for name in old if name in new and old[name] != new[name]]


def _all(config: ClusterConfig) -> list[NodeGroup]:
    return [one for one in node_groups(config, settings_of(config)) if one.role != "worker"]


def _template(group: NodeGroup) -> tuple[object, ...]:
    return group.machine_type, group.disk_gib, group.tags, group.os


def _leave(nodes: tuple[str, ...], more: str = "") -> Impact:
    return Drain(
        f"{names(nodes)} leaves: no new jobs start there, and `up` waits for those that run before it removes nodes; "
        f"{_PENDING}{more}",
        show_jobs(nodes),
    )


def _recreate(edit: Edit, nodesets: list[str]) -> Impact:
    return Replace(_nodes(edit, nodesets), show_jobs(_names(edit, nodesets)))


def _nodes(edit: Edit, nodesets: list[str]) -> str:
    if not nodesets:
        return "nodes of nodesets stay as they are"
    found = names(_names(edit, nodesets))
    return f"{found} is recreated: it takes no new jobs, and `up` waits until its jobs have ended"


def _names(edit: Edit, nodesets: Iterable[str]) -> list[str]:
    """Nodes of nodesets that are there before and after."""
    after = {name for one in nodesets for name in roster.node_names(edit.after, one)}
    return [name for one in nodesets for name in roster.node_names(edit.before, one) if name in after]


def _list(groups: list[str]) -> str:
    return ", ".join(groups) if groups else "no other group"
