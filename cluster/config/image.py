"""The operating system of the machines."""

from typing import Annotated

from pydantic import AfterValidator, Field

from cluster.catalog.recipes import NEWEST
from cluster.config.impact_annotations import NoEffect
from cluster.config.section import Section
from cluster.config.slurm import Sourced
from cluster.config.types import (
    Flag,
    ImageName,
    MachineTypeName,
    PackageName,
    Positive,
    RecipeVersion,
    ScriptName,
    SystemName,
    text_schema,
)
from cluster.config.validators import cloud_resource, is_utc_time
from cluster.findings import RefusedError

NEXT = NoEffect("holds when the next image is made")

_FIRST_SNAPSHOT = "20230301T000000Z"
"""Ubuntu's snapshot service has none before (snapshot.ubuntu.com)."""
_image = cloud_resource("images", "global/images", "a3mega-0123456789ab")


def _existing(value: str) -> str:
    if "/family/" in value:
        raise RefusedError(
            "one image, e.g. a3mega-0123456789ab or projects/my-project/global/images/a3mega-0123456789ab",
            "name an image of the family (`gcloud compute images describe-from-family`): a family's newest image "
            "changes by itself, and with it kernel, driver and Lustre client",
        )
    return _image(value)


def _snapshot(value: str) -> str:
    if not is_utc_time(value) or value < _FIRST_SNAPSHOT:
        raise RefusedError(
            f"a date of Ubuntu's archive in UTC, YYYYMMDDTHHMMSSZ, from {_FIRST_SNAPSHOT} on, e.g. 20261115T000000Z",
            "write the day whose security updates the machines should have",
        )
    return value


SnapshotDate = Annotated[str, AfterValidator(_snapshot), text_schema(pattern="^20[0-9]{6}T[0-9]{6}Z$")]


class Provision(Sourced):
    """A step of one's own in making the image; exactly one of file, url and text says what is in it."""

    EXAMPLE = "{name: 10-our-tools, file: scripts/our-tools.sh}"

    name: ScriptName = Field(examples=["10-our-tools"])
    """Its name in progress and error messages; steps run in the order of the list."""


class Builder(Section):
    """The machine that the image is made on, which is gone afterwards."""

    machine_type: Annotated[MachineTypeName, NEXT] = "c2-standard-8"
    """Machine type of the catalog; no GPU is needed."""
    size_gb: Positive = Field(default=200, ge=20, le=65536)
    """GB of its disk, and of the image."""
    minutes: Annotated[Positive, NEXT] = Field(default=120, ge=10, le=1440)
    """Time that it may take; the builder deletes itself a little later, whoever waits."""


class Image(Section):
    """The operating system of the machines."""

    base: ImageName
    """Operating system of the catalog, which also says which Slurm it comes with: debian-12 22.05, debian-13 24.11
    (or 26.05 of Debian's next release: `slurm.version`). Default on local: debian-12, on gcp ubuntu-2204."""
    bake: Flag | None = None
    """On gcp: whether the stack makes an image of its own, so that machines boot ready; otherwise each installs what
    it needs at its first boot. Default: true for ubuntu-2204, false for ubuntu-2404."""
    recipe: RecipeVersion = Field(default=NEWEST, examples=[NEWEST])
    """On gcp: version of the recipes, which say what kernel, driver, Slurm and Lustre client go together."""
    snapshot: SnapshotDate | None = Field(default=None, examples=["20261115T000000Z"])
    """On gcp: the state of Ubuntu's archive that packages come from, YYYYMMDDTHHMMSSZ; a later one brings the security
    updates of the time between. Default: the recipe's own."""
    name: Annotated[str, AfterValidator(_existing)] | None = Field(default=None, examples=["a3mega-0123456789ab"])
    """On gcp: an image that is there already, made by such a bake; by name, or projects/PROJECT/global/images/NAME.
    No family: what that means changes by itself."""
    provision: tuple[Provision, ...] = ()
    """On gcp: steps of one's own, run as root after all others of the bake, or of the first boot."""
    builder: Builder = Field(default_factory=Builder.model_construct)
    """On gcp: the machine that the image is made on."""
    packages: tuple[PackageName, ...] = Field(default=(), max_length=200, examples=[["python3-mpi4py"]])
    """Packages of the distribution that every machine has beyond the usual ones, by name. On local they are part of the
    base image; on gcp a step of the bake or of the first boot installs them, before those of `provision`. Changing
    them recreates the machines."""
    presents_as: SystemName | None = None
    """On local only: the system that the machines say they are (os-release, lsb_release), so that scripts which ask
    for it are rehearsed. Changing it recreates the machines."""
