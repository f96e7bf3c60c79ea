"""The impact of edits on Google Cloud, where it depends on the platform: by pattern of the field."""

from collections.abc import Mapping

from cluster.config.impact import Impact, Refuse
from cluster.impact import rules
from cluster.impact.edits import Rule
from cluster.platforms.gcp.impact import capacity, exascaler, image, storage

_TARGETS = ("mgs.mgt", "mgs.mnt", "mds.mdt", "oss.ost")

TABLE: Mapping[str, Impact | Rule] = {
    "gcp": Refuse("everything that the stack created is there, with its data"),
    "storage.lustre": storage.lustre,
    "storage.lustre.fsname": exascaler.fsname,
    **{f"storage.lustre.{server}.machine_type": exascaler.machine_type for server in ("mgs", "mds", "oss")},
    **{f"storage.lustre.{server}.count": exascaler.count for server in ("mds", "oss")},
    **{f"storage.lustre.{disks}.size_gb": exascaler.size for disks in _TARGETS},
    **{f"storage.lustre.{disks}.count": exascaler.targets for disks in _TARGETS},
    **{f"storage.lustre.{disks}.{key}": exascaler.rate for disks in _TARGETS for key in ("iops", "mbps")},
    "storage.lustre.size_gib": storage.capacity,
    "storage.filestore": storage.filestore,
    "storage.filestore.size_gb": storage.capacity,
    "storage.nfs": storage.nfs,
    "storage.buckets.*": image.or_image(storage.bucket),
    **{f"storage.buckets.*.{key}": storage.bucket for key in ("mount", "read_only", "cache")},
    "image": image.system,
    "image.base": image.base,
    "image.recipe": image.recipe,
    "image.snapshot": image.snapshot,
    "slurm.version": image.slurm,
    "controller.machine_type": capacity.controller_type,
    "controller.disk": capacity.controller,
    "controller.disk.size_gb": capacity.boot_size,
    "controller.capacity": capacity.controller,
    "controller.state_disk.type": Refuse("Slurm's state, job records and home folders are on it: put it back"),
    "controller.state_disk.size_gb": storage.state_disk,
    "login.machine_type": capacity.login_type,
    "login.disk": capacity.login,
    "login.disk.size_gb": capacity.boot_size,
    "login.capacity": capacity.login,
    "nodesets.*": image.or_image(rules.nodeset),
    "nodesets.*.machine_type": image.or_image(capacity.node_type),
    "nodesets.*.gpus": image.or_image(capacity.node_type),
    "nodesets.*.gpus.count": capacity.node_type,
    "nodesets.*.disk": capacity.node,
    "nodesets.*.capacity": capacity.node,
}
"""The impact of a pattern also holds for the fields below it that have none."""
