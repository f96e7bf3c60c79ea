"""File systems that machines share: Lustre, Filestore, NFS and buckets."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from cluster.config.impact_annotations import NoEffect, Refuse
from cluster.config.section import Section
from cluster.config.types import (
    DiskTypeName,
    Flag,
    FsName,
    MachineTypeName,
    MountPoint,
    Positive,
    ServerAddress,
    Whole,
    text_schema,
)
from cluster.config.validators import CLOUD_NAME, CLOUD_PROJECT, matching, no_list

DELETES = Refuse("the file system would be deleted with every file in it, and created again: put it back")
DELETES_DISKS = Refuse("the disks would be deleted with every file on them: put it back")


_one_place = no_list(
    "one directory, e.g. /lustre: an EXAScaler file system is mounted at one place",
    "keep one, and put data in a folder below it, e.g. mount: /home with data in /home/data",
)

_server_image = matching(
    rf"projects/{CLOUD_PROJECT}/global/images/(family/)?{CLOUD_NAME}",
    "projects/PROJECT/global/images/NAME, or projects/PROJECT/global/images/family/NAME",
    "copy it from the Marketplace solution, or remove it for DDN's newest known",
)
"""A family as well, since the Marketplace publishes families."""
_bucket = matching(
    "(?!goog)[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]",
    "a bucket's name: 3 to 222 of a-z, 0-9, -, _ and ., e.g. my-datasets",
    "write the name alone, without gs:// and without a path",
)


class Targets(Section):
    """The disks of one Lustre server: each is one target."""

    type: Annotated[DiskTypeName, DELETES_DISKS]
    """Disk type of the catalog."""
    size_gb: Positive = Field(le=65536)
    """GB of each disk."""
    count: Positive = Field(default=1, le=128)
    """Disks of each server."""
    iops: Positive | None = Field(default=None, le=10**7)
    """Provisioned I/O operations per second of each disk; hyperdisks only."""
    mbps: Positive | None = Field(default=None, le=10**6)
    """Provisioned MB/s of each disk; hyperdisks only."""


class Mgs(Section):
    """The management server, of which there is one."""

    machine_type: MachineTypeName = "n2-standard-32"
    """Machine type of the catalog."""
    mgt: Targets = Field(default_factory=lambda: Targets(type="pd-standard", size_gb=128))
    """Its management targets."""
    mnt: Targets = Field(default_factory=lambda: Targets(type="pd-standard", size_gb=128))
    """Its monitoring targets."""


class Mds(Section):
    """Metadata servers: names, owners, permissions."""

    machine_type: MachineTypeName = "n2-standard-32"
    """Machine type of the catalog."""
    count: Positive = Field(default=1, le=32)
    """Servers."""
    mdt: Targets = Field(default_factory=lambda: Targets(type="pd-ssd", size_gb=3500))
    """Metadata targets of each."""


class Oss(Section):
    """Object storage servers: the data, and most of the bandwidth."""

    machine_type: MachineTypeName = "n2-standard-16"
    """Machine type of the catalog."""
    count: Positive = Field(default=3, le=2000)
    """Servers."""
    ost: Targets = Field(default_factory=lambda: Targets(type="pd-ssd", size_gb=3500))
    """Object storage targets of each."""


class Lustre(Section):
    """A Lustre file system, of the stack's own or one that exists."""

    kind: Annotated[Literal["exascaler", "managed"], DELETES] = Field(examples=["managed"])
    """exascaler: DDN EXAScaler, on machines of the stack; managed: Google Cloud Managed Lustre."""
    mount: Annotated[
        MountPoint,
        BeforeValidator(_one_place),
        Refuse("jobs, and links between files, know the file system by its place: put it back"),
    ] = "/lustre"
    """Mount point on every machine. /home puts home folders on it; data may then go to /home/data."""
    existing: Annotated[ServerAddress | None, Refuse("machines would mount another file system in its place")] = None
    """Address of the management server of a file system that exists: the stack mounts it, and neither creates nor
    deletes it. `kind` and `fsname` are that file system's."""
    fsname: FsName = "exacloud"
    """Name of the file system in Lustre."""
    image: Annotated[
        str,
        AfterValidator(_server_image),
        text_schema(pattern="^projects/"),
        Refuse("servers keep the image that they were created from: put it back"),
    ] = "projects/ddn-public/global/images/family/exascaler-cloud-6-3-rocky-linux-8-optimized-gcp"
    """exascaler: image of the servers, from the Marketplace; its terms must have been accepted in the project."""
    mgs: Mgs = Field(default_factory=Mgs)
    """exascaler: the management server."""
    mds: Mds = Field(default_factory=Mds)
    """exascaler: metadata servers."""
    oss: Oss = Field(default_factory=Oss)
    """exascaler: object storage servers."""
    size_gib: Positive = Field(default=18000, le=10**9)
    """managed: capacity in GiB."""
    throughput: Annotated[Whole, DELETES] = Field(default=500, ge=1, le=10**4)
    """managed: MB/s for each TiB: 125, 250, 500 or 1000."""


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
    """Mount point on every machine."""
    tier: Annotated[
        Literal["BASIC_SSD", "ZONAL", "REGIONAL"],
        Refuse("the share would be deleted with every file in it, and created again: put it back"),
    ] = "ZONAL"
    """Service tier of Filestore."""
    size_gb: Positive = Field(default=1024, le=102400)
    """Capacity in GB; each tier has its own least. A ZONAL or REGIONAL share below 10240 can't grow beyond 9984."""


class Nfs(Section):
    """A directory of an NFS server that exists, such as a Filestore share. It stays after the stack."""

    one_value: ClassVar[bool] = True

    server: ServerAddress
    """Address of the server."""
    path: MountPoint = Field(examples=["/shared"])
    """The path that the server exports."""
    mount: MountPoint = Field(examples=["/data"])
    """Mount point on every machine."""


class Bucket(Section):
    """A bucket of Cloud Storage, mounted by GCS FUSE. It is there before the stack and stays after it."""

    name: Annotated[str, AfterValidator(_bucket)] = Field(examples=["my-datasets"])
    """Name of the bucket."""
    mount: MountPoint = Field(examples=["/gcs"])
    """Mount point on every machine; not /home, which GCS FUSE is no file system for."""
    read_only: Flag = False
    """True if machines can only read; they then keep names and attributes for an hour."""
    cache: Flag = True
    """True if nodes keep files that were read on their local SSDs, where they have any."""


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
