"""File systems on Google Cloud: what each kind refuses, and mount points that hide nothing."""

from collections.abc import Iterator
from itertools import combinations

from cluster.config.cluster import ClusterConfig
from cluster.config.validators.names import is_within
from cluster.findings import Finding, Location
from cluster.platforms.gcp.filesystems.buckets import LOCAL_SSDS
from cluster.platforms.gcp.filesystems.mounts import EXPORTS
from cluster.platforms.gcp.filesystems.registry import file_systems


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    for file_system in file_systems(config):
        yield from file_system.find_errors()
    yield from _mounts(config)


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    for file_system in file_systems(config):
        yield from file_system.find_warnings()


def _mounts(config: ClusterConfig) -> Iterator[Finding]:
    """If two mount points are the same, or one lies below the other, the finding is about the later one."""
    places = [place for file_system in file_systems(config) for place in file_system.places()]
    for place in places:
        yield from _hides(place.at, place.path, bucket=not place.posix)
    for left, right in combinations(places, 2):
        if is_within(left.path, right.path) or is_within(right.path, left.path):
            yield Finding(
                id="mount-overlap",
                at=(*right.at, "mount"),
                given=right.path,
                allowed=f"a directory apart from all others that are mounted; {left.path} is {left.owner}",
                todo="mount it elsewhere, e.g. /data",
            )


def _hides(place: Location, mount: str, *, bucket: bool) -> Iterator[Finding]:
    """What machines need at a mount point or below it; Lustre and Filestore may take an export's place."""
    for needed in (*EXPORTS, LOCAL_SSDS):
        if mount == needed and not bucket and needed in EXPORTS:
            continue
        if not is_within(needed, mount):
            continue
        if needed == LOCAL_SSDS:
            why = "where nodes have their local SSDs"
        elif bucket:
            why = "which need a file system with owners, locks and renaming"
        else:
            why = "which are a file system of their own"
        yield Finding(
            id="mount-hides",
            at=(*place, "mount"),
            given=mount,
            allowed=f"a directory apart from {needed}, {why}",
            todo=f"mount it elsewhere, e.g. {'/gcs' if bucket else '/lustre'}",
        )
