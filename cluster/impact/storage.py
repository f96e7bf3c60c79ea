"""What becomes of file systems and disks, and of what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.impact.impact import Consequence, Effect, nothing, refused, replace
from cluster.impact.rule import among
from cluster.platforms.gcp import disks
from cluster.platforms.gcp.filesystems.mounts import EXPORTS

if TYPE_CHECKING:
    from cluster.impact.edits import Edit

_MOUNT_AGAIN = "./hpc ssh {stack} MACHINE -- reboot"


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


@among(Effect.REPLACE, Effect.REFUSED)
def lustre(edit: Edit) -> Consequence:
    """A Lustre file system that came or went."""
    if edit.new is None:
        return refused("the file system would be deleted with every file in it: put it back")
    return _hidden(edit) or replace(
        "every machine is made anew from an image with the file system's client, nodes when their jobs have ended"
    )


@among(Effect.NOTHING, Effect.REFUSED)
def filestore(edit: Edit) -> Consequence:
    """A Filestore share that came or went."""
    if edit.new is None:
        return refused("the share would be deleted with every file in it: put it back")
    return _hidden(edit) or nothing(f"machines mount {edit.new.mount} while they run")


def _hidden(edit: Edit) -> Consequence | None:
    """A file system in the place of one that the controller shares, and that has files in it by now."""
    if edit.new.mount not in EXPORTS:
        return None
    return refused(
        f"what is in {edit.new.mount} now is on the controller's state disk, and nobody would see it any more: mount "
        "the new one elsewhere",
        "write another directory, e.g. `mount: /share`",
    )


@among(Effect.NOTHING, Effect.REFUSED)
def capacity(edit: Edit) -> Consequence:
    """Capacity of a file system that can grow while it is used."""
    if edit.new < edit.old:
        return refused("it can grow, but not shrink: put it back")
    return nothing("it grows while it is used")


@among(Effect.NOTHING)
def bucket(edit: Edit) -> Consequence:
    """A bucket that came or went, or that is mounted otherwise; the bucket itself is never changed."""
    if edit.old is None:
        return nothing(f"machines mount {edit.name} while they run, nodes within a minute")
    return nothing(f"machines follow at their next boot; what is in {edit.name} stays as it is", _MOUNT_AGAIN)


@among(Effect.NOTHING, Effect.REFUSED)
def state_disk(edit: Edit) -> Consequence:
    """Size of the disk with Slurm's state and the records: written, or the default."""
    old, new = (disks.state_disk(config)[1] for config in (edit.before, edit.after))
    if new < old:
        return refused("a disk can't shrink: put it back, or write the size that it has")
    if new == old:
        return nothing("that is the size which the disk has")
    return nothing(
        "the disk grows at once, its file system when the controller is next set up, or by this command after `up`",
        "./hpc ssh {stack} controller -- resize2fs /dev/disk/by-id/google-hpc-state",
    )
