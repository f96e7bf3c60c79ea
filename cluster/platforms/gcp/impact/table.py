"""What changing each field that only Google Cloud knows does to running jobs: a part of the table of effects."""

from collections.abc import Mapping

from cluster.impact import image, storage
from cluster.impact.impact import Consequence, nothing, refused
from cluster.impact.rule import Verdict
from cluster.platforms.gcp.impact import capacity, exascaler

_PLACE = refused("everything that the stack made is there, with its data")
_NETWORK = refused("machines and file systems are known by their addresses in it")
_LUSTRE = refused("the file system would be deleted with every file in it, and made anew: put it back")
_TARGETS = ("mgs.mgt", "mgs.mnt", "mds.mdt", "oss.ost")
_BUILDER = nothing("holds when the next image is made")

TABLE: Mapping[str, Consequence | Verdict] = {
    "gcp": _PLACE,
    "gcp.project": _PLACE,
    "gcp.zone": _PLACE,
    "network.gpu_cidr": _NETWORK,
    "network.services_cidr": _NETWORK,
    "network.existing": _NETWORK,
    "network.existing.network": _NETWORK,
    "network.existing.subnetwork": _NETWORK,
    "network.nat": nothing("machines reach the internet from then on, or no longer; the cluster's own network stays"),
    "network.admin_cidrs": nothing("who may reach SSH of the login machines from then on; sessions stay"),
    "storage.lustre": storage.lustre,
    "storage.lustre.kind": _LUSTRE,
    "storage.lustre.throughput": _LUSTRE,
    "storage.lustre.fsname": exascaler.fsname,
    "storage.lustre.image": refused("servers keep the image that they were made from: put it back"),
    **{f"storage.lustre.{server}.machine_type": exascaler.machine_type for server in ("mgs", "mds", "oss")},
    **{f"storage.lustre.{server}.count": exascaler.count for server in ("mds", "oss")},
    **{f"storage.lustre.{disks}.type": exascaler.DISKS for disks in _TARGETS},
    **{f"storage.lustre.{disks}.size_gb": exascaler.size for disks in _TARGETS},
    **{f"storage.lustre.{disks}.count": exascaler.targets for disks in _TARGETS},
    **{f"storage.lustre.{disks}.{key}": exascaler.rate for disks in _TARGETS for key in ("iops", "mbps")},
    "storage.lustre.mount": refused("jobs, and links between files, know the file system by its place: put it back"),
    "storage.lustre.size_gib": storage.capacity,
    "storage.filestore": storage.filestore,
    "storage.filestore.mount": refused("jobs, and links between files, know the share by its place: put it back"),
    "storage.filestore.tier": refused("the share would be deleted with every file in it, and made anew: put it back"),
    "storage.filestore.size_gb": storage.capacity,
    "storage.buckets.*": image.or_image(storage.bucket),
    **{f"storage.buckets.*.{key}": storage.bucket for key in ("mount", "read_only", "cache")},
    "image.bake": image.system,
    "image.recipe": image.recipe,
    "image.snapshot": image.snapshot,
    "image.name": image.system,
    "image.provision.*": image.system,
    **{f"image.provision.*.{key}": image.system for key in ("file", "url", "text", "sha256")},
    **{f"image.builder.{key}": _BUILDER for key in ("machine_type", "minutes")},
    "image.builder.size_gb": image.system,
    "controller.disk.type": capacity.controller,
    "controller.disk.size_gb": capacity.boot_size,
    "controller.capacity": capacity.controller,
    "controller.state_disk.type": refused("Slurm's state, job records and home folders are on it: put it back"),
    "controller.state_disk.size_gb": storage.state_disk,
    "login.disk.type": capacity.login,
    "login.disk.size_gb": capacity.boot_size,
    "login.capacity": capacity.login,
    "login.public": nothing("addresses come or go while the machines run; sessions through them end"),
    "nodesets.*.disk.type": capacity.node,
    "nodesets.*.disk.size_gb": capacity.node,
    "nodesets.*.capacity": capacity.node,
}  # fmt: skip
"""By pattern, as `cluster.impact.table.TABLE`, which takes it in."""
