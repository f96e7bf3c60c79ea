"""The image of machines on Google Cloud: made in one way, from what belongs together."""

from collections.abc import Iterator
from datetime import date, datetime, timezone

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.recipes import NEWEST, OLDEST_KERNEL
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import given, shown
from cluster.findings import Finding, Level
from cluster.platforms.gcp.defaults import BASE_IMAGES
from cluster.platforms.gcp.image.recipe import recipe
from cluster.platforms.gcp.image.source import BAKED, bakes


def today() -> datetime:
    return datetime.now(timezone.utc)


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """A recipe whose kernel is old. What an image of a given name contains is not known here."""
    if config.image.base not in BASE_IMAGES or config.image.name:
        return
    row = recipe(config)
    days = (today().date() - date.fromisoformat(row.kernel_day)).days
    if days > OLDEST_KERNEL:
        yield Finding(
            id="kernel-old",
            level=Level.WARNING,
            at=("image", "recipe"),
            what=f"kernel {row.kernel or row.image.rpartition('/')[2]} of recipe {row.version} is of {row.kernel_day}, "
            f"{days} days ago: security fixes since then are missing",
            todo=f"write {NEWEST}"
            if row.version != NEWEST
            else "take a newer version of this program, whose recipes have a newer kernel",
        )


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    if config.image.base not in BASE_IMAGES:
        return
    image = config.image
    if image.name:
        for key in ("bake", "snapshot", "provision", "packages", "builder"):
            value = given(image, key)
            if value is None or (key == "bake" and value is False):
                continue
            yield Finding(
                id="image-name-alone",
                at=("image", key),
                given=shown(value),
                allowed=f"nothing beside image.name: {image.name} is used as it is",
                todo=f"remove it, or remove `name` and let the stack bake an image with {key}",
            )
        return
    if image.snapshot and image.snapshot > (now := today().strftime("%Y%m%dT%H%M%SZ")):
        yield Finding(
            id="image-snapshot-future",
            at=("image", "snapshot"),
            given=image.snapshot,
            allowed=f"a day that was, up to {now} (UTC): the archive of a later one would be another at each bake",
            todo="write an earlier day, or remove it for the recipe's own",
        )
    if image.bake and image.base not in BAKED:
        yield Finding(
            id="image-bake",
            at=("image", "bake"),
            given=f"true, of {image.base}",
            allowed=f"true of {' and '.join(BAKED)}; {image.base} has Slurm and drivers as packages",
            todo="write `bake: false`: machines install them at their first boot",
        )
    if not bakes(config):
        if (value := given(image, "builder")) is not None:
            yield Finding(
                id="image-builder-unused",
                at=("image", "builder"),
                given=shown(value),
                allowed="nothing where no image is made",
                todo="remove it, or write `bake: true`",
            )
        return
    builder = MACHINE_TYPES[image.builder.machine_type]
    if not builder.family.builds_images or builder.gpu or builder.platform != "gcp":
        why = "that has no GPU and is not of an N series, where NVIDIA's open driver does not install"
        yield Finding(
            id="image-builder-type",
            at=("image", "builder", "machine_type"),
            given=builder.name,
            allowed=f"a machine of gcp {why}, e.g. c2-standard-8",
            todo="remove it for c2-standard-8",
        )
