"""What becomes of the servers and disks of an EXAScaler file system. What the provider changes in place, and what it
makes anew, a test holds against the provider's own schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.impact.impact import Consequence, Effect, nothing, refused, replace
from cluster.impact.rule import among
from cluster.platforms.gcp.filesystems.exascaler import servers

if TYPE_CHECKING:
    from cluster.config.cluster import ClusterConfig
    from cluster.config.lustre import Targets
    from cluster.impact.edits import Edit

DISKS = refused("the disks would be deleted with every file on them: put it back")


def _kind(edit: Edit) -> str:
    """mgs, mds or oss."""
    return edit.path[2]


def _targets(config: ClusterConfig, edit: Edit) -> Targets:
    """The disks that an edit is about."""
    return getattr(getattr(config.storage.lustre, _kind(edit)), edit.path[3])


@among(Effect.REPLACE)
def machine_type(edit: Edit) -> Consequence:
    """Another type of servers."""
    theirs = [server.name for server in servers(edit.after) if server.kind == _kind(edit)]
    return replace(
        f"{', '.join(theirs[:4])}{' ...' if theirs[4:] else ''} stop, and start as the other type with their disks; "
        "jobs run on, and wait meanwhile for files of Lustre"
    )


@among(Effect.NOTHING, Effect.REFUSED)
def count(edit: Edit) -> Consequence:
    """More servers, or fewer."""
    if edit.new < edit.old:
        return refused("the disks of the servers that go would be deleted with every file on them: put it back")
    if _kind(edit) == "mds":
        return nothing("new servers register and old ones stay; files go there in folders made with `lfs mkdir -c`")
    return nothing("new servers register and old ones stay; files that are there stay where they are")


@among(Effect.NOTHING, Effect.REFUSED)
def size(edit: Edit) -> Consequence:
    """Size of each disk."""
    if edit.new < edit.old:
        return refused("disks can't shrink, and would be deleted with every file on them: put it back")
    return nothing("the disks grow at once; Lustre uses it when the targets on them are grown (resize2fs, unmounted)")


@among(Effect.REFUSED)
def targets(edit: Edit) -> Consequence:
    """Disks of each server."""
    if edit.new < edit.old:
        return refused("the disks that go would be deleted with every file on them: put it back")
    return refused(
        "targets are numbered through all servers, and those of the disks that stay would get other numbers: put it "
        "back, and raise the servers' `count`"
    )


@among(Effect.NOTHING, Effect.REFUSED)
def rate(edit: Edit) -> Consequence:
    """Provisioned operations, or MB/s, of each disk."""
    if edit.new is None:
        return nothing("the disks keep the rate that they have")
    if edit.path[-1] == "mbps" or _targets(edit.after, edit).type.startswith("hyperdisk"):
        return nothing("the disks change while they are used; Google allows it once in four hours")
    return DISKS


@among(Effect.REFUSED)
def fsname(edit: Edit) -> Consequence:
    """Name of the file system in Lustre."""
    lustre = edit.before.storage.lustre
    if lustre is not None and lustre.kind == "managed":
        return refused("the file system would be deleted with every file in it: put it back")
    return refused("the targets on the servers' disks carry the name: put it back")
