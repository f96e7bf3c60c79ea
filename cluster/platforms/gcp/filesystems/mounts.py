"""Which file systems a machine on Google Cloud mounts, where, and with which options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cluster.roster import controller_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.config.cluster import ClusterConfig
    from cluster.config.storage import Bucket
    from cluster.roster import MachineSpec

Kind = Literal["controller", "lustre", "filestore", "bucket"]

EXPORTS = ("/home", "/opt/apps")
"""What the controller shares from its state disk, where nothing else is mounted there."""

LOCAL_SSDS = "/mnt/localssd"
"""Where machines that have local SSDs have them, as one RAID; anybody may write there, and nothing there is kept."""
LOCAL_SSDS_UNIT = "hpc-localssd.service"
"""What mounts them at each boot (scripts/image/50-localssd.sh)."""

NFS = "hard,noatime,_netdev"
"""A server that is away is waited for: a job that was told of an error would lose what it wrote."""
LUSTRE = "flock,noatime,_netdev"
"""flock: locks hold between machines, which HDF5, SQLite and package managers on /home rely on."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One file system on one machine. Where it comes from is known once its servers are."""

    kind: Kind
    target: str
    fs_type: str
    options: str
    source: str | None = None
    """What is known beforehand: the controller's export, the bucket."""


def targets(config: ClusterConfig) -> tuple[str, ...]:
    """Every directory that machines share, parents first; on local, those of `storage.shared`."""
    if config.platform != "gcp":
        return config.storage.shared
    return _parents_first({*EXPORTS, *_own(config)})


def exports(config: ClusterConfig) -> tuple[str, ...]:
    """What the controller shares by NFS: of /home and /opt/apps, where nothing else is mounted."""
    return tuple(path for path in EXPORTS if path not in _own(config))


def mounts(config: ClusterConfig, spec: MachineSpec) -> tuple[Mount, ...]:
    """What a machine mounts, parents first. The controller has its own exports without."""
    found: list[Mount] = []
    if "controller" not in spec.roles:
        found += [
            Mount(
                kind="controller",
                target=path,
                fs_type="nfs",
                options=NFS,
                source=f"{controller_name(config)}:{path}",
            )
            for path in exports(config)
        ]
    storage = config.storage
    if storage.lustre:
        found.append(Mount(kind="lustre", target=storage.lustre.mount, fs_type="lustre", options=LUSTRE))
    if storage.filestore:
        found.append(Mount(kind="filestore", target=storage.filestore.mount, fs_type="nfs", options=NFS))
    found += [
        Mount(kind="bucket", target=one.mount, fs_type="gcsfuse", options=gcsfuse_options(one, spec), source=one.name)
        for one in storage.buckets
    ]
    order = _parents_first({one.target for one in found})
    return tuple(sorted(found, key=lambda one: order.index(one.target)))


def gcsfuse_options(bucket: Bucket, spec: MachineSpec) -> str:
    """How a bucket is mounted; the names are GCS FUSE's flags as mount(8) passes them.

    Names of objects are folders and files to everybody (allow_other, implicit_dirs). Attributes are kept for a minute,
    and for an hour where nobody writes here; a node keeps those of all objects, which takes memory. A node with local
    SSDs keeps there what it has read, fetches large files in parallel and gathers what it writes; elsewhere a cache
    would fill the boot disk.
    """
    options = ["_netdev", "noatime", "allow_other", "implicit_dirs"]
    node = spec.roles == ("node",)
    options += ["stat_cache_max_size_mb=-1"] if node else []
    if bucket.read_only:
        options += ["ro", "dir_mode=555", "file_mode=444", "metadata_cache_ttl_secs=3600"]
        options += ["kernel_list_cache_ttl_secs=60"]
    else:
        options += ["rw", "dir_mode=777", "file_mode=777", "metadata_cache_ttl_secs=60"]
    if bucket.cache and spec.machine_type.family.local_ssds and node:
        options += [
            f"x-systemd.requires={LOCAL_SSDS_UNIT}",
            f"cache_dir={LOCAL_SSDS}/gcsfuse/{bucket.name}",
            f"temp_dir={LOCAL_SSDS}",
            "file_cache_max_size_mb=-1",
            "file_cache_cache_file_for_range_read=true",
            "file_cache_enable_parallel_downloads=true",
            "file_cache_parallel_downloads_per_file=16",
            "file_cache_download_chunk_size_mb=50",
        ]
    return ",".join(options)


def _own(config: ClusterConfig) -> set[str]:
    """Where file systems other than the controller's exports are mounted."""
    storage = config.storage
    sections = (storage.lustre, storage.filestore, *storage.buckets)
    return {section.mount for section in sections if section}


def _parents_first(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(paths, key=lambda path: (path.count("/"), path)))
