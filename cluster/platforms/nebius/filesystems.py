"""Shared file systems of a cluster on Nebius: created by the stack, or there before it."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from cluster.config.section import Section
from cluster.config.types import Flag, MountPoint
from cluster.findings import Refused
from cluster.platforms.nebius.types import FilesystemId, GibiBytes, SubmountName


class FilesystemSpec(Section):
    """A shared file system to create."""

    size_gib: GibiBytes
    """GiB. It can grow, and never shrink."""
    block_kib: Literal[4, 8, 16, 32, 64, 128] = 4
    """KiB of a block; 32 suits large files. It can't be changed later."""


class Filesystem(Section):
    """A shared file system: exactly one of `spec` and `existing`."""

    spec: FilesystemSpec | None = None
    """The file system to create. `deletion_protection` keeps it when the cluster is destroyed."""
    existing: FilesystemId | None = None
    """Id of a file system that is there before the stack and stays after it."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.spec is None) == (self.existing is None):
            raise Refused(
                "exactly one of spec and existing, e.g. {spec: {size_gib: 2048}}",
                "remove one of them" if self.spec else "add one of them",
            )
        return self


class Jail(Filesystem):
    """The file system that users see as `/` on all login and worker pods."""

    overwrite_existing: Flag = False
    """With `existing`: says that you know that its files may be overwritten when the jail is populated."""


class Submount(Filesystem):
    """A shared file system that is mounted inside the jail."""

    mount: MountPoint = Field(examples=["/mlperf-sd"])
    """Where users see it."""


class Filesystems(Section):
    """Shared file systems."""

    jail: Jail = Field(default_factory=lambda: Jail(spec=FilesystemSpec(size_gib=2048)))
    """What users see as `/`. Default: 2048 GiB."""
    controller_spool: Filesystem = Field(default_factory=lambda: Filesystem(spec=FilesystemSpec(size_gib=128)))
    """slurmctld's state. Default: 128 GiB."""
    accounting: Filesystem = Field(default_factory=lambda: Filesystem(spec=FilesystemSpec(size_gib=512)))
    """The accounting database. Default: 512 GiB."""
    submounts: Mapping[SubmountName, Submount] = Field(default_factory=dict, max_length=50)
    """Further file systems inside the jail, by name."""
