"""The kinds of file systems on Google Cloud, the file systems of a stack, and the mounts of a machine."""

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.base import NFS, FileServer, FileSystem, MachineMount
from cluster.platforms.gcp.filesystems.buckets import BucketsKind
from cluster.platforms.gcp.filesystems.exascaler import Exascaler
from cluster.platforms.gcp.filesystems.lustre import ExistingLustreKind, Managed
from cluster.platforms.gcp.filesystems.nfs import FilestoreKind, NfsKind
from cluster.roster import MachineSpec, controller_name

KINDS: list[type[FileSystem]] = [Exascaler, Managed, ExistingLustreKind, FilestoreKind, NfsKind, BucketsKind]


def file_systems(config: ClusterConfig) -> list[FileSystem]:
    """Return the file systems of a stack, without the controller's exports."""
    return [kind(config) for kind in KINDS if kind.used(config)]


def servers(config: ClusterConfig) -> list[FileServer]:
    return [server for file_system in file_systems(config) for server in file_system.servers()]


def peered(config: ClusterConfig) -> bool:
    """Return whether a file system of the stack is reached by private service access."""
    return any(file_system.peered for file_system in file_systems(config))


def lustre_client(config: ClusterConfig) -> str:
    """Return the kind of Lustre client that machines need, as the recipes name it: exascaler, managed or none."""
    return next((file_system.client for file_system in file_systems(config) if file_system.client), "none")


EXPORTS = ("/home", "/opt/apps")
"""Folders that the controller exports from its state disk, unless another file system is mounted there."""


def targets(config: ClusterConfig) -> tuple[str, ...]:
    """Return all directories that machines share, parents first; on local machines those that the file names."""
    return config.storage.shared or tuple(sorted({*EXPORTS, *_mount_points(config)}, key=_parents_first))


def exports(config: ClusterConfig) -> tuple[str, ...]:
    """Return the folders that the controller exports by NFS."""
    return tuple(path for path in EXPORTS if path not in _mount_points(config))


def mounts(config: ClusterConfig, spec: MachineSpec) -> tuple[MachineMount, ...]:
    """Return a machine's mounts, parents first. The controller has its exports on its own disk."""
    controller = controller_name(config)
    all_mounts = [
        MachineMount(kind="controller", target=path, fs_type="nfs", options=NFS, source=f"{controller}:{path}")
        for path in (() if "controller" in spec.roles else exports(config))
    ]
    all_mounts += [mount for file_system in file_systems(config) for mount in file_system.mounts(spec)]
    return tuple(sorted(all_mounts, key=lambda mount: _parents_first(mount.target)))


def _mount_points(config: ClusterConfig) -> set[str]:
    return {place.path for file_system in file_systems(config) for place in file_system.places()}


def _parents_first(path: str) -> tuple[int, str]:
    """Return a sort key that puts a directory before those in it."""
    return path.count("/"), path
