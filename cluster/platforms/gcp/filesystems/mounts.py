"""What a machine on Google Cloud mounts, and what the controller exports where nothing else is mounted."""

from collections.abc import Iterable

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.base import NFS, Mount
from cluster.platforms.gcp.filesystems.registry import file_systems
from cluster.roster import MachineSpec, controller_name

EXPORTS = ("/home", "/opt/apps")
"""What the controller shares from its state disk, where nothing else is mounted there."""


def targets(config: ClusterConfig) -> tuple[str, ...]:
    """Every directory that machines share, parents first; on local machines, those that the file names."""
    return config.storage.shared or _parents_first({*EXPORTS, *_own(config)})


def exports(config: ClusterConfig) -> tuple[str, ...]:
    """What the controller shares by NFS: of /home and /opt/apps, where nothing else is mounted."""
    return tuple(path for path in EXPORTS if path not in _own(config))


def mounts(config: ClusterConfig, spec: MachineSpec) -> tuple[Mount, ...]:
    """What a machine mounts, parents first. The controller has its own exports without."""
    controller = controller_name(config)
    paths = () if "controller" in spec.roles else exports(config)
    found = [
        Mount(kind="controller", target=path, fs_type="nfs", options=NFS, source=f"{controller}:{path}")
        for path in paths
    ]
    found += [mount for file_system in file_systems(config) for mount in file_system.mounts(spec)]
    order = _parents_first({one.target for one in found})
    return tuple(sorted(found, key=lambda one: order.index(one.target)))


def _own(config: ClusterConfig) -> set[str]:
    """Where file systems other than the controller's exports are mounted."""
    return {place.path for file_system in file_systems(config) for place in file_system.places()}


def _parents_first(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(paths, key=lambda path: (path.count("/"), path)))
