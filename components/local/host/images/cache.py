"""The cache of base images: what is in it, who uses it, and making room."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from components.local.host.errors import HostError
from components.local.host.images.image import image_root, sweep_builds
from components.local.host.images.recipe import SUITES, recipe
from components.local.host.locks import locked


@dataclass(frozen=True, kw_only=True)
class CachedImage:
    digest: str
    base: str
    packages: tuple[str, ...]
    """The stack's own, `image.packages`."""
    made: int
    """When, in seconds since 1970."""
    current: bool
    """Whether a new stack would use it; otherwise it is of another version of this program."""
    users: tuple[str, ...]
    """Machines that are made from it, as stack/machine."""


def cached_images(root: Path, images: Path) -> list[CachedImage]:
    found: list[CachedImage] = []
    for path in images.glob("*/image.json"):
        meta, digest = json.loads(path.read_text()), path.parent.name
        base, packages = meta["base"], tuple(meta.get("own", ()))
        found.append(
            CachedImage(
                digest=digest,
                base=base,
                packages=packages,
                made=int(meta["made"]),
                current=base in SUITES and recipe(base, packages).digest == digest,
                users=_users(root, images, digest),
            )
        )
    return sorted(found, key=lambda image: -image.made)


def prune(root: Path, images: Path, report: Callable[[str], None], *, current: bool = False) -> list[str]:
    """Remove images that no machine is made from, and halves of killed builds; returns the digests removed.

    Images that a new stack would use stay, unless `current` is set: the next `up` then makes them with the packages
    of the day.
    """
    removed: list[str] = []
    if not images.exists():
        return removed
    with locked(images / ".build.lock", wait=False) as free:
        if not free:
            raise HostError(f"{images}: a base image is being built; try again when that is done")
        sweep_builds(images)
        for image in cached_images(root, images):
            if image.users or (image.current and not current):
                continue
            report(f"removing base image {image.digest} ({' '.join((image.base, *image.packages))})")
            # Renamed first, so that a killed removal leaves no partial image.
            gone = (images / image.digest).rename(images / f".build-{image.digest}-removed")
            shutil.rmtree(gone)
            removed.append(image.digest)
    return removed


def _users(root: Path, images: Path, digest: str) -> tuple[str, ...]:
    """Machines on record under `root`, and running machines of any other root that shares the cache."""
    users: set[str] = set()
    for path in (root / "stacks").glob("*/machines/*/machine.json"):
        if json.loads(path.read_text()).get("image") == digest:
            users.add(f"{path.parent.parent.parent.name}/{path.parent.name}")
    below = f"lowerdir={image_root(images, digest)},"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text() != "systemd-nspawn\n":
                continue
            for line in (process / "mountinfo").read_text().splitlines():
                if below in line:
                    machine = Path(line.split()[4]).parent
                    users.add(f"{machine.parent.parent.name}/{machine.name}")
        except OSError:  # it ended
            continue
    return tuple(sorted(users))
