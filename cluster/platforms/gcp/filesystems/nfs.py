"""File systems by NFS: Filestore, and directories of servers that exist before the stack and stay after it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from cluster.catalog.storage import FILESTORE, nearest, sold
from cluster.config.cluster import ClusterConfig
from cluster.config.storage import Filestore as Section
from cluster.config.storage import Nfs as Directory
from cluster.cost_parts import Part
from cluster.findings import Finding
from cluster.platforms.gcp.filesystems.base import NFS, FileSystem, MachineMount, Place, ServiceNeed
from cluster.platforms.gcp.names import place
from cluster.roster import MachineSpec

DIRECT = "BASIC_SSD"
"""Tier that has a peering of its own. The others are reached by private service access."""


class FilestoreKind(FileSystem):
    """A Filestore instance with one share."""

    key = "filestore"
    component = "components.gcp.filesystems:FilestoreShare"
    needs: ClassVar[Mapping[str, ServiceNeed]] = {
        "gcp:filestore/": ServiceNeed(services=("file",), roles=("roles/file.editor",))
    }
    callback_ports = None  # NFS 3 reports released locks on a port that the client chose

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config)
        self.own_range = self.section.tier == DIRECT
        self.peered = not self.own_range

    @property
    def location(self) -> str:
        """The region of a regional instance, the zone of others."""
        where = place(self.config)
        return where.region if self.section.tier == "REGIONAL" else where.zone

    @classmethod
    def used(cls, config: ClusterConfig) -> bool:
        return config.storage.filestore is not None

    @property
    def section(self) -> Section:
        if self.config.storage.filestore is None:
            raise ValueError("the stack has no Filestore")
        return self.config.storage.filestore

    def places(self) -> Iterable[Place]:
        return [Place(at=("storage", "filestore"), path=self.section.mount, owner="Filestore's")]

    def mounts(self, spec: MachineSpec) -> Iterable[MachineMount]:  # noqa: ARG002 - the same on every machine
        return [MachineMount(kind=self.key, target=self.section.mount, fs_type="nfs", options=NFS)]

    def cost_parts(self) -> Iterator[Part]:
        yield Part(
            what="Filestore",
            item=f"filestore-{self.section.tier.lower()}",
            count=self.section.size_gb,
            group="storage",
            protected=self.config.deletion_protection,
        )

    def summary(self) -> Iterable[str]:
        return [f"Filestore ({self.section.tier}) at {self.section.mount}: {self.section.size_gb} GB"]

    def pages(self) -> Mapping[str, str]:
        return {"filestore": "/filestore/instances"}

    def find_errors(self) -> Iterator[Finding]:
        tier, size = self.section.tier, self.section.size_gb
        ranges = FILESTORE[tier]
        if not any(sizes.fit(size) for sizes in ranges):
            yield Finding(
                id="filestore-size",
                at=("storage", "filestore", "size_gb"),
                given=f"{size}, of tier {tier}",
                allowed=f"{sold(ranges)}, of that tier",
                todo=f"write {nearest(ranges, size)}, or take another tier",
            )


class NfsKind(FileSystem):
    """Directories of NFS servers."""

    key = "nfs"
    component = "components.gcp.filesystems:NfsDirectories"
    callback_ports = None  # NFS 3 reports released locks on a port that the client chose

    @classmethod
    def used(cls, config: ClusterConfig) -> bool:
        return bool(config.storage.nfs)

    def places(self) -> Iterable[Place]:
        return [
            Place(at=("storage", "nfs", index), path=section.mount, owner=f"{section.server}'s")
            for index, section in enumerate(self.config.storage.nfs)
        ]

    def mounts(self, spec: MachineSpec) -> Iterable[MachineMount]:  # noqa: ARG002 - the same on every machine
        return [
            MachineMount(kind=self.key, target=section.mount, fs_type="nfs", options=NFS, source=_source(section))
            for section in self.config.storage.nfs
        ]

    def summary(self) -> Iterable[str]:
        return [
            f"NFS at {section.mount}: {_source(section)}, which exists and stays" for section in self.config.storage.nfs
        ]

    def find_warnings(self) -> Iterator[Finding]:
        for index, section in enumerate(self.config.storage.nfs):
            yield from self.warn_unreachable(("storage", "nfs", index), section.server)


def _source(section: Directory) -> str:
    return f"{section.server}:{section.path}"
