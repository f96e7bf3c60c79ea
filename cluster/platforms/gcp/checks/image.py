"""The image of machines on Google Cloud: made in one way, from what belongs together."""

from collections.abc import Iterator

from cluster.catalog import MACHINE_TYPES
from cluster.checks.platform_fields import given, shown
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding
from cluster.platforms.gcp.defaults import BASE_IMAGES
from cluster.platforms.gcp.image.source import BAKED, bakes


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
