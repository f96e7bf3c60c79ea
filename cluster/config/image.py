"""The operating system of the machines."""

from typing import Annotated

from pydantic import Field

from cluster.catalog.recipes import DEFAULT, NEWEST
from cluster.config.impact import NoEffect
from cluster.config.section import Section
from cluster.config.slurm import Sourced
from cluster.config.types import (
    ExistingImage,
    Flag,
    ImageName,
    MachineTypeName,
    PackageName,
    Positive,
    RecipeVersion,
    ScriptName,
    SnapshotDate,
    SystemName,
)

NEXT = NoEffect("holds when the next image is made")


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
    """How long it may take; the builder deletes itself a little later, whoever waits."""


class Image(Section):
    """The operating system of the machines."""

    base: ImageName
    """Operating system of the catalog, which also says which Slurm it comes with: debian-12 22.05, debian-13 24.11.
    Default on local: debian-12, on gcp ubuntu-2204."""
    bake: Flag | None = None
    """On gcp: whether the stack makes an image of its own, so that machines boot ready; otherwise each installs what
    it needs at its first boot. Default: true for ubuntu-2204, false for ubuntu-2404."""
    recipe: RecipeVersion = Field(default=DEFAULT, examples=[NEWEST])
    """On gcp: version of the recipes, which say what kernel, driver, Slurm and Lustre client go together. A newer
    program changes none of them: write the newest here, when its time has come."""
    snapshot: SnapshotDate | None = Field(default=None, examples=["20261115T000000Z"])
    """On gcp: the state of Ubuntu's archive that packages come from, YYYYMMDDTHHMMSSZ; a later one brings the security
    updates of the time between. Default: the recipe's own."""
    name: ExistingImage | None = Field(default=None, examples=["a3mega-0123456789ab"])
    """On gcp: an image that is there already, made by such a bake; by name, or projects/PROJECT/global/images/NAME.
    No family: what that means changes by itself."""
    provision: tuple[Provision, ...] = ()
    """On gcp: steps of one's own, run as root after all others of the bake, or of the first boot."""
    builder: Builder = Field(default_factory=Builder)
    """On gcp: the machine that the image is made on."""
    packages: tuple[PackageName, ...] = Field(default=(), max_length=200, examples=[["python3-mpi4py"]])
    """Packages of the distribution that every machine has beyond the usual ones, by name. On local they are part of the
    base image; on gcp a step of the bake or of the first boot installs them, before those of `provision`. Changing
    them recreates the machines."""
    presents_as: SystemName | None = None
    """On local only: the system that the machines say they are (os-release, lsb_release), so that scripts which ask
    for it are rehearsed. Changing it recreates the machines."""
