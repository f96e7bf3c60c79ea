"""Buckets of Cloud Storage, by GCS FUSE."""

from collections.abc import Iterable, Iterator, Mapping

from cluster.config.cluster import ClusterConfig
from cluster.config.storage import Bucket
from cluster.findings import Finding
from cluster.platforms.gcp.filesystems.base import FileSystem, MachineMount, Place
from cluster.roster import MachineSpec

LOCAL_SSDS = "/mnt/localssd"
"""Mount point of the RAID of a machine's local SSDs. Every user may write there, and its files are not kept."""
LOCAL_SSDS_UNIT = "hpc-localssd.service"
"""The unit that mounts them at each boot (scripts/image/storage/50-localssd.sh)."""


class BucketsKind(FileSystem):
    """Buckets, which exist before the stack and stay after it."""

    key = "buckets"
    component = "components.gcp.filesystems:Buckets"

    @classmethod
    def used(cls, config: ClusterConfig) -> bool:
        return bool(config.storage.buckets)

    def places(self) -> Iterable[Place]:
        return [
            Place(at=("storage", "buckets", index), path=bucket.mount, owner=f"bucket {bucket.name}'s", posix=False)
            for index, bucket in enumerate(self.config.storage.buckets)
        ]

    def mounts(self, spec: MachineSpec) -> Iterable[MachineMount]:
        return [
            MachineMount(
                kind="bucket",
                target=bucket.mount,
                fs_type="gcsfuse",
                options=gcsfuse_options(bucket, spec),
                source=bucket.name,
            )
            for bucket in self.config.storage.buckets
        ]

    def pages(self) -> Mapping[str, str]:
        return {f"bucket {bucket.name}": f"/storage/browser/{bucket.name}" for bucket in self.config.storage.buckets}

    def find_errors(self) -> Iterator[Finding]:
        names = [bucket.name for bucket in self.config.storage.buckets]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Finding(
                    id="bucket-twice",
                    at=("storage", "buckets", index, "name"),
                    given=name,
                    allowed="each bucket once",
                    todo="remove one of the two: what is below a bucket's mount point is all of the bucket",
                )


def gcsfuse_options(bucket: Bucket, spec: MachineSpec) -> str:
    """Return the mount options of a bucket: GCS FUSE's flags as mount(8) passes them.

    All users see objects as files and folders (allow_other, implicit_dirs). Attributes are cached for a minute, and for
    an hour in a read-only mount; a node caches those of all objects, which takes memory. A node with local SSDs caches
    on them the files that it reads, downloads large files in parallel, and stages the files that it writes. On other
    machines a cache would fill the boot disk.
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
