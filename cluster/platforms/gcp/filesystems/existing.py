"""File systems that exist before the stack and stay after it: a Lustre, and directories of NFS servers."""

from collections.abc import Iterable, Iterator

from cluster.config.cluster import ClusterConfig
from cluster.config.storage import Lustre
from cluster.config.storage import Nfs as Section
from cluster.findings import Finding, Level, Location
from cluster.platforms.gcp.filesystems.base import NFS, FileSystem, Mount, Place
from cluster.platforms.gcp.filesystems.lustre import OPTIONS, Expected, LustreKind
from cluster.roster import MachineSpec


def _network(config: ClusterConfig, at: Location, address: str) -> Iterator[Finding]:
    if config.network.existing is None:
        yield Finding(
            id="existing-file-system-network",
            level=Level.WARNING,
            at=at,
            what=f"the stack has a network of its own, from which {address} is reached only if you connect the two; "
            "Managed Lustre and Filestore answer in the network alone that they were made with",
            todo="name that network in network.existing, with its services_cidr",
        )


class ExistingLustre(LustreKind):
    """A Lustre file system of another stack, or of nobody's."""

    name = "existing"
    keys = ()
    component = "components.gcp.storage.filesystems:ExistingLustre"
    ready_seconds = 300  # it is there
    callback_ports = ("988",)

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config)
        self.client = self.section.kind

    @classmethod
    def used(cls, config: ClusterConfig) -> bool:
        return config.storage.lustre is not None and config.storage.lustre.existing is not None

    @property
    def title(self) -> str:
        return f"existing: {self.section.existing}"

    @property
    def source(self) -> str:
        return f"{self.section.existing}@tcp:/{self.section.fsname}"

    @staticmethod
    def expected(lustre: Lustre) -> Expected:
        raise ValueError(f"how large {lustre.existing} is, only its own stack has")

    def mounts(self, spec: MachineSpec) -> Iterable[Mount]:  # noqa: ARG002 - the same on every machine
        source = self.source
        return [Mount(kind=self.key, target=self.section.mount, fs_type="lustre", options=OPTIONS, source=source)]

    def summary(self) -> Iterable[str]:
        yield f"Lustre ({self.section.kind}) at {self.section.mount}: {self.source}, which exists and stays"

    def find_warnings(self) -> Iterator[Finding]:
        yield from _network(self.config, ("storage", "lustre", "existing"), str(self.section.existing))


class Nfs(FileSystem):
    """Directories of NFS servers."""

    key = "nfs"
    component = "components.gcp.storage.filesystems:NfsDirectories"
    callback_ports = None  # NFS 3 reports released locks on a port that the client chose

    @classmethod
    def used(cls, config: ClusterConfig) -> bool:
        return bool(config.storage.nfs)

    @property
    def sections(self) -> tuple[Section, ...]:
        return self.config.storage.nfs

    def places(self) -> Iterable[Place]:
        return [
            Place(at=("storage", "nfs", index), path=one.mount, owner=f"{one.server}'s")
            for index, one in enumerate(self.sections)
        ]

    def mounts(self, spec: MachineSpec) -> Iterable[Mount]:  # noqa: ARG002 - the same on every machine
        return [
            Mount(
                kind=self.key,
                target=section.mount,
                fs_type="nfs",
                options=NFS,
                source=f"{section.server}:{section.path}",
            )
            for section in self.sections
        ]

    def summary(self) -> Iterable[str]:
        return [
            f"NFS at {section.mount}: {section.server}:{section.path}, which exists and stays"
            for section in self.sections
        ]

    def find_warnings(self) -> Iterator[Finding]:
        for index, one in enumerate(self.sections):
            yield from _network(self.config, ("storage", "nfs", index), one.server)
