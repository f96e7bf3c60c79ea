"""File systems that machines share."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from cluster.config.impact import NoEffect, Refuse
from cluster.config.lustre import Lustre
from cluster.config.section import Section
from cluster.config.types import BucketName, Flag, MountPoint, Positive, ServerAddress
from cluster.config.validators.choices import no_list

AT_BOOT = NoEffect("machines mount it so at their next boot", "./hpc ssh {stack} MACHINE -- reboot")


_one_lustre = no_list(
    "one Lustre file system, e.g. {kind: exascaler, mount: /lustre}",
    "keep one; its folders can hold what the others were for",
)


class Filestore(Section):
    """A Filestore share, by NFS."""

    mount: Annotated[MountPoint, Refuse("jobs, and links between files, know the share by its place: put it back")] = (
        "/home"
    )
    """Where every machine has it."""
    tier: Annotated[
        Literal["BASIC_SSD", "ZONAL", "REGIONAL"],
        Refuse("the share would be deleted with every file in it, and created again: put it back"),
    ] = "ZONAL"
    """Service tier of Filestore."""
    size_gb: Positive = Field(default=1024, le=102400)
    """Capacity in GB; each tier has its own least."""


class Nfs(Section):
    """A directory of an NFS server that exists, such as a Filestore share. It stays after the stack."""

    one_value: ClassVar[bool] = True

    server: ServerAddress
    """Address of the server."""
    path: MountPoint = Field(examples=["/shared"])
    """What the server exports."""
    mount: MountPoint = Field(examples=["/data"])
    """Where every machine has it."""


class Bucket(Section):
    """A bucket of Cloud Storage, mounted by GCS FUSE. It is there before the stack and stays after it."""

    name: BucketName = Field(examples=["my-datasets"])
    """Name of the bucket."""
    mount: MountPoint = Field(examples=["/gcs"])
    """Where every machine has it; not /home, which GCS FUSE is no file system for."""
    read_only: Flag = False
    """Whether machines can only read; they then keep names and attributes for an hour."""
    cache: Flag = True
    """Whether nodes keep files that were read on their local SSDs, where they have any."""


class Storage(Section):
    """File systems that machines share."""

    shared: tuple[MountPoint, ...] = ()
    """On local: directories that every machine sees alike. Default there: /home, /opt/apps, /var/mail."""
    read_only: Annotated[tuple[MountPoint, ...], AT_BOOT] = ()
    """On local: those of `shared` that machines can only read, as a bucket with `read_only`."""
    lustre: Annotated[Lustre | None, BeforeValidator(_one_lustre)] = None
    """On gcp: a Lustre file system."""
    filestore: Filestore | None = None
    """On gcp: a Filestore share."""
    nfs: tuple[Nfs, ...] = Field(default=(), max_length=20)
    """On gcp: directories of NFS servers that exist."""
    buckets: tuple[Bucket, ...] = Field(default=(), max_length=100)
    """On gcp: buckets of Cloud Storage. /home and /opt/apps are the controller's where nothing else is mounted there.
    """
