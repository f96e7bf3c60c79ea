"""The impact on shared file systems, and on what is in them."""

from cluster.config.impact import Effect, Impact, NoEffect, Refuse, Replace
from cluster.impact.edits import Edit
from cluster.impact.machines import show_jobs
from cluster.impact.rule import rule
from cluster.platforms.nebius.impact import nodes
from cluster.platforms.nebius.impact.nodes import settings_of

BLOCK = Refuse(
    "a block size is for ever: the file system would be deleted with every file in it, and created again: put it back",
    command="put it back",
)
_OTHER = "what is in the one that nodes have now would be gone from the cluster: put it back"


@rule(Effect.NOTHING, Effect.REFUSED)
def size(edit: Edit) -> Impact:
    """GiB of a file system that the stack created."""
    if edit.new < edit.old:
        return Refuse("it can grow, but not shrink: put it back", command=f"write {edit.old}")
    return NoEffect("it grows while it is used")


@rule(Effect.REFUSED)
def other(edit: Edit) -> Impact:
    """A file system in the place of another one."""
    what = {"jail": "users, home folders and software", "controller_spool": "jobs and Slurm's state"}
    whose = what.get(edit.path[2], "job records" if edit.path[2] == "accounting" else "")
    return Refuse(f"{whose}: {_OTHER}" if whose else _OTHER, command="put it back")


@rule(Effect.REPLACE, Effect.REFUSED)
def submount(edit: Edit) -> Impact:
    """A submount that came or went: nodes have file systems from their creation on."""
    if edit.new is None and edit.old.spec is not None and not edit.after.deletion_protection:
        return Refuse(
            "the file system would be deleted with every file in it: put it back, or set deletion_protection to keep "
            "it at Nebius",
            command="write deletion_protection: true",
        )
    found = nodes.everything(edit)
    reason = found.reason if found else ""
    if edit.new is None:
        reason = f"{edit.old.mount} is gone from the jail, and the file system stays at Nebius; {reason}"
    return Replace(reason, found.command if found else "")


@rule(Effect.REPLACE)
def mount(edit: Edit) -> Impact:
    """A submount at another place: pods are recreated, nodes stay."""
    every = [name for one in nodes.reshaped(edit) for name in _names(edit, one)]
    return Replace(
        f"pods are recreated with it at {edit.new}: Slurm nodes take no new jobs, and `up` waits until their jobs have "
        "ended; sessions on login pods end",
        show_jobs(every),
    )


def _names(edit: Edit, nodeset: str) -> tuple[str, ...]:
    from_, to = (config.nodesets[nodeset].count for config in (edit.before, edit.after))
    return tuple(f"{nodeset}-{index}" for index in range(min(from_, to)))


@rule(Effect.NOTHING)
def overwrite(edit: Edit) -> Impact:
    """What the jail's file system may be overwritten for: it is populated once."""
    settings_of(edit.after)
    return NoEffect("read when a jail is populated for the first time")
