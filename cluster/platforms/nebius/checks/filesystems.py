"""File systems: places that hide nothing, ids that are used once, and a jail that is overwritten only on purpose."""

from collections.abc import Iterator
from itertools import combinations

from cluster.config.cluster import ClusterConfig
from cluster.config.validators.places import is_within
from cluster.findings import Finding, Level, Location, listing
from cluster.platforms.nebius.section import Filesystem, Nebius

HOME = "/home"
IMAGE_STORAGE = "/mnt/image-storage"
"""Where the image disk of each node is."""
_NEEDED = ("/opt/bin", "/opt/soperator", "/usr", "/etc", IMAGE_STORAGE)
"""What the jail itself has, and Soperator's programs need."""
SUPPORT_GIB = 2048
"""GiB above which Nebius's support must allow a file system (nebius-solutions-library, README)."""
BACKUP_GIB = 12 * 1024
"""GiB from which on backups of a jail take too long (nebius-solutions-library, variables.tf)."""


def find_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    jail = settings.filesystems.jail
    if jail.existing and not jail.overwrite_existing:
        yield Finding(
            id="nebius-jail-existing",
            at=("nebius", "filesystems", "jail", "existing"),
            given=jail.existing,
            allowed="an existing file system whose files may be overwritten, said by overwrite_existing: true: "
            "populating the jail writes a whole root file system there",
            todo="write overwrite_existing: true, or mount the file system as a submount",
        )
    if jail.spec and jail.overwrite_existing:
        yield Finding(
            id="nebius-jail-overwrite",
            at=("nebius", "filesystems", "jail", "overwrite_existing"),
            given="true",
            allowed="true with `existing` alone: a file system that the stack creates is empty",
            todo="remove it",
        )
    yield from _twice(settings)
    yield from _mounts(config, settings)


def find_warnings(settings: Nebius) -> Iterator[Finding]:
    large = [
        f"{'.'.join(map(str, at[2:]))} ({one.spec.size_gib} GiB)"
        for at, one in filesystems(settings)
        if one.spec and one.spec.size_gib > SUPPORT_GIB
    ]
    if large:
        yield Finding(
            id="nebius-filesystem-large",
            level=Level.INFO,
            at=("nebius", "filesystems"),
            what=f"Nebius has file systems above {SUPPORT_GIB} GiB on request to its support: {listing(large)}",
            todo="ask the support before `up`, unless that is done",
        )
    jail = settings.filesystems.jail
    if settings.backups.enabled is True and jail.spec and jail.spec.size_gib >= BACKUP_GIB:
        yield Finding(
            id="nebius-backup-size",
            level=Level.WARNING,
            at=("nebius", "backups", "enabled"),
            what=f"a backup of a jail of {jail.spec.size_gib} GiB may not end within a day",
            todo="write auto, and keep data in submounts",
        )


def filesystems(settings: Nebius) -> Iterator[tuple[Location, Filesystem]]:
    """Place in the stack file and section of every shared file system."""
    at, given = ("nebius", "filesystems"), settings.filesystems
    yield (*at, "jail"), given.jail
    yield (*at, "controller_spool"), given.controller_spool
    yield (*at, "accounting"), given.accounting
    for name, one in given.submounts.items():
        yield (*at, "submounts", name), one


def _twice(settings: Nebius) -> Iterator[Finding]:
    seen: dict[str, Location] = {}
    for at, one in filesystems(settings):
        if one.existing is None:
            continue
        if one.existing in seen:
            yield Finding(
                id="nebius-filesystem-twice",
                at=(*at, "existing"),
                given=one.existing,
                allowed=f"a file system of its own; that one is {'.'.join(map(str, seen[one.existing]))}",
                todo="write another id",
            )
        seen.setdefault(one.existing, at)


def _mounts(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    shared: list[tuple[Location, str]] = [
        (("nebius", "filesystems", "submounts", name, "mount"), one.mount)
        for name, one in settings.filesystems.submounts.items()
    ]
    own: dict[str, list[tuple[Location, str]]] = {
        nodeset: [
            (("nebius", "workers", nodeset, "local_disks", name, "mount"), one.mount)
            for name, one in workers.local_disks.items()
        ]
        for nodeset, workers in settings.workers.items()
        if nodeset in config.nodesets
    }
    for at, path in (*shared, *(one for rows in own.values() for one in rows)):
        yield from _place(at, path)
    yield from _overlaps(shared)
    for rows in own.values():
        for left, right in [*((one, other) for one in shared for other in rows), *combinations(rows, 2)]:
            yield from _overlaps([left, right])


def _place(at: Location, path: str) -> Iterator[Finding]:
    if path == HOME:
        yield Finding(
            id="nebius-submount-home",
            at=at,
            given=path,
            allowed="any directory but /home, whose many small files are slow there; the jail itself has them",
            todo="mount it elsewhere, e.g. /data",
        )
    for needed in _NEEDED:
        if is_within(needed, path):
            yield Finding(
                id="nebius-submount-hides",
                at=at,
                given=path,
                allowed=f"a directory apart from {needed}, which the jail needs itself",
                todo="mount it elsewhere, e.g. /data",
            )
            return


def _overlaps(rows: list[tuple[Location, str]]) -> Iterator[Finding]:
    for (_, left), (at, right) in combinations(rows, 2):
        if is_within(left, right) or is_within(right, left):
            yield Finding(
                id="nebius-submount-overlap",
                at=at,
                given=right,
                allowed=f"a directory apart from all others that are mounted; {left} is one",
                todo="mount it elsewhere, e.g. /data",
            )
