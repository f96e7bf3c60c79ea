"""The impact of another machine type, capacity or boot disk on the machines."""

from cluster import roster
from cluster.catalog import MACHINE_TYPES
from cluster.config.cluster import ClusterConfig
from cluster.config.impact import Effect, Impact, NoEffect, Refuse
from cluster.impact.edits import Edit, rule
from cluster.impact.rules import end_sessions, recreate_controller, recreate_nodes, unless_moved
from cluster.platforms.gcp import disks
from cluster.platforms.gcp.capacity import of_machine, of_nodes

RECORDS_STAY = (
    "Slurm's state, job records, /opt/apps and home folders are on its state disk and stay; jobs on other machines run "
    "on, and wait for files that are there"
)
_SAME = NoEffect("that is their default")


@unless_moved
@rule(Effect.REPLACE)
def node_type(edit: Edit) -> Impact:
    return recreate_nodes(edit)


@rule(Effect.REPLACE)
def controller_type(edit: Edit) -> Impact:
    return recreate_controller(edit, RECORDS_STAY, "the controller is stopped, and started as the other type")


@rule(Effect.NOTHING, Effect.REPLACE)
def login_type(edit: Edit) -> Impact:
    """The login machines' type: they are stopped and started, and keep their disks."""
    kept = _kept_logins(edit)
    return end_sessions(kept, "is stopped and started") if kept else NoEffect("there are no login machines")


def _kept_logins(edit: Edit) -> list[str]:
    """Names of the login machines that are there before and after."""
    after = {machine.name for machine in roster.machines(edit.after) if machine.roles == ("login",)}
    return [
        machine.name
        for machine in roster.machines(edit.before)
        if machine.roles == ("login",) and machine.name in after
    ]


def _boot(config: ClusterConfig, role: str) -> tuple[str, int]:
    """Boot disk of the controller or of login machines."""
    section = getattr(config, role)
    return disks.boot(section.disk, role, MACHINE_TYPES[section.machine_type or config.controller.machine_type])


@unless_moved
@rule(Effect.NOTHING, Effect.REPLACE)
def node(edit: Edit) -> Impact:
    """Capacity or boot disk of a nodeset's machines."""
    old, new = edit.before.nodesets[edit.name], edit.after.nodesets[edit.name]
    was, now = roster.nodeset_type(edit.before, old), roster.nodeset_type(edit.after, new)
    same = disks.boot(old.disk, "node", was) == disks.boot(new.disk, "node", now)
    if same and of_nodes(old.capacity) == of_nodes(new.capacity):
        return _SAME
    return recreate_nodes(edit)


@rule(Effect.NOTHING, Effect.REPLACE)
def controller(edit: Edit) -> Impact:
    """Capacity or boot disk of the controller."""
    old, new = edit.before.controller, edit.after.controller
    same = _boot(edit.before, "controller") == _boot(edit.after, "controller")
    if same and of_machine(old.capacity) == of_machine(new.capacity):
        return _SAME
    return recreate_controller(edit, RECORDS_STAY)


@rule(Effect.NOTHING, Effect.REPLACE)
def login(edit: Edit) -> Impact:
    """Capacity or boot disk of the login machines."""
    old, new = edit.before.login, edit.after.login
    kept = _kept_logins(edit)
    same = _boot(edit.before, "login") == _boot(edit.after, "login")
    if not kept or (same and of_machine(old.capacity) == of_machine(new.capacity)):
        return _SAME
    return end_sessions(kept, "is recreated")


@rule(Effect.NOTHING, Effect.REFUSED)
def boot_size(edit: Edit) -> Impact:
    """Size of the boot disk of the controller or of login machines: written, or the default."""
    role = edit.path[0]
    before, after = getattr(edit.before, role), getattr(edit.after, role)
    (old_type, old), (new_type, new) = _boot(edit.before, role), _boot(edit.after, role)
    if new == old or getattr(before, "on", None) or getattr(after, "on", None):
        return _SAME
    if old_type != new_type:
        return NoEffect("the machine is recreated with the other type of disk, at this size")
    if new < old:
        return Refuse("a disk can grow, but not shrink: put it back")
    return NoEffect("the disk grows at once, its file system at the machine's next boot")
