"""The Lustre file system: DDN EXAScaler on machines of the stack, or Google Cloud Managed Lustre."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from cluster.config.impact import Refuse
from cluster.config.section import Section
from cluster.config.types import (
    DiskTypeName,
    FsName,
    MachineTypeName,
    MountPoint,
    Positive,
    ServerAddress,
    ServerImage,
    Whole,
)
from cluster.config.validators.choices import no_list

DELETES = Refuse("the file system would be deleted with every file in it, and created again: put it back")
DELETES_DISKS = Refuse("the disks would be deleted with every file on them: put it back")


_one_place = no_list(
    "one directory, e.g. /lustre: an EXAScaler file system is mounted at one place",
    "keep one, and put data in a folder below it, e.g. mount: /home with data in /home/data",
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
    """Where every machine has it. /home puts home folders on it; data may then go to /home/data."""
    existing: Annotated[ServerAddress | None, Refuse("machines would mount another file system in its place")] = None
    """Address of the management server of a file system that exists: the stack mounts it, and neither creates nor
    deletes it. `kind` and `fsname` are that file system's."""
    fsname: FsName = "exacloud"
    """Name of the file system in Lustre."""
    image: Annotated[ServerImage, Refuse("servers keep the image that they were created from: put it back")] = (
        "projects/ddn-public/global/images/family/exascaler-cloud-6-3-rocky-linux-8-optimized-gcp"
    )
    """exascaler: image of the servers, from the Marketplace; its terms must have been accepted in the project."""
    mgs: Mgs = Field(default_factory=Mgs)
    """exascaler: the management server."""
    mds: Mds = Field(default_factory=Mds)
    """exascaler: metadata servers."""
    oss: Oss = Field(default_factory=Oss)
    """exascaler: object storage servers."""
    size_gib: Positive = Field(default=36000, le=10**9)
    """managed: capacity in GiB."""
    throughput: Annotated[Whole, DELETES] = Field(default=500, ge=1, le=10**4)
    """managed: MB/s for each TiB: 125, 250, 500 or 1000."""
