"""What the two kinds of Lustre have in common."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cluster.catalog.recipes import RECIPES
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import given, shown
from cluster.config.storage import Lustre
from cluster.findings import Finding, listing
from cluster.platforms.gcp.defaults import BASE_IMAGES
from cluster.platforms.gcp.filesystems.base import FileSystem, Mount, Place
from cluster.roster import MachineSpec

OPTIONS = "flock,noatime,_netdev"
"""flock: locks hold between machines, which HDF5, SQLite and package managers on /home rely on."""
READY = Path(__file__).parents[4] / "scripts" / "lustre" / "ready.sh"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Capacity and bandwidth of a file system.

    Bandwidths are the limits of disks and machines, so clients together get that at most, and less where they are few:
    DDN's own example, sixteen servers with 3.5 TB each and eight clients, measured 7.4 GiB/s of reading and 6.3 GiB/s
    of writing, where the limits are 18.8 GB/s each.
    """

    capacity_gib: int
    """GiB of the targets; the file system itself needs a few in a hundred of them."""
    read_mbps: int
    """MB/s (10^6 bytes) of reading by all clients together, at most."""
    write_mbps: int
    """MB/s of writing by all clients together, at most."""


class LustreKind(FileSystem):
    """A Lustre file system, whoever runs its servers."""

    key = "lustre"
    name: ClassVar[str]
    """As `storage.lustre.kind` has it."""
    keys: ClassVar[tuple[str, ...]]
    """Keys of the section that this kind alone reads."""
    ready_seconds: ClassVar[int]
    """How long the first mount waits for the servers."""
    web: ClassVar[bool] = False
    """Whether the management server has the clients' packages, by HTTP."""

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
        """What the section says that it is."""
        return f"kind: {self.name}"

    @staticmethod
    @abstractmethod
    def expected(lustre: Lustre) -> Expected:
        """Capacity and bandwidth of the file system that a section describes."""

    def places(self) -> Iterable[Place]:
        return [Place(at=("storage", "lustre"), path=self.section.mount, owner="Lustre's")]

    def mounts(self, spec: MachineSpec) -> Iterable[Mount]:  # noqa: ARG002 - the same on every machine
        return [Mount(kind=self.key, target=self.section.mount, fs_type="lustre", options=OPTIONS)]

    def probe(self, address: str) -> str:
        """A shell command that waits until the file system at `address` answers, and prints what is missing.

        Runs anywhere in the system network; needs only bash, and changes nothing.
        """
        web = " --web" if self.web else ""
        return f"bash -s -- {address} {self.ready_seconds}{web} <<'LUSTRE_READY'\n{READY.read_text()}LUSTRE_READY\n"

    def summary(self) -> Iterable[str]:
        found = self.expected(self.section)
        yield (
            f"Lustre ({self.name}) at {self.section.mount}: {found.capacity_gib:,} GiB; at most "
            f"{found.read_mbps:,} MB/s of reading, {found.write_mbps:,} MB/s of writing"
        )

    def find_errors(self) -> Iterator[Finding]:
        """Keys of another kind, and a system without a client."""
        for other in LustreKind.__subclasses__():
            for key in other.keys if other.name != self.name else ():
                if (value := given(self.section, key)) is not None:
                    yield Finding(
                        id="lustre-kind-field",
                        at=("storage", "lustre", key),
                        given=shown(value),
                        allowed=f"nothing with {self.title}; {key} is for kind: {other.name}",
                        todo="remove it" + (f", or write `kind: {other.name}`" if self.keys else ""),
                    )
        base, version = self.config.image.base, self.config.image.recipe
        if (version, base, self.client) not in RECIPES and base in BASE_IMAGES:
            bases = [one for of, one, lustre in RECIPES if (of, lustre) == (version, self.client)]
            yield Finding(
                id="lustre-client",
                at=("image", "base"),
                given=f"{base}, with {self.client} Lustre",
                allowed=f"a system for whose kernel there is a client of {self.client} Lustre: {listing(bases)}",
                todo=f"write `base: {bases[0]}`, or take storage.lustre out",
            )
