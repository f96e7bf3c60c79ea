"""What becomes of machines that a cloud is asked for in another way, or with another boot disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster import roster
from cluster.impact import machines
from cluster.impact.impact import Consequence, Effect, nothing, refused
from cluster.impact.rule import among, controller_anew
from cluster.platforms.gcp import disks
from cluster.platforms.gcp.capacity import of_machine, of_nodes

if TYPE_CHECKING:
    from cluster.impact.edits import Edit

_SAME = nothing("that is what they have without a word")


@among(Effect.NOTHING, Effect.DRAIN, Effect.REPLACE)
def node(edit: Edit) -> Consequence:
    """Capacity or boot disk of a nodeset's machines."""
    old, new = edit.before.nodesets[edit.name], edit.after.nodesets[edit.name]
    if old.on != new.on:
        return machines.nodes_on(edit)
    if of_nodes(old.capacity) == of_nodes(new.capacity) and disks.boot(old.disk, "node") == disks.boot(
        new.disk, "node"
    ):
        return _SAME
    return machines.nodes_anew(machines.staying(edit))


@among(Effect.NOTHING, Effect.REPLACE)
def controller(edit: Edit) -> Consequence:
    """Capacity or boot disk of the controller."""
    old, new = edit.before.controller, edit.after.controller
    if of_machine(old.capacity) == of_machine(new.capacity) and (
        disks.boot(old.disk, "controller") == disks.boot(new.disk, "controller")
    ):
        return _SAME
    return controller_anew(edit)


@among(Effect.NOTHING, Effect.REPLACE)
def login(edit: Edit) -> Consequence:
    """Capacity or boot disk of the login machines."""
    old, new = edit.before.login, edit.after.login
    after = {one.name for one in roster.machines(edit.after)}
    anew = [one.name for one in roster.machines(edit.before) if one.roles == ("login",) and one.name in after]
    same = disks.boot(old.disk, "login") == disks.boot(new.disk, "login")
    if not anew or (same and of_machine(old.capacity) == of_machine(new.capacity)):
        return _SAME
    return machines.logins_go(anew, "is made anew")


@among(Effect.NOTHING, Effect.REFUSED)
def boot_size(edit: Edit) -> Consequence:
    """Size of the boot disk of the controller or of login machines: written, or the default."""
    role = edit.path[0]
    before, after = getattr(edit.before, role), getattr(edit.after, role)
    old, new = disks.boot(before.disk, role)[1], disks.boot(after.disk, role)[1]
    if new == old or getattr(before, "on", None) or getattr(after, "on", None):
        return _SAME
    if disks.boot(before.disk, role)[0] != disks.boot(after.disk, role)[0]:
        return nothing("the machine is made anew with the other type of disk, at this size")
    if new < old:
        return refused("a disk can grow, but not shrink: put it back")
    return nothing("the disk grows at once, its file system at the machine's next boot")
