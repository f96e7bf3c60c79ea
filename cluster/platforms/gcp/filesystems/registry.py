"""The kinds of file systems on Google Cloud: one line for each."""

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.base import FileSystem, Server
from cluster.platforms.gcp.filesystems.buckets import Buckets
from cluster.platforms.gcp.filesystems.exascaler import Exascaler
from cluster.platforms.gcp.filesystems.existing import ExistingLustre, Nfs
from cluster.platforms.gcp.filesystems.filestore import Filestore
from cluster.platforms.gcp.filesystems.managed import Managed

KINDS: list[type[FileSystem]] = [Exascaler, Managed, ExistingLustre, Filestore, Nfs, Buckets]


def file_systems(config: ClusterConfig) -> list[FileSystem]:
    """The file systems of a stack, but for the controller's own exports (mounts.py)."""
    return [kind(config) for kind in KINDS if kind.used(config)]


def servers(config: ClusterConfig) -> list[Server]:
    return [server for file_system in file_systems(config) for server in file_system.servers()]


def peered(config: ClusterConfig) -> bool:
    """Whether something that the stack uses is reached by private service access."""
    return any(file_system.peered for file_system in file_systems(config))


def lustre_client(config: ClusterConfig) -> str:
    """Kind of Lustre client that machines need, as the recipes call it: exascaler, managed or none."""
    return next((file_system.client for file_system in file_systems(config) if file_system.client), "none")
