"""What a nodeset has on Nebius besides its count, its machine type and its boot disk."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from cluster.config.section import Section
from cluster.config.types import MountPoint, Positive
from cluster.findings import Refused
from cluster.platforms.nebius.machine_types import NEBIUS_DISKS, storage_class
from cluster.platforms.nebius.types import DiskType, GibiBytes, GpuClusterId, SubmountName


class Infiniband(Section):
    """The GPU cluster that a nodeset's nodes join: exactly one of `fabric` and `existing`."""

    fabric: str | None = Field(default=None, examples=["fabric-3"], min_length=1, max_length=63)
    """InfiniBand fabric that a GPU cluster is created in. Nodesets of one fabric share it."""
    existing: GpuClusterId | None = None
    """Id of a GPU cluster that is there before the stack and stays after it."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.fabric is None) == (self.existing is None):
            raise Refused("exactly one of fabric and existing, e.g. {fabric: fabric-3}", "keep one of them")
        return self


class NodeDisk(Section):
    """A disk that each node has for itself. It is deleted with the node's pod volume."""

    size_gib: GibiBytes
    """GiB. A multiple of 93 for network-ssd-io-m3 and network-ssd-non-replicated."""
    type: DiskType = "network-ssd-io-m3"
    """Disk type of Nebius."""
    filesystem: Literal["ext4", "xfs"] = "ext4"
    """File system on it."""

    @model_validator(mode="after")
    def _whole_parts(self) -> Self:
        step = NEBIUS_DISKS[self.type].step_gib
        if self.size_gib % step:
            fitting = (self.size_gib // step + 1) * step
            raise Refused(
                f"a size_gib that is a multiple of {step} for {self.type}, e.g. {fitting}",
                f"write {fitting}, or type: network-ssd for any size",
            )
        return self

    @property
    def storage_class(self) -> str:
        """The StorageClass that it is created by."""
        return storage_class(self.type, self.filesystem)


class LocalMount(NodeDisk):
    """A disk of each node, mounted inside the jail: every node sees its own files there."""

    mount: MountPoint = Field(examples=["/scratch"])
    """Where users see it."""


class Workers(Section):
    """What a nodeset has on Nebius besides."""

    infiniband: Infiniband | None = None
    """The GPU cluster that its nodes join. None for nodesets without GPUs, or with one GPU a node."""
    nodes_per_group: Positive = Field(default=100, le=100)
    """Most nodes of one node group of Kubernetes. More nodes are split, and the last group has the rest."""
    max_unavailable_percent: Positive = Field(default=50, le=100)
    """Percent of a group's nodes that are recreated at the same time when the group changes; one node at least."""
    local_disks: Mapping[SubmountName, LocalMount] = Field(default_factory=dict, max_length=10)
    """Disks of each node, mounted inside the jail, by name."""
    image_disk: NodeDisk | None = None
    """A disk of each node for container images, in place of the boot disk."""
