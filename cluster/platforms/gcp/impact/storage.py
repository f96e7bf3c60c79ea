"""The impact on file systems and disks, and on what is in them."""

from cluster.config.impact import Effect, Impact, NoEffect, Refuse, Replace
from cluster.config.storage import AT_BOOT
from cluster.impact.edits import Edit, rule
from cluster.platforms.gcp import disks
from cluster.platforms.gcp.filesystems.mounts import EXPORTS

_MOUNT_AGAIN = "./hpc ssh {stack} MACHINE -- reboot"


@rule(Effect.REPLACE, Effect.REFUSED)
def lustre(edit: Edit) -> Impact:
    """A Lustre file system that came or went."""
    if edit.new is None and edit.old.existing is None:
        return Refuse("the file system would be deleted with every file in it: put it back")
    if edit.new is None:
        return Replace("every machine is recreated from an image without the client; the file system stays as it is")
    return _hidden(edit.new.mount) or Replace(
        "every machine is recreated from an image with the file system's client, nodes when their jobs have ended"
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def filestore(edit: Edit) -> Impact:
    """A Filestore share that came or went."""
    if edit.new is None:
        return Refuse("the share would be deleted with every file in it: put it back")
    return _hidden(edit.new.mount) or NoEffect(f"machines mount {edit.new.mount} while they run")


@rule(Effect.NOTHING, Effect.REFUSED)
def nfs(edit: Edit) -> Impact:
    """Directories of NFS servers that came or went, or are mounted otherwise; what is in them is never changed."""
    new = {one.mount for one in edit.new} - {one.mount for one in edit.old}
    return next(filter(None, map(_hidden, sorted(new))), AT_BOOT)


def _hidden(mount: str) -> Impact | None:
    """A file system in the place of one that the controller shares, and that has files in it by now."""
    if mount not in EXPORTS:
        return None
    return Refuse(
        f"what is in {mount} now is on the controller's state disk, and nobody would see it any more: mount "
        "the new one elsewhere",
        command="write another directory, e.g. `mount: /share`",
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def capacity(edit: Edit) -> Impact:
    """Capacity of a file system that can grow while it is used."""
    if edit.new < edit.old:
        return Refuse("it can grow, but not shrink: put it back")
    return NoEffect("it grows while it is used")


@rule(Effect.NOTHING)
def bucket(edit: Edit) -> Impact:
    """A bucket that came or went, or that is mounted otherwise; the bucket itself is never changed."""
    if edit.old is None:
        return NoEffect(f"machines mount {edit.name} while they run, nodes within a minute")
    return NoEffect(f"machines follow at their next boot; what is in {edit.name} stays as it is", _MOUNT_AGAIN)


@rule(Effect.NOTHING, Effect.REFUSED)
def state_disk(edit: Edit) -> Impact:
    """Size of the disk with Slurm's state and the records: written, or the default."""
    old, new = (disks.state_disk(config)[1] for config in (edit.before, edit.after))
    if new < old:
        return Refuse("a disk can't shrink: put it back, or write the size that it has")
    if new == old:
        return NoEffect("that is the size which the disk has")
    return NoEffect(
        "the disk grows at once, its file system when the controller is next set up, or by this command after `up`",
        "./hpc ssh {stack} controller -- resize2fs /dev/disk/by-id/google-hpc-state",
    )
