"""The impact on servers and disks of an EXAScaler file system. A test compares it with the provider's own schema, which
says what is changed in place and what is replaced."""

from cluster.config.cluster import ClusterConfig
from cluster.config.impact import Effect, Impact, NoEffect, Refuse, Replace
from cluster.config.storage import DELETES_DISKS, Targets
from cluster.impact.edits import Edit, rule
from cluster.platforms.gcp.filesystems.registry import servers


def _kind(edit: Edit) -> str:
    """mgs, mds or oss."""
    return edit.path[2]


def _targets(config: ClusterConfig, edit: Edit) -> Targets:
    """The disks that an edit is about."""
    return getattr(getattr(config.storage.lustre, _kind(edit)), edit.path[3])


@rule(Effect.REPLACE)
def machine_type(edit: Edit) -> Impact:
    theirs = [server.name for server in servers(edit.after) if server.kind == _kind(edit)]
    return Replace(
        f"{', '.join(theirs[:4])}{' ...' if theirs[4:] else ''} stop, and start as the other type with their disks; "
        "jobs run on, and wait meanwhile for files of Lustre"
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def count(edit: Edit) -> Impact:
    if edit.new < edit.old:
        return Refuse("the disks of the servers that go would be deleted with every file on them: put it back")
    if _kind(edit) == "mds":
        return NoEffect("new servers register and old ones stay; files go there in folders made with `lfs mkdir -c`")
    return NoEffect("new servers register and old ones stay; files that are there stay where they are")


@rule(Effect.NOTHING, Effect.REFUSED)
def size(edit: Edit) -> Impact:
    if edit.new < edit.old:
        return Refuse("disks can't shrink, and would be deleted with every file on them: put it back")
    return NoEffect("the disks grow at once; Lustre uses it when the targets on them are grown (resize2fs, unmounted)")


@rule(Effect.REFUSED)
def targets(edit: Edit) -> Impact:
    if edit.new < edit.old:
        return Refuse("the disks that go would be deleted with every file on them: put it back")
    return Refuse(
        "targets are numbered through all servers, and those of the disks that stay would get other numbers: put it "
        "back, and raise the servers' `count`"
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def rate(edit: Edit) -> Impact:
    """Provisioned operations, or MB/s, of each disk."""
    if edit.new is None:
        return NoEffect("the disks keep the rate that they have")
    if edit.path[-1] == "mbps" or _targets(edit.after, edit).type.startswith("hyperdisk"):
        return NoEffect("the disks change while they are used; Google allows it once in four hours")
    return DELETES_DISKS


@rule(Effect.REFUSED)
def fsname(edit: Edit) -> Impact:
    lustre = edit.before.storage.lustre
    if lustre is not None and lustre.kind == "managed":
        return Refuse("the file system would be deleted with every file in it: put it back")
    return Refuse("the targets on the servers' disks carry the name: put it back")
