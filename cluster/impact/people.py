"""What becomes of people: users, groups, accounts and QOS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster import people
from cluster.impact.impact import Consequence, Effect, nothing, refused, restart
from cluster.impact.rule import among

if TYPE_CHECKING:
    from cluster.impact.edits import Edit


_PREEMPTION = restart(
    "slurmctld restarts as the first QOS preempts another, or the last one no longer does; jobs of a QOS that is "
    "preempted may be stopped from then on"
)


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


@among(Effect.NOTHING, Effect.RESTART)
def preempt(edit: Edit) -> Consequence:
    """What a QOS may preempt."""
    if people.preempts(edit.before) != people.preempts(edit.after):
        return _PREEMPTION
    return nothing("Slurm's database takes it over; jobs of the QOS named may be stopped then")


@among(Effect.NOTHING, Effect.RESTART)
def qos(edit: Edit) -> Consequence:
    """A QOS that came or went."""
    if people.preempts(edit.before) != people.preempts(edit.after):
        return _PREEMPTION
    if edit.old is None:
        return nothing("known to the database from then on")
    return nothing(
        "jobs that run with it run on; those that wait with it never start, so move them first",
        f"./hpc ssh {{stack}} controller -- squeue --qos={edit.name}",
    )
