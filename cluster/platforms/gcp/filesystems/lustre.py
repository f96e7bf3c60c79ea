"""Lustre on Google Cloud: the base of its kinds, Managed Lustre, and existing file systems."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cluster.catalog.recipes import RECIPES
from cluster.catalog.storage import MANAGED, nearest, sold
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import as_written, explicit
from cluster.config.storage import Lustre
from cluster.cost_parts import Part
from cluster.findings import Finding, listing
from cluster.platforms.gcp.defaults import BASE_IMAGES
from cluster.platforms.gcp.filesystems.base import FileSystem, MachineMount, Place, ServiceNeed
from cluster.platforms.gcp.names import place
from cluster.roster import MachineSpec

OPTIONS = "flock,noatime,_netdev"
"""Mount options. flock: locks are valid on all machines, which HDF5, SQLite and package managers on /home require."""
READY = Path(__file__).parents[4] / "scripts" / "lustre_ready.sh"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Capacity and bandwidth of a file system.

    Bandwidths are the limits of disks and machines, which few clients do not reach: in DDN's own example sixteen
    servers with 3.5 TB each and eight clients reached 7.4 GiB/s of reading and 6.3 GiB/s of writing, where the limits
    are 18.8 GB/s each.
    """

    capacity_gib: int
    """GiB of the targets, of which the file system itself uses a few percent."""
    read_mbps: int
    """MB/s (10^6 bytes) of reading by all clients together, at most."""
    write_mbps: int
    """MB/s of writing by all clients together, at most."""


class LustreKind(FileSystem):
    """The base of all kinds of Lustre."""

    key = "lustre"
    name: ClassVar[str]
    """The value of `storage.lustre.kind`."""
    keys: ClassVar[tuple[str, ...]]
    """Keys of the section that only this kind reads."""
    ready_seconds: ClassVar[int]
    """Time for which the first mount waits for the servers."""
    web: ClassVar[bool] = False
    """True if the management server offers the clients' packages by HTTP."""

    @classmethod
    def used(cls, config: ClusterConfig) -> bool:
        lustre = config.storage.lustre
        return lustre is not None and lustre.existing is None and lustre.kind == cls.name

    @property
    def section(self) -> Lustre:
        if self.config.storage.lustre is None:
            raise ValueError("the stack has no Lustre")
        return self.config.storage.lustre

    @property
    def title(self) -> str:
        """The key and the value of the section that choose this kind."""
        return f"kind: {self.name}"

    @staticmethod
    @abstractmethod
    def expected(lustre: Lustre) -> Expected:
        """Return capacity and bandwidth of the file system that a section describes."""

    def places(self) -> Iterable[Place]:
        return [Place(at=("storage", "lustre"), path=self.section.mount, owner="Lustre's")]

    def mounts(self, spec: MachineSpec) -> Iterable[MachineMount]:  # noqa: ARG002 - the same on every machine
        return [MachineMount(kind=self.key, target=self.section.mount, fs_type="lustre", options=OPTIONS)]

    def probe(self, address: str) -> str:
        """Return a shell command that waits until the file system at `address` answers, and prints what is missing.

        It runs on any machine of the system network, needs only bash, and changes nothing.
        """
        web = " --web" if self.web else ""
        return f"bash -s -- {address} {self.ready_seconds}{web} <<'LUSTRE_READY'\n{READY.read_text()}LUSTRE_READY\n"

    def summary(self) -> Iterable[str]:
        expected = self.expected(self.section)
        yield (
            f"Lustre ({self.name}) at {self.section.mount}: {expected.capacity_gib:,} GiB; at most "
            f"{expected.read_mbps:,} MB/s of reading, {expected.write_mbps:,} MB/s of writing"
        )

    def find_errors(self) -> Iterator[Finding]:
        """Yield keys of another kind of Lustre, and a base image without a client."""
        for other in LustreKind.__subclasses__():
            for key in other.keys if other.name != self.name else ():
                if (value := explicit(self.section, key)) is not None:
                    yield Finding(
                        id="lustre-kind-field",
                        at=("storage", "lustre", key),
                        given=as_written(value),
                        allowed=f"nothing with {self.title}; {key} is for kind: {other.name}",
                        todo="remove it" + (f", or write `kind: {other.name}`" if self.keys else ""),
                    )
        base, version = self.config.image.base, self.config.image.recipe
        if (version, base, self.client) not in RECIPES and base in BASE_IMAGES:
            bases = [base for of, base, lustre in RECIPES if (of, lustre) == (version, self.client)]
            yield Finding(
                id="lustre-client",
                at=("image", "base"),
                given=f"{base}, with {self.client} Lustre",
                allowed=f"a system for whose kernel there is a client of {self.client} Lustre: {listing(bases)}",
                todo=f"write `base: {bases[0]}`, or take storage.lustre out",
            )


class Managed(LustreKind):
    """Lustre whose servers Google runs."""

    name = client = "managed"
    component = "components.gcp.filesystems:ManagedLustre"
    needs: ClassVar[Mapping[str, ServiceNeed]] = {
        "gcp:lustre/": ServiceNeed(services=("lustre",), roles=("roles/lustre.admin",))
    }
    keys = ("size_gib", "throughput")
    ready_seconds = 300  # Google's servers are up once the instance is created
    peered = True
    callback_ports = ("988",)  # servers connect to their clients too

    @property
    def location(self) -> str:
        """The stack's zone."""
        return place(self.config).zone

    @staticmethod
    def expected(lustre: Lustre) -> Expected:
        """Return capacity and bandwidth as they are sold."""
        mbps = lustre.size_gib * lustre.throughput // 1024
        return Expected(capacity_gib=lustre.size_gib, read_mbps=mbps, write_mbps=mbps)

    def cost_parts(self) -> Iterator[Part]:
        lustre = self.section
        yield Part(
            what="Managed Lustre",
            item=f"lustre-{lustre.throughput}",
            count=lustre.size_gib,
            group="storage",
            protected=self.config.deletion_protection,
        )

    def pages(self) -> Mapping[str, str]:
        return {"lustre": "/lustre/instances"}

    def find_errors(self) -> Iterator[Finding]:
        yield from super().find_errors()
        lustre = self.section
        if lustre.throughput not in MANAGED:
            yield Finding(
                id="lustre-throughput",
                at=("storage", "lustre", "throughput"),
                given=str(lustre.throughput),
                allowed=f"MB/s for each TiB that are sold: {listing(map(str, MANAGED))}",
                todo="take one of these",
            )
            return
        ranges = MANAGED[lustre.throughput]
        if not any(sizes.fit(lustre.size_gib) for sizes in ranges):
            yield Finding(
                id="lustre-size",
                at=("storage", "lustre", "size_gib"),
                given=f"{lustre.size_gib}, at {lustre.throughput} MB/s for each TiB",
                allowed=f"{sold(ranges)}, at that throughput",
                todo=f"write {nearest(ranges, lustre.size_gib)}, or take another throughput",
            )


class ExistingLustreKind(LustreKind):
    """A Lustre file system that this stack does not create."""

    name = "existing"
    keys = ()
    component = "components.gcp.filesystems:ExistingLustre"
    ready_seconds = 300  # it exists already
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

    def mounts(self, spec: MachineSpec) -> Iterable[MachineMount]:  # noqa: ARG002 - the same on every machine
        source = self.source
        return [
            MachineMount(kind=self.key, target=self.section.mount, fs_type="lustre", options=OPTIONS, source=source)
        ]

    def summary(self) -> Iterable[str]:
        yield f"Lustre ({self.section.kind}) at {self.section.mount}: {self.source}, which exists and stays"

    def find_warnings(self) -> Iterator[Finding]:
        yield from self.warn_unreachable(("storage", "lustre", "existing"), str(self.section.existing))
