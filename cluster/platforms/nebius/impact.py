"""The impact of edits on Nebius."""

from collections.abc import Mapping

from cluster.config.impact_annotations import Drain, Effect, Impact, NoEffect, Reconfigure, Refuse, Replace
from cluster.edits import Edit, ImpactRule, rule
from cluster.impact.rules import end_sessions, names, show_jobs
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.node_groups import service_groups, shape, split_nodes
from cluster.platforms.nebius.stack_file_fields import backs_up, settings_of
from cluster.roster import machines, node_names

_UNCHANGED = NoEffect("nodes stay as they are: that is what they have")


@rule(Effect.RECONFIGURE, Effect.DRAIN)
def nodeset(edit: Edit) -> Impact:
    """A nodeset is added or removed."""
    if edit.old is None:
        return Reconfigure("its node groups are created and its nodes join; jobs elsewhere run on")
    return _leave(node_names(edit.before, edit.name))


@rule(Effect.RECONFIGURE, Effect.DRAIN)
def count(edit: Edit) -> Impact:
    old, new = (node_names(config, edit.name) for config in (edit.before, edit.after))
    was, now = (config.nodesets[edit.name] for config in (edit.before, edit.after))
    chosen = (
        f". Nebius chooses which machines of {edit.name} it removes: a job on {names(new)} may end with its machine "
        "and be requeued"
    )
    if now.elastic and not was.elastic and (freed := old[now.static :]):
        return _leave(freed, ", or has Slurm ask for them when jobs need them" + chosen)
    if len(new) < len(old):
        return _leave(old[len(new) :], chosen)
    if len(new) > len(old):
        return Reconfigure(f"{names(new[len(old) :])} joins, in a node group that grows; jobs elsewhere run on")
    return Reconfigure(f"{now.static} of {names(new)} are always up, and others while jobs need them; jobs run on")


@rule(Effect.NOTHING, Effect.REPLACE)
def recreated(edit: Edit) -> Impact:
    """A setting of nodesets' nodes; those of services are not affected."""
    return _recreate(edit, _UNCHANGED)


@rule(Effect.NOTHING, Effect.REPLACE)
def everything(edit: Edit) -> Impact:
    """A setting of all nodes: controller and login pods move to other nodes too."""
    changed, nodes = _groups(edit), _recreated_nodes(edit)
    if not changed and not nodes:
        return _UNCHANGED
    of_nodesets = _describe_recreation(nodes) if nodes else "nodes of nodesets stay as they are"
    return Replace(
        f"{of_nodesets}; nodes of {', '.join(changed) or 'no other group'} are recreated one after another: "
        "slurmctld starts again with its state, commands wait for it, and sessions on login pods end",
        show_jobs(nodes),
    )


@rule(Effect.NOTHING, Effect.REPLACE)
def controller(edit: Edit) -> Impact:
    if "controller" not in _groups(edit):
        return _UNCHANGED
    return Replace(
        "the controller's node is recreated: slurmctld starts again with its state, which is on a shared file system; "
        "jobs run on, and commands wait"
    )


@rule(Effect.NOTHING, Effect.REPLACE)
def login(edit: Edit) -> Impact:
    """A setting of login nodes."""
    if "login" not in _groups(edit):
        return _UNCHANGED
    return end_sessions(_logins(edit), "is recreated")


@rule(Effect.NOTHING, Effect.REPLACE)
def address(edit: Edit) -> Impact:
    """The login Service's type or exposure."""
    logins = _logins(edit)
    return Replace(
        f"users reach {names(logins)} at another address from then on: sessions there end, with the interactive jobs "
        "(srun, salloc) begun in them; batch jobs run on",
        f"./hpc ssh {{stack}} {logins[0]} -- who",
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def nodes_per_group(edit: Edit) -> Impact:
    """The split of a nodeset into node groups."""
    old, new = (
        [
            split_nodes(config.nodesets[name].most, settings_of(config).workers_of(name).nodes_per_group)
            for name in edit.before.nodesets
            if name in edit.after.nodesets
        ]
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
        return _UNCHANGED
    if role == "accounting":
        return NoEffect("slurmdbd and its database move to another node; slurmctld keeps its records until then")
    return NoEffect("nodes of operators are recreated one after another; Slurm and its jobs run on")


def _recreate(edit: Edit, otherwise: Impact) -> Impact:
    """Return the impact on nodesets whose nodes are recreated; `otherwise` if there are none."""
    nodes = _recreated_nodes(edit)
    return Replace(_describe_recreation(nodes), show_jobs(nodes)) if nodes else otherwise


def _recreated_nodes(edit: Edit) -> list[str]:
    """Return the nodes before and after the edit that have another shape after it."""
    before, after = edit.before, edit.after
    return [
        node
        for name in before.nodesets
        if name in after.nodesets and shape(before, settings_of(before), name) != shape(after, settings_of(after), name)
        for node in node_names(before, name)[: after.nodesets[name].most]
    ]


def _describe_recreation(nodes: list[str]) -> str:
    return f"{names(nodes)} is recreated: it takes no new jobs, and `up` waits until its jobs have ended"


def _recreate_all(edit: Edit, what: str) -> Impact:
    """Return the impact on all nodes and pods."""
    return Replace(
        f"{what}: Slurm nodes take no new jobs, and `up` waits until theirs have ended; slurmctld starts again with "
        "its state, and sessions on login pods end",
        show_jobs(name for nodeset in edit.before.nodesets for name in node_names(edit.before, nodeset)),
    )


def _logins(edit: Edit) -> list[str]:
    return [machine.name for machine in machines(edit.before) if machine.roles == ("login",)]


def _groups(edit: Edit) -> list[str]:
    """Return the service groups whose nodes the API recreates; a change of their number or labels recreates none."""
    old, new = (
        {
            group.name: (group.machine_type, group.disk_gib, group.tags, group.os)
            for group in service_groups(config, settings_of(config))
        }
        for config in (edit.before, edit.after)
    )
    return [name for name in old if name in new and old[name] != new[name]]


def _leave(nodes: tuple[str, ...], detail: str = "") -> Impact:
    return Drain(
        f"{names(nodes)} leaves: no new jobs start there, and `up` waits for those that run before it removes nodes; "
        f"the next `up` continues to wait where this one gave up{detail}",
        show_jobs(nodes),
    )


@rule(Effect.REPLACE, Effect.REFUSED)
def kubernetes(edit: Edit) -> Impact:
    """Kubernetes' minor version."""
    old, new = (int(version.partition(".")[2]) for version in (edit.old, edit.new))
    if new < old:
        return Refuse("Kubernetes can't go back to an earlier version: put it back", command="put it back")
    if new > old + 1:
        return Refuse(
            f"Kubernetes is upgraded one minor version at a time: write 1.{old + 1} first",
            command=f'write version: "1.{old + 1}", then ./hpc up {{stack}}',
        )
    return _recreate_all(edit, "the control plane is upgraded, then every node is recreated")


@rule(Effect.REPLACE, Effect.REFUSED)
def soperator(edit: Edit) -> Impact:
    """Soperator's version, with other images of all pods."""
    if versions.parse(edit.new) < versions.parse(edit.old):
        return Refuse("Soperator can't go back to an earlier version: put it back", command="put it back")
    return _recreate_all(edit, "all pods are recreated with other images")


@rule(Effect.NOTHING, Effect.REPLACE)
def driver(edit: Edit) -> Impact:
    """NVIDIA's driver on nodes with GPUs."""
    return _recreate(edit, NoEffect("no node has it"))


_REPLACED = "what is in the one that nodes have now would be gone from the cluster: put it back"


@rule(Effect.NOTHING, Effect.REFUSED)
def filesystem_size(edit: Edit) -> Impact:
    """GiB of a file system that the stack created."""
    if edit.new < edit.old:
        return Refuse("it can grow, but not shrink: put it back", command=f"write {edit.old}")
    return _keeps_backups(edit, "it grows while it is used")


@rule(Effect.NOTHING, Effect.REFUSED)
def backups(edit: Edit) -> Impact:
    """Whether the jail is backed up."""
    return _keeps_backups(edit, "holds for the next backup")


def _keeps_backups(edit: Edit, reason: str) -> Impact:
    """Refuse an edit that ends backups, whose bucket would be emptied and deleted."""
    configs = (edit.before, edit.after)
    before, after = (backs_up(settings_of(config)) for config in configs)
    if before and not after and not all(config.deletion_protection for config in configs):
        return Refuse(
            "the bucket would be deleted with every backup in it: put it back, or set deletion_protection first, in an "
            "`up` of its own, to keep it at Nebius",
            command="write deletion_protection: true",
        )
    return NoEffect(reason)


@rule(Effect.REFUSED)
def filesystem(edit: Edit) -> Impact:
    """Another file system in place of the present one."""
    what = {"jail": "users, home folders and software", "controller_spool": "jobs and Slurm's state"}
    whose = what.get(edit.path[2], "job records" if edit.path[2] == "accounting" else "")
    return Refuse(f"{whose}: {_REPLACED}" if whose else _REPLACED, command="put it back")


@rule(Effect.REPLACE, Effect.REFUSED)
def submount(edit: Edit) -> Impact:
    """A submount is added or removed: nodes have file systems from their creation on."""
    if edit.new is None and edit.old.spec is not None and not edit.after.deletion_protection:
        return Refuse(
            "the file system would be deleted with every file in it: put it back, or set deletion_protection to keep "
            "it at Nebius",
            command="write deletion_protection: true",
        )
    impact = everything(edit)
    reason = impact.reason if impact else ""
    if edit.new is None:
        reason = f"{edit.old.mount} is gone from the jail, and the file system stays at Nebius; {reason}"
    return Replace(reason, impact.command if impact else "")


@rule(Effect.REPLACE)
def mount(edit: Edit) -> Impact:
    """A submount at another place: pods are recreated, nodes stay."""
    return Replace(
        f"pods are recreated with it at {edit.new}: Slurm nodes take no new jobs, and `up` waits until their jobs have "
        "ended; sessions on login pods end",
        show_jobs(_recreated_nodes(edit)),
    )


_FILESYSTEMS = ("jail", "controller_spool", "accounting", "submounts.*")
TABLE: Mapping[str, Impact | ImpactRule] = {
    "nebius": Refuse("everything that the stack created is there, with its data"),
    "controller.machine_type": controller,
    "controller.disk": controller,
    "login.machine_type": login,
    "login.disk": login,
    "nodesets.*": nodeset,
    "nodesets.*.count": count,
    "nodesets.*.machine_type": recreated,
    "nodesets.*.disk": recreated,
    "nodesets.*.capacity": recreated,
    "monitoring": NoEffect("charts of metrics and logs come or go, with what they have kept; Slurm and jobs run on"),
    "slurm.version": NoEffect("it says what nebius.soperator.version decides"),
    "nebius.kubernetes.version": kubernetes,
    "nebius.soperator.version": soperator,
    **{f"nebius.filesystems.{name}.spec": filesystem for name in _FILESYSTEMS},
    **{f"nebius.filesystems.{name}.spec.size_gib": filesystem_size for name in _FILESYSTEMS},
    **{f"nebius.filesystems.{name}.existing": filesystem for name in _FILESYSTEMS},
    "nebius.filesystems.submounts.*": submount,
    "nebius.filesystems.submounts.*.mount": mount,
    "nebius.system.machine_type": services,
    "nebius.system.disk_gib": services,
    "nebius.accounting.machine_type": services,
    "nebius.accounting.disk_gib": services,
    "nebius.workers": recreated,
    "nebius.workers.*.nodes_per_group": nodes_per_group,
    "nebius.login.service": address,
    "nebius.login.exposure": address,
    "nebius.gpu": driver,
    "nebius.backups.enabled": backups,
}
"""Impacts by pattern of the field: the impact of a pattern also holds for the fields below it that have none."""
