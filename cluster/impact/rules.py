"""Impacts that depend on the edit, on all platforms: the table `RULES`, at the end, has the function of each field. The
impact of every other edit is an annotation of its field in cluster/config."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cluster import people, platform_interface, roster
from cluster.catalog import IMAGES
from cluster.catalog.slurm_releases import CONF, NODE, UPGRADES, takes_over, upgrade_path
from cluster.config.impact_annotations import Drain, Effect, Impact, NoEffect, Reconfigure, Refuse, Replace, Restart
from cluster.edits import Edit, ImpactRule, rule
from cluster.findings import listing
from scripts.node.slurm import hostlist
from scripts.node.slurm.conf_changes import FOLLOWS_RECONFIGURE

SHAPE = ("CPUs", "Boards", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")
"""Parameters of a NodeName line that running jobs are tied to: slurmctld ends those whose node has others when it
starts (job_resources.c, valid_job_resources), so the set-up empties the node first
(scripts/node/jobs/drain_leaving.py)."""


@rule(Effect.RESTART, Effect.DRAIN)
def nodeset(edit: Edit) -> Impact:
    """Return the impact of adding or removing a nodeset."""
    if edit.old is None:
        return Restart("its nodes join; slurmctld restarts to know them, and jobs elsewhere run on")
    return _remove_nodes(roster.node_names(edit.before, edit.name))


@rule(Effect.RESTART, Effect.DRAIN)
def count(edit: Edit) -> Impact:
    """Return the impact of another number of nodes, static or elastic."""
    old, new = (roster.node_names(config, edit.name) for config in (edit.before, edit.after))
    if is_moved(edit):
        return _remove_nodes(old)
    old_elastic, new_elastic = (roster.elastic_names(config, edit.name) for config in (edit.before, edit.after))
    if to_static := roster.newly_static(edit.before, edit.after, edit.name):
        return Drain(
            f"{names(to_static)} becomes static: no new jobs start there, `./hpc up` waits for those that run, has the "
            "machine that Slurm asked for deleted, and creates one that stays",
            show_jobs(to_static),
        )
    if to_elastic := [name for name in old if name in new_elastic and name not in old_elastic]:
        return Drain(
            f"{names(to_elastic)} becomes elastic: no new jobs start there, `up` waits for those that run before it "
            "removes the machine, and Slurm has it created again when jobs need it",
            show_jobs(to_elastic),
        )
    if len(new) < len(old):
        return _remove_nodes(old[len(new) :])
    joins = f"{names(new[len(old) :])} joins" if len(new) > len(old) else f"{names(new)} is as before"
    return Restart(f"{joins}; slurmctld restarts to know it, and jobs elsewhere run on")


@rule(Effect.DRAIN)
def nodes_on(edit: Edit) -> Impact:
    """Return the impact of moving a nodeset to the controller, or away from it."""
    return _remove_nodes(roster.node_names(edit.before, edit.name))


@rule(Effect.RESTART, Effect.DRAIN)
def node_conf(edit: Edit) -> Impact:
    """Return the impact of a parameter of a NodeName line."""
    if NODE.canonical(edit.path[-1]) in SHAPE:
        return reshape_nodes(roster.node_names(edit.after, edit.name))
    return Restart("slurmctld and the nodeset's slurmd restart; jobs run on")


@rule(Effect.RECONFIGURE, Effect.DRAIN)
def partition(edit: Edit) -> Impact:
    """Return the impact of adding or removing a partition."""
    if edit.old is None:
        return Reconfigure("jobs can be sent there from then on")
    return Drain(
        "it takes no new jobs, and `up` waits until those that run or wait there are gone; else Slurm would end them",
        f"./hpc run {{stack}} -- squeue --partition={edit.name}",
    )


@rule(Effect.RECONFIGURE, Effect.RESTART)
def extra(edit: Edit) -> Impact:
    """Return the impact of a parameter of slurm.conf: whether a reconfigure is enough."""
    name = CONF.canonical(edit.path[-1]) or edit.path[-1]
    if name.lower() in FOLLOWS_RECONFIGURE:
        return Reconfigure(f"{name} follows `scontrol reconfigure`")
    return Restart(f"{name} is read when slurmctld starts; jobs run on")


@rule(Effect.NOTHING, Effect.REPLACE)
def logins(edit: Edit) -> Impact:
    """Return the impact of adding or removing login machines."""
    old, new = (
        {machine.name for machine in roster.machines(config) if "login" in machine.roles}
        for config in (edit.before, edit.after)
    )
    if removed := sorted(old - new):
        return end_sessions(removed, "is removed")
    return NoEffect("jobs and people who are logged in are left alone")


@rule(Effect.NOTHING, Effect.REPLACE)
def monitoring_machine(edit: Edit) -> Impact:
    """Return the impact of adding or removing the machine of Prometheus."""
    old, new = map(roster.monitoring_name, (edit.before, edit.after))
    moves = f"Prometheus and Alertmanager move from {old} to {new}"
    begins = f"they begin there without metrics, and what {old} has of them is deleted; Slurm and jobs are not affected"
    if edit.new is None:
        return Replace(f"{moves}, and {old} is removed: {begins}")
    return NoEffect(f"{moves}, a new machine: {begins}")


def unless_moved(then: ImpactRule) -> ImpactRule:
    """Return the rule `then`, but with the impact of `nodes_on` if the nodeset moves to or from the controller."""
    possible = dict.fromkeys((*then.possible, Effect.DRAIN))
    return ImpactRule(lambda edit: nodes_on(edit) if is_moved(edit) else then(edit), tuple(possible))


def is_moved(edit: Edit) -> bool:
    """Return whether the nodeset of the edit moves to the controller, or away from it."""
    return edit.before.nodesets[edit.name].on != edit.after.nodesets[edit.name].on


def _remove_nodes(nodes: tuple[str, ...]) -> Impact:
    """Return the impact on nodes that leave the cluster."""
    return Drain(
        f"{names(nodes)} leaves: no new jobs start there, and `up` waits for those that run before it removes the "
        "machine",
        show_jobs(nodes),
    )


def reshape_nodes(nodes: tuple[str, ...]) -> Impact:
    """Return the impact on nodes that get another size in Slurm."""
    return Drain(
        f"{names(nodes)} gets other sockets, cores, threads or GPUs: Slurm would end jobs there, so `up` lets them "
        "finish first and starts no new ones",
        show_jobs(nodes),
    )


def recreate_nodes(edit: Edit) -> Impact:
    """Return the impact on the remaining nodes of a nodeset whose machines can't be changed in place."""
    after = roster.node_names(edit.after, edit.name)
    nodes = tuple(name for name in roster.node_names(edit.before, edit.name) if name in after)
    elastic = {*roster.elastic_names(edit.before, edit.name), *roster.elastic_names(edit.after, edit.name)}
    static = [name for name in nodes if name not in elastic]
    text = (
        f"{names(static)} is recreated, a part of each partition at a time; a node takes no new jobs from its turn on, "
        "and its jobs finish before it goes"
    )
    later = (
        "elastic nodes have it from their next start on; where their size in Slurm changes, those that run are powered "
        "down when their jobs have ended"
    )
    return Replace("; ".join([*([text] if static else []), *([later] if elastic else [])]), show_jobs(nodes))


def end_sessions(logins: list[str], how: str) -> Impact:
    """Return the impact on login machines that end the sessions of their users."""
    return Replace(
        f"{names(logins)} {how}: sessions there end, with the interactive jobs (srun, salloc) begun in them; batch "
        "jobs run on",
        f"./hpc ssh {{stack}} {logins[0]} -- who",
    )


def names(machines: Iterable[str]) -> str:
    """Return names of machines as a host list of Slurm: lab-cpu-[0-3]."""
    return hostlist.compress(machines)


def show_jobs(nodes: Iterable[str]) -> str:
    """Return the command that shows the jobs on nodes."""
    return f"./hpc ssh {{stack}} controller -- squeue --nodelist='{names(nodes)}'"


def recreate_controller(edit: Edit, stays: str, how: str = "the controller is recreated") -> Impact:
    """Return the impact of replacing the controller's machine; `stays` says what is kept."""
    hosted = any(section.on for section in edit.before.nodesets.values())
    return Replace(f"{how}: {stays}" + ("; jobs on the controller itself end" if hosted else ""))


ALL_RECREATED = "every machine is recreated"
_REST = (
    "Then nodes are recreated, a part of each partition at a time, each when its jobs have ended, and the login "
    "machines last, where sessions end"
)


def recreate_all(edit: Edit, stays: str, how: str) -> Impact:
    """Return the impact of another image on every machine, in the order of cluster/impact/upgrade.py."""
    return _in_three_steps(edit, stays, f"{how}, in three steps: the controller first")


def _in_three_steps(edit: Edit, stays: str, how: str) -> Impact:
    controller = recreate_controller(edit, stays, f"{how}, and Slurm's commands fail meanwhile")
    return replace(controller, reason=f"{controller.reason}. {_REST}", by_image=True)


def release(recreate: Callable[[Edit], Impact]) -> ImpactRule:
    """Return the rule for another release of Slurm, or a system that may have one: refused, an upgrade, or what
    `recreate` returns where the release stays the same."""
    possible = (Effect.NOTHING, Effect.REPLACE, Effect.REFUSED)
    return ImpactRule(lambda edit: _refused_release(edit) or _upgrade(edit) or recreate(edit), possible)


def _upgrade(edit: Edit) -> Impact | None:
    """Return the impact of an upgrade that Slurm allows; None if the release stays the same."""
    old, new = edit.before.slurm_version, edit.after.slurm_version
    if old == new:
        return None
    return _in_three_steps(
        edit,
        "the accounting database is dumped, slurmdbd converts it, and slurmctld takes over the queue and the jobs that "
        "run on other machines; if one of them fails, both are put back",
        f"Slurm goes from {old} to {new}, which Slurm allows, in three steps: the controller is recreated",
    )


slurm_release = release(lambda _: NoEffect("it is the release that the image has anyway"))


def _refused_release(edit: Edit) -> Impact | None:
    """Return the refusal of a release that can't take over from the old one: slurmdbd would not start on its
    database."""
    old, new = edit.before.slurm_version, edit.after.slurm_version
    if takes_over(new, old):
        return None
    back = f"put Slurm {old} back, or give up job records and the queue"
    steps = upgrade_path(old, new)
    if not steps:
        return Refuse(f"Slurm can't go back: {new} does not read the database and the state of {old}: {back}")
    images = {
        release: image.name
        for image in IMAGES.values()
        if image.name in platform_interface.get(edit.after.platform).images
        for release in image.slurm_versions
    }
    between = steps[1:-1]
    path = f"Slurm {new} takes over from {listing(UPGRADES[new])} only: the way from {old} is {' -> '.join(steps)}"
    if missing := [release for release in between if release not in images]:
        return Refuse(f"{path}, and no image of platform {edit.after.platform} has {listing(missing)}: {back}")
    first = f'`image: {{base: {images[between[0]]}}}`, `slurm: {{version: "{between[0]}"}}`'
    return Refuse(f"{path}; begin with {first}", command="./hpc up {stack}")


_PREEMPTION = Restart(
    "slurmctld restarts as the first QOS preempts another, or the last one no longer does; jobs of a QOS that is "
    "preempted may be stopped from then on"
)


@rule(Effect.NOTHING)
def user(edit: Edit) -> Impact:
    """Return the impact of adding or removing a user."""
    if edit.old is None:
        return NoEffect("the user is created on every machine; nobody else is affected")
    return NoEffect(
        "the account goes and sessions end, the home folder stays; while there are jobs, `up` fails before any change",
        f"./hpc ssh {{stack}} controller -- scancel --user={edit.name}",
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def gid(edit: Edit) -> Impact:
    """Return the impact of another primary group of a user."""
    old, new = (
        next(user.primary_gid for user in config.users if user.name == edit.name)
        for config in (edit.before, edit.after)
    )
    if old == new:
        return NoEffect("the group's number stays")
    return Refuse(f"files of {edit.name} and running jobs belong to the number {old}: put it back")


@rule(Effect.NOTHING, Effect.REFUSED)
def group(edit: Edit) -> Impact:
    """Return the impact of adding or removing a Unix group, or of another gid."""
    if edit.old is None or edit.new is None:
        return NoEffect("created on, or removed from, every machine; files keep their numbers")
    return Refuse(f"files of the group belong to the number {edit.old}: put it back")


@rule(Effect.NOTHING)
def account(edit: Edit) -> Impact:
    """Return the impact of adding or removing an account."""
    if edit.old is None:
        return NoEffect("known to the database from then on")
    return NoEffect(
        "job records stay; sacctmgr refuses while jobs are charged to it, and `up` fails then",
        f"./hpc ssh {{stack}} controller -- squeue --account={edit.name}",
    )


@rule(Effect.NOTHING, Effect.RESTART)
def preempt(edit: Edit) -> Impact:
    """Return the impact of another list of QOS that a QOS may preempt."""
    if people.preempts(edit.before) != people.preempts(edit.after):
        return _PREEMPTION
    return NoEffect("Slurm's database takes it over; jobs of the QOS named may be stopped then")


@rule(Effect.NOTHING, Effect.RESTART)
def qos(edit: Edit) -> Impact:
    """Return the impact of adding or removing a QOS."""
    if people.preempts(edit.before) != people.preempts(edit.after):
        return _PREEMPTION
    if edit.old is None:
        return NoEffect("known to the database from then on")
    return NoEffect(
        "jobs that run with it run on; those that wait with it never start, so move them first",
        f"./hpc ssh {{stack}} controller -- squeue --qos={edit.name}",
    )


RULES: Mapping[str, ImpactRule] = {
    "login.on": logins,
    "login.count": logins,
    "nodesets.*": nodeset,
    "nodesets.*.on": nodes_on,
    "nodesets.*.count": count,
    "nodesets.*.node_conf": node_conf,
    "partitions.*": partition,
    "groups": group,
    "users.*": user,
    "users.*.gid": gid,
    "accounting.accounts.*": account,
    "accounting.qos.*": qos,
    "accounting.qos.*.preempt": preempt,
    "slurm.version": slurm_release,
    "slurm.extra": extra,
    "monitoring.machine": monitoring_machine,
}
"""Rules by the pattern of the field. That of a member (`partitions.*`) is for adding and removing it, and its fields do
not inherit it; a rule of another field also holds for fields below it that have none. A platform's own comes first."""
