"""Impacts of edits that differ on Google Cloud, and those of fields that only Google Cloud has."""

from collections.abc import Mapping
from contextlib import suppress

from cluster import roster
from cluster.catalog import MACHINE_TYPES
from cluster.catalog.fabrics import FABRICS
from cluster.catalog.storage import FILESTORE, MANAGED, grows_to
from cluster.config.cluster import ClusterConfig
from cluster.config.impact_annotations import Effect, Impact, NoEffect, Refuse, Replace
from cluster.config.nodesets import Nodeset
from cluster.config.storage import AT_BOOT, DELETES_DISKS, Targets
from cluster.edits import Edit, ImpactRule, rule
from cluster.findings import ConfigError
from cluster.impact import rules
from cluster.impact.rules import (
    ALL_RECREATED,
    end_sessions,
    recreate_controller,
    recreate_nodes,
    release,
    unless_moved,
)
from cluster.platforms.gcp import disks
from cluster.platforms.gcp.capacity import machine_scheduling, node_scheduling
from cluster.platforms.gcp.filesystems.registry import EXPORTS, servers
from cluster.platforms.gcp.image import bakes, boots_from, parts
from cluster.platforms.gcp.names import place

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


@rule(Effect.REPLACE, Effect.REFUSED)
def zone(edit: Edit) -> Impact:
    """Return the impact of a swap of the two zones of the state disk; any other edit of them is refused."""
    zones = disks.state_zones(edit.after)
    if len(zones) == 1 or zones != disks.state_zones(edit.before):
        return Refuse(
            "the state disk would be another one, and Slurm's state, job records and home folders are on the one that "
            "there is: put it back. With `controller.state_disk.replica_zone`, that zone and gcp:zone can be swapped"
        )
    lustre, filestore = edit.before.storage.lustre, edit.before.storage.filestore
    if (lustre and lustre.existing is None) or (filestore and filestore.tier != "REGIONAL"):
        return Refuse("Lustre, and a Filestore that is not REGIONAL, are in one zone with every file: put it back")
    return Replace(
        f"{ALL_RECREATED} in {place(edit.after).zone}: jobs end, and are requeued from Slurm's state. {RECORDS_STAY}"
    )


@rule(Effect.NOTHING, Effect.REPLACE)
def login_type(edit: Edit) -> Impact:
    """Return the impact of another type of the login machines: they are stopped and started, and keep their disks."""
    kept = _kept_logins(edit)
    return end_sessions(kept, "is stopped and started") if kept else NoEffect("there are no login machines")


def _kept_logins(edit: Edit) -> list[str]:
    after = {machine.name for machine in roster.machines(edit.after) if machine.roles == ("login",)}
    return [
        machine.name
        for machine in roster.machines(edit.before)
        if machine.roles == ("login",) and machine.name in after
    ]


def _boot_disk(config: ClusterConfig, role: str) -> tuple[str, int]:
    section = getattr(config, role)
    return disks.boot(section.disk, role, MACHINE_TYPES[section.machine_type or config.controller.machine_type])


@unless_moved
@rule(Effect.NOTHING, Effect.REPLACE, Effect.REFUSED)
def node_machine(edit: Edit) -> Impact:
    """Return the impact of another capacity or boot disk of a nodeset's machines."""
    old, new = edit.before.nodesets[edit.name], edit.after.nodesets[edit.name]
    if old.elastic and new.elastic and _distances(old) - _distances(new):
        return Refuse(
            "the placement would be deleted, which elastic nodes that run are in: first lower max to "
            f"{old.static or 1}, so that they leave, then write the new capacity",
            command="./hpc up {stack}",
        )
    if old.elastic and any(way.flex for way in old.ways) and not any(way.flex for way in new.ways):
        return Refuse(
            "the template would be deleted, which groups of flex start refer to: first lower max to "
            f"{old.static or 1}, so that their nodes leave, then write the new capacity",
            command="./hpc up {stack}",
        )
    was, now = roster.nodeset_type(edit.before, old), roster.nodeset_type(edit.after, new)
    same = disks.boot(old.disk, "node", was) == disks.boot(new.disk, "node", now)
    if same and len({node_scheduling(section.ways[0], migrates=True) for section in (old, new)}) == 1:
        return _SAME if old.ways == new.ways else NoEffect("elastic nodes are asked for in these ways from then on")
    return recreate_nodes(edit)


def _distances(section: Nodeset) -> set[int]:
    """Return the distances of a nodeset's placements. There is one policy for each."""
    return {way.placement.max_distance for way in section.ways if way.placement}


@rule(Effect.NOTHING, Effect.REPLACE)
def role_machine(edit: Edit) -> Impact:
    """Return the impact of another capacity or boot disk of the controller or of login machines."""
    role = edit.path[0]
    boots = {_boot_disk(config, role) for config in (edit.before, edit.after)}
    options = {
        machine_scheduling(getattr(config, role).capacity, migrates=True) for config in (edit.before, edit.after)
    }
    if len(boots) == len(options) == 1:
        return _SAME
    if role == "controller":
        return recreate_controller(edit, RECORDS_STAY)
    kept = _kept_logins(edit)
    return end_sessions(kept, "is recreated") if kept else _SAME


@rule(Effect.NOTHING, Effect.REFUSED)
def boot_size(edit: Edit) -> Impact:
    """Return the impact of another size of the boot disk of the controller or of login machines."""
    role = edit.path[0]
    before, after = getattr(edit.before, role), getattr(edit.after, role)
    (old_type, old), (new_type, new) = _boot_disk(edit.before, role), _boot_disk(edit.after, role)
    if new == old or getattr(before, "on", None) or getattr(after, "on", None):
        return _SAME
    if old_type != new_type:
        return NoEffect("the machine is recreated with the other type of disk, at this size")
    if new < old:
        return Refuse("a disk can grow, but not shrink: put it back")
    return NoEffect("the disk grows at once, its file system at the machine's next boot")


@rule(Effect.NOTHING, Effect.REPLACE, Effect.REFUSED)
def metrics_machine(edit: Edit) -> Impact:
    """Return the impact of another type or boot disk of the machine of Prometheus."""
    (old, disk_before), (_, disk_after) = (
        (spec, disks.boot_disk(config, spec))
        for config in (edit.before, edit.after)
        for spec in roster.machines(config)
        if spec.roles == ("monitoring",)
    )
    meanwhile = "nothing is collected meanwhile; Slurm and jobs are not affected"
    if disk_before[0] != disk_after[0]:
        return Replace(f"{old.name} is recreated, and its metrics go with its disk; {meanwhile}")
    if edit.path[-1] == "machine_type":
        return Replace(f"{old.name} is stopped, and started as the other type; {meanwhile}")
    if disk_after[1] < disk_before[1]:
        return Refuse("a disk can grow, but not shrink: put it back")
    return (
        _SAME
        if disk_after == disk_before
        else NoEffect("the disk grows at once, its file system at the machine's next boot")
    )


_MOUNT_AGAIN = "./hpc ssh {stack} MACHINE -- reboot"


@rule(Effect.REPLACE, Effect.REFUSED)
def lustre(edit: Edit) -> Impact:
    """Return the impact of a Lustre file system that is added or removed."""
    if edit.new is None and edit.old.existing is None:
        return Refuse("the file system would be deleted with every file in it: put it back")
    if edit.new is None:
        how = f"{ALL_RECREATED} from an image without the client; the file system stays as it is"
        return _recreate_all(edit, how) if bakes(edit.after) else Replace(how)
    how = f"{ALL_RECREATED} from an image with the file system's client"
    return _hides_export(edit.new.mount) or (_recreate_all(edit, how) if bakes(edit.after) else Replace(how))


@rule(Effect.NOTHING, Effect.REFUSED)
def filestore(edit: Edit) -> Impact:
    """Return the impact of a Filestore share that is added or removed."""
    if edit.new is None:
        return Refuse("the share would be deleted with every file in it: put it back")
    return _hides_export(edit.new.mount) or NoEffect(f"machines mount {edit.new.mount} while they run")


@rule(Effect.NOTHING, Effect.REFUSED)
def nfs(edit: Edit) -> Impact:
    """Return the impact of other directories of NFS servers, or other mount points. Their files never change."""
    new = {directory.mount for directory in edit.new} - {directory.mount for directory in edit.old}
    return next(filter(None, map(_hides_export, sorted(new))), AT_BOOT)


def _hides_export(mount: str) -> Impact | None:
    """Return a refusal of a mount point at which the controller exports a folder, which has files by now."""
    if mount not in EXPORTS:
        return None
    return Refuse(
        f"what is in {mount} now is on the controller's state disk, and nobody would see it any more: mount "
        "the new one elsewhere",
        command="write another directory, e.g. `mount: /share`",
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def managed_size(edit: Edit) -> Impact:
    """Return the impact of another capacity of a Managed Lustre file system, which stays in its range."""
    lustre = edit.before.storage.lustre
    most = grows_to(MANAGED.get(lustre.throughput, ()), edit.old) if lustre else 0
    if most and edit.new > most:
        return Refuse(
            f"a file system of {edit.old} GiB can grow to {most}: a larger one would be another, without its files",
            command=f"write {most} at most",
        )
    return _growth(edit)


def _growth(edit: Edit) -> Impact:
    if edit.new < edit.old:
        return Refuse("it can grow, but not shrink: put it back")
    return NoEffect("it grows while it is used")


@rule(Effect.NOTHING, Effect.REFUSED)
def share_size(edit: Edit) -> Impact:
    """Return the impact of another capacity of a Filestore share, which stays in its range."""
    share = edit.after.storage.filestore
    most = grows_to(FILESTORE[share.tier], edit.old) if share else 0
    if most and edit.new > most:
        return Refuse(
            f"a share of {edit.old} GB can grow to {most}: a larger one would be another share, without its files",
            command=f"write {most} at most",
        )
    return _growth(edit)


@rule(Effect.NOTHING)
def bucket_mount(edit: Edit) -> Impact:
    """Return the impact of a bucket that is added, removed or mounted elsewhere. The bucket itself never changes."""
    if edit.old is None:
        return NoEffect(f"machines mount {edit.name} while they run, nodes within a minute")
    return NoEffect(f"machines follow at their next boot; what is in {edit.name} stays as it is", _MOUNT_AGAIN)


@rule(Effect.NOTHING, Effect.REFUSED)
def state_disk(edit: Edit) -> Impact:
    """Return the impact of another size of the state disk."""
    old, new = (disks.state_disk(config)[1] for config in (edit.before, edit.after))
    if new < old:
        return Refuse("a disk can't shrink: put it back, or write the size that it has")
    if new == old:
        return NoEffect("that is the size which the disk has")
    return NoEffect(
        "the disk grows at once, its file system when the controller is next set up, or by this command after `up`",
        "./hpc ssh {stack} controller -- resize2fs /dev/disk/by-id/google-hpc-state",
    )


def _kind(edit: Edit) -> str:
    """Return the kind of Lustre server that is edited: mgs, mds or oss."""
    return edit.path[2]


def _targets(config: ClusterConfig, edit: Edit) -> Targets:
    return getattr(getattr(config.storage.lustre, _kind(edit)), edit.path[3])


@rule(Effect.REPLACE)
def server_type(edit: Edit) -> Impact:
    names = [server.name for server in servers(edit.after) if server.kind == _kind(edit)]
    return Replace(
        f"{', '.join(names[:4])}{' ...' if names[4:] else ''} stop, and start as the other type with their disks; "
        "jobs run on, and wait meanwhile for files of Lustre"
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def server_count(edit: Edit) -> Impact:
    if edit.new < edit.old:
        return Refuse("the disks of the servers that go would be deleted with every file on them: put it back")
    if _kind(edit) == "mds":
        return NoEffect("new servers register and old ones stay; files go there in folders made with `lfs mkdir -c`")
    return NoEffect("new servers register and old ones stay; files that are there stay where they are")


@rule(Effect.NOTHING, Effect.REFUSED)
def target_size(edit: Edit) -> Impact:
    if edit.new < edit.old:
        return Refuse("disks can't shrink, and would be deleted with every file on them: put it back")
    return NoEffect("the disks grow at once; Lustre uses it when the targets on them are grown (resize2fs, unmounted)")


@rule(Effect.REFUSED)
def target_count(edit: Edit) -> Impact:
    if edit.new < edit.old:
        return Refuse("the disks that go would be deleted with every file on them: put it back")
    return Refuse(
        "targets are numbered through all servers, and those of the disks that stay would get other numbers: put it "
        "back, and raise the servers' `count`"
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def target_rate(edit: Edit) -> Impact:
    """Return the impact of other provisioned operations, or MB/s, of each disk."""
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


@rule(Effect.NOTHING, Effect.REPLACE)
def image_system(edit: Edit) -> Impact:
    """Return the impact of a change of the image's content."""
    with suppress(ConfigError):
        if boots_from(edit.before) == boots_from(edit.after):
            return NoEffect("machines that are created from then on have it; no machine is recreated")
    return _recreate_all(edit)


@rule(Effect.NOTHING, Effect.REPLACE)
def image_recipe(edit: Edit) -> Impact:
    if edit.after.image.name:
        return NoEffect("it says which driver the image has that is named; no machine is recreated")
    return _recreate_all(edit)


@rule(Effect.NOTHING, Effect.REPLACE)
def image_snapshot(edit: Edit) -> Impact:
    if not bakes(edit.after):
        return NoEffect("machines that are created from then on install from it; those that run update themselves")
    return _recreate_all(edit, f"the image gets the packages of another day: {ALL_RECREATED}")


def or_image(otherwise: ImpactRule) -> ImpactRule:
    """Return a rule for fields that may change the software in the image that the stack bakes; else `otherwise`."""

    def find(edit: Edit) -> Impact | None:
        if not bakes(edit.before) or not bakes(edit.after):
            return otherwise(edit)
        before, after = (parts(config) for config in (edit.before, edit.after))
        buckets = edit.pattern.startswith("storage.buckets")
        changes = {_TITLES[name] for name in before if before[name] != after[name] and (name == "gcsfuse") == buckets}
        if not changes:
            return otherwise(edit)
        return _recreate_all(edit, f"the image gets other software ({', '.join(sorted(changes))}), and {ALL_RECREATED}")

    return ImpactRule(find, tuple(dict.fromkeys((*otherwise.possible, Effect.REPLACE))))


_TITLES = {
    "gpus": "GPU driver",
    "local_ssds": "local SSDs",
    "monitoring": "Prometheus",
    "gpu_metrics": "dcgm-exporter",
    "gcsfuse": "GCS FUSE",
    **{fabric.key: fabric.short for fabric in FABRICS},
}
"""Titles of the parts of an image."""


def _recreate_all(edit: Edit, how: str = ALL_RECREATED) -> Impact:
    return rules.recreate_all(edit, RECORDS_STAY, how)


image_base = release(_recreate_all)
bucket = or_image(bucket_mount)

_TARGETS = ("mgs.mgt", "mgs.mnt", "mds.mdt", "oss.ost")
"""Disks of EXAScaler's servers."""
TABLE: Mapping[str, Impact | ImpactRule] = {
    "gcp": Refuse("everything that the stack created is there, with its data"),
    "gcp.zone": zone,
    "image": image_system,
    "image.base": image_base,
    "monitoring": image_system,
    "monitoring.machine.machine_type": metrics_machine,
    "monitoring.machine.disk": metrics_machine,
    "controller.machine_type": controller_type,
    "controller.disk": role_machine,
    "controller.disk.size_gb": boot_size,
    "controller.capacity": role_machine,
    "controller.state_disk.replica_zone": zone,
    "controller.state_disk.type": Refuse("Slurm's state, job records and home folders are on it: put it back"),
    "controller.state_disk.size_gb": state_disk,
    "login.machine_type": login_type,
    "login.disk": role_machine,
    "login.disk.size_gb": boot_size,
    "login.capacity": role_machine,
    "nodesets.*": or_image(rules.nodeset),
    "nodesets.*.machine_type": or_image(node_type),
    "nodesets.*.gpus": or_image(node_type),
    "nodesets.*.gpus.count": node_type,
    "nodesets.*.disk": node_machine,
    "nodesets.*.capacity": node_machine,
    "image.recipe": image_recipe,
    "image.snapshot": image_snapshot,
    "storage.lustre": lustre,
    "storage.lustre.fsname": fsname,
    "storage.lustre.size_gib": managed_size,
    **{f"storage.lustre.{server}.machine_type": server_type for server in ("mgs", "mds", "oss")},
    **{f"storage.lustre.{server}.count": server_count for server in ("mds", "oss")},
    **{f"storage.lustre.{target}.size_gb": target_size for target in _TARGETS},
    **{f"storage.lustre.{target}.count": target_count for target in _TARGETS},
    **{f"storage.lustre.{target}.{rate}": target_rate for target in _TARGETS for rate in ("iops", "mbps")},
    "storage.filestore": filestore,
    "storage.filestore.size_gb": share_size,
    "storage.nfs": nfs,
    "storage.buckets.*": bucket,
    "storage.buckets.*.mount": bucket_mount,
    "storage.buckets.*.read_only": bucket_mount,
    "storage.buckets.*.cache": bucket_mount,
}
"""Impacts by pattern of the field: the impact of a pattern also holds for the fields below it that have none."""
