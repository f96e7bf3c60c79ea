"""The kinds of file systems on Google Cloud, one line for each, and what a machine mounts."""

from collections.abc import Iterable

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.base import NFS, FileSystem, Mount, Server
from cluster.platforms.gcp.filesystems.buckets import Buckets
from cluster.platforms.gcp.filesystems.exascaler import Exascaler
from cluster.platforms.gcp.filesystems.lustre import ExistingLustre, Managed
from cluster.platforms.gcp.filesystems.nfs import Filestore, Nfs
from cluster.roster import MachineSpec, controller_name

KINDS: list[type[FileSystem]] = [Exascaler, Managed, ExistingLustre, Filestore, Nfs, Buckets]


def file_systems(config: ClusterConfig) -> list[FileSystem]:
    """The file systems of a stack, but for the controller's own exports."""
    return [kind(config) for kind in KINDS if kind.used(config)]


def servers(config: ClusterConfig) -> list[Server]:
    return [server for file_system in file_systems(config) for server in file_system.servers()]


def peered(config: ClusterConfig) -> bool:
    """Return whether something that the stack uses is reached by private service access."""
    return any(file_system.peered for file_system in file_systems(config))


def lustre_client(config: ClusterConfig) -> str:
    """Kind of Lustre client that machines need, as the recipes call it: exascaler, managed or none."""
    return next((file_system.client for file_system in file_systems(config) if file_system.client), "none")


EXPORTS = ("/home", "/opt/apps")
"""Folders that the controller shares from its state disk, where nothing else is mounted there."""


def targets(config: ClusterConfig) -> tuple[str, ...]:
    """Every directory that machines share, parents first; on local machines, those that the file names."""
    return config.storage.shared or _parents_first({*EXPORTS, *_own(config)})


def exports(config: ClusterConfig) -> tuple[str, ...]:
    """Return what the controller shares by NFS: of /home and /opt/apps, where nothing else is mounted."""
    return tuple(path for path in EXPORTS if path not in _own(config))


def mounts(config: ClusterConfig, spec: MachineSpec) -> tuple[Mount, ...]:
    """Return what a machine mounts, parents first. The controller has its own exports without."""
    controller = controller_name(config)
    paths = () if "controller" in spec.roles else exports(config)
    found = [
        Mount(kind="controller", target=path, fs_type="nfs", options=NFS, source=f"{controller}:{path}")
        for path in paths
    ]
    found += [mount for file_system in file_systems(config) for mount in file_system.mounts(spec)]
    order = _parents_first({mount.target for mount in found})
    return tuple(sorted(found, key=lambda mount: order.index(mount.target)))


def _own(config: ClusterConfig) -> set[str]:
    return {place.path for file_system in file_systems(config) for place in file_system.places()}


def _parents_first(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(paths, key=lambda path: (path.count("/"), path)))
