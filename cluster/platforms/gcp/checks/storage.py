"""File systems on Google Cloud: what can be bought, and mount points that hide nothing."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

from cluster.catalog import IMAGES
from cluster.catalog.filesystems import FILESTORE, MANAGED
from cluster.catalog.recipes import RECIPES
from cluster.checks.platform_fields import given, shown
from cluster.findings import Broken, Location, listing
from cluster.platforms.gcp.filesystems.mounts import EXPORTS, LOCAL_SSDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig
    from cluster.config.lustre import Lustre
    from cluster.config.storage import Filestore

KEYS = {"managed": ("mgs", "mds", "oss", "image"), "exascaler": ("size_gib", "throughput")}
"""Keys that each kind of Lustre does not read."""


def broken(config: ClusterConfig) -> Iterator[Broken]:
    """Rules of file systems that do not hold."""
    if config.platform != "gcp":
        return
    if config.storage.lustre:
        yield from _lustre(config.storage.lustre)
        yield from _client(config, config.storage.lustre.kind)
    if config.storage.filestore:
        yield from _filestore(config.storage.filestore)
    yield from _buckets(config)
    yield from _mounts(config)


def _lustre(lustre: Lustre) -> Iterator[Broken]:
    for key in KEYS[lustre.kind]:
        if (value := given(lustre, key)) is not None:
            other = "exascaler" if lustre.kind == "managed" else "managed"
            yield Broken(
                at=("storage", "lustre", key),
                given=shown(value),
                allowed=f"nothing with kind: {lustre.kind}; {key} is for kind: {other}",
                todo=f"remove it, or write `kind: {other}`",
            )
    if lustre.kind != "managed":
        return
    if lustre.throughput not in MANAGED:
        yield Broken(
            at=("storage", "lustre", "throughput"),
            given=str(lustre.throughput),
            allowed=f"MB/s for each TiB that are sold: {listing(map(str, MANAGED))}",
            todo="take one of these",
        )
        return
    sizes = MANAGED[lustre.throughput]
    if lustre.size_gib % sizes.step or not sizes.least <= lustre.size_gib <= sizes.most:
        nearest = max(sizes.least, min(sizes.most, -(-lustre.size_gib // sizes.step) * sizes.step))
        yield Broken(
            at=("storage", "lustre", "size_gib"),
            given=f"{lustre.size_gib}, at {lustre.throughput} MB/s for each TiB",
            allowed=f"{sizes.least} to {sizes.most} in steps of {sizes.step}, at that throughput",
            todo=f"write {nearest}, or take another throughput",
        )


def _client(config: ClusterConfig, kind: str) -> Iterator[Broken]:
    base, version = config.image.base, config.image.recipe
    if (version, base, kind) in RECIPES or "gcp" not in IMAGES[base].platforms:
        return
    bases = [one for of, one, lustre in RECIPES if (of, lustre) == (version, kind)]
    yield Broken(
        at=("image", "base"),
        given=f"{base}, with {kind} Lustre",
        allowed=f"a system for whose kernel there is a client of {kind} Lustre: {listing(bases)}",
        todo=f"write `base: {bases[0]}`, or take storage.lustre out",
    )


def _filestore(filestore: Filestore) -> Iterator[Broken]:
    sizes = FILESTORE[filestore.tier]
    if not sizes.least <= filestore.size_gb <= sizes.most or filestore.size_gb % sizes.step:
        nearest = max(sizes.least, min(sizes.most, -(-filestore.size_gb // sizes.step) * sizes.step))
        yield Broken(
            at=("storage", "filestore", "size_gb"),
            given=f"{filestore.size_gb}, of tier {filestore.tier}",
            allowed=f"{sizes.least} to {sizes.most} in steps of {sizes.step}, of that tier",
            todo=f"write {nearest}, or take another tier",
        )


def _buckets(config: ClusterConfig) -> Iterator[Broken]:
    counted = Counter(bucket.name for bucket in config.storage.buckets)
    seen: set[str] = set()
    for index, bucket in enumerate(config.storage.buckets):
        if bucket.name in seen and counted[bucket.name] > 1:
            yield Broken(
                at=("storage", "buckets", index, "name"),
                given=bucket.name,
                allowed="each bucket once",
                todo="remove one of the two: what is below a bucket's mount point is all of the bucket",
            )
        seen.add(bucket.name)


def _mounts(config: ClusterConfig) -> Iterator[Broken]:
    """Of two mount points that are one, or of which one lies below the other, the later is told of."""
    storage = config.storage
    at: list[tuple[Location, str, str]] = [
        *((("storage", key), section.mount, name) for key, section, name in _shares(config)),
        *(
            (("storage", "buckets", index), bucket.mount, f"bucket {bucket.name}'s")
            for index, bucket in enumerate(storage.buckets)
        ),
    ]
    for place, mount, _ in at:
        yield from _hides(place, mount, bucket="buckets" in place)
    for (_, left, owner), (place, right, _) in combinations(at, 2):
        if _within(left, right) or _within(right, left):
            yield Broken(
                at=(*place, "mount"),
                given=right,
                allowed=f"a directory apart from all others that are mounted; {left} is {owner}",
                todo="mount it elsewhere, e.g. /data",
            )


def _shares(config: ClusterConfig) -> Iterator[tuple[str, Lustre | Filestore, str]]:
    if config.storage.lustre:
        yield "lustre", config.storage.lustre, "Lustre's"
    if config.storage.filestore:
        yield "filestore", config.storage.filestore, "Filestore's"


def _hides(place: Location, mount: str, *, bucket: bool) -> Iterator[Broken]:
    """What machines need at a mount point or below it; Lustre and Filestore may take an export's place."""
    for needed in (*EXPORTS, LOCAL_SSDS):
        if mount == needed and not bucket and needed in EXPORTS:
            continue
        if not _within(needed, mount):
            continue
        if needed == LOCAL_SSDS:
            why = "where nodes have their local SSDs"
        elif bucket:
            why = "which need a file system with owners, locks and renaming"
        else:
            why = "which are a file system of their own"
        yield Broken(
            at=(*place, "mount"),
            given=mount,
            allowed=f"a directory apart from {needed}, {why}",
            todo=f"mount it elsewhere, e.g. {'/gcs' if bucket else '/lustre'}",
        )


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")
