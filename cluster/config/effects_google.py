"""What changing each field that only Google Cloud knows does to running jobs: a part of the table of effects."""

from collections.abc import Mapping

from cluster.config.consequence import Consequence, nothing, refused
from cluster.config.verdicts import asking, image, storage
from cluster.config.verdicts.verdict import Verdict

_PLACE = refused("everything that the stack made is there, with its data")
_NETWORK = refused("machines and file systems are known by their addresses in it")
_LUSTRE = refused("the file system would be deleted with every file in it, and made anew: put it back")
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
    **dict.fromkeys(
        (
            f"storage.lustre.{key}"
            for key in (
                "kind", "fsname", "image", "throughput", "mgs.machine_type", "mds.machine_type", "mds.count",
                "oss.machine_type", "oss.count",
                *(
                    f"{disks}.{key}"
                    for disks in ("mgs.mgt", "mgs.mnt", "mds.mdt", "oss.ost")
                    for key in ("type", "size_gb", "count", "iops", "mbps")
                ),
            )
        ),
        _LUSTRE,
    ),
    "storage.lustre.mount": refused("jobs, and links between files, know the file system by its place: put it back"),
    "storage.lustre.size_gib": storage.capacity,
    "storage.filestore": storage.filestore,
    "storage.filestore.mount": refused("jobs, and links between files, know the share by its place: put it back"),
    "storage.filestore.tier": refused("the share would be deleted with every file in it, and made anew: put it back"),
    "storage.filestore.size_gb": storage.capacity,
    "storage.buckets.*": image.or_image(storage.bucket),
    **{f"storage.buckets.*.{key}": storage.bucket for key in ("mount", "read_only", "cache")},
    "image.bake": image.system,
    "image.name": image.system,
    "image.provision.*": image.system,
    **{f"image.provision.*.{key}": image.system for key in ("file", "url", "text", "sha256")},
    **{f"image.builder.{key}": _BUILDER for key in ("machine_type", "minutes")},
    "image.builder.size_gb": image.system,
    "controller.disk.type": asking.controller,
    "controller.disk.size_gb": asking.controller,
    "controller.capacity": asking.controller,
    "controller.state_disk.type": refused("Slurm's state, job records and home folders are on it: put it back"),
    "controller.state_disk.size_gb": storage.state_disk,
    "login.disk.type": asking.login,
    "login.disk.size_gb": asking.login,
    "login.capacity": asking.login,
    "login.public": nothing("addresses come or go while the machines run; sessions through them end"),
    "nodesets.*.disk.type": asking.node,
    "nodesets.*.disk.size_gb": asking.node,
    "nodesets.*.capacity": asking.node,
}  # fmt: skip
"""By pattern, as `cluster.config.effects.TABLE`, which takes it in."""
