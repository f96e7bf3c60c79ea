"""The impact on users, groups, accounts and QOS."""

from cluster import people
from cluster.config.impact import Effect, Impact, NoEffect, Refuse, Restart
from cluster.impact.edits import Edit
from cluster.impact.rule import rule

_PREEMPTION = Restart(
    "slurmctld restarts as the first QOS preempts another, or the last one no longer does; jobs of a QOS that is "
    "preempted may be stopped from then on"
)


@rule(Effect.NOTHING)
def user(edit: Edit) -> Impact:
    """A user who came or went."""
    if edit.old is None:
        return NoEffect("the user is created on every machine; nobody else is affected")
    return NoEffect(
        "the account goes and sessions end, the home folder stays; while there are jobs, `up` fails before any change",
        f"./hpc ssh {{stack}} controller -- scancel --user={edit.name}",
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def gid(edit: Edit) -> Impact:
    old, new = (
        next(user.primary_gid for user in config.users if user.name == edit.name)
        for config in (edit.before, edit.after)
    )
    if old == new:
        return NoEffect("the group's number stays")
    return Refuse(f"files of {edit.name} and running jobs belong to the number {old}: put it back")


@rule(Effect.NOTHING, Effect.REFUSED)
def group(edit: Edit) -> Impact:
    """A Unix group that came or went, or its number."""
    if edit.old is None or edit.new is None:
        return NoEffect("created on, or removed from, every machine; files keep their numbers")
    return Refuse(f"files of the group belong to the number {edit.old}: put it back")


@rule(Effect.NOTHING)
def account(edit: Edit) -> Impact:
    """An account that came or went."""
    if edit.old is None:
        return NoEffect("known to the database from then on")
    return NoEffect(
        "job records stay; sacctmgr refuses while jobs are charged to it, and `up` fails then",
        f"./hpc ssh {{stack}} controller -- squeue --account={edit.name}",
    )


@rule(Effect.NOTHING, Effect.RESTART)
def preempt(edit: Edit) -> Impact:
    """What a QOS may preempt."""
    if people.preempts(edit.before) != people.preempts(edit.after):
        return _PREEMPTION
    return NoEffect("Slurm's database takes it over; jobs of the QOS named may be stopped then")


@rule(Effect.NOTHING, Effect.RESTART)
def qos(edit: Edit) -> Impact:
    """A QOS that came or went."""
    if people.preempts(edit.before) != people.preempts(edit.after):
        return _PREEMPTION
    if edit.old is None:
        return NoEffect("known to the database from then on")
    return NoEffect(
        "jobs that run with it run on; those that wait with it never start, so move them first",
        f"./hpc ssh {{stack}} controller -- squeue --qos={edit.name}",
    )
