"""The base of all kinds of file systems on Google Cloud.

A kind is a subclass of FileSystem, with its section in `cluster.config.storage`, its Pulumi component, and one line in
`registry.KINDS`. Addresses, firewall rules, services, roles, policies, mounts, checks and summaries follow from it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from cluster.catalog import MachineType
from cluster.config.cluster import ClusterConfig
from cluster.config.storage import Targets
from cluster.cost_parts import Part
from cluster.findings import Finding, Level, Location
from cluster.roster import MachineSpec

NFS = "hard,noatime,_netdev"
"""Mount options. hard: clients wait for a server that is away, since an error would make jobs lose what they wrote."""


@dataclass(frozen=True, kw_only=True)
class ServiceNeed:
    """The services and roles that one type of resource needs."""

    services: tuple[str, ...]
    """Services of Google Cloud, by the part before .googleapis.com."""
    roles: tuple[str, ...]
    """Roles on the project of the person who creates, updates and deletes it."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A directory where a file system is mounted, on every machine."""

    at: Location
    """The section of the stack file."""
    path: str
    owner: str
    """The owner's name in messages: Lustre's."""
    posix: bool = True
    """True if it has owners, locks and renaming, as /home needs."""


@dataclass(frozen=True, kw_only=True)
class MachineMount:
    """A mount of a file system on a machine."""

    kind: str
    """Key of its kind; `controller` for the controller's exports."""
    target: str
    fs_type: str
    options: str
    source: str | None = None
    """The source, if it is known before the servers are created: the controller's export, the bucket."""


@dataclass(frozen=True, kw_only=True)
class TargetDisk:
    """A disk of a server that the stack creates."""

    name: str
    host: str
    """Server that it is attached to."""
    role: str
    """The disk's use; of EXAScaler mgt, mnt, mdt or ost."""
    index: int
    """Number among all disks of its role."""
    targets: Targets


@dataclass(frozen=True, kw_only=True)
class FileServer:
    """A server that the stack creates."""

    name: str
    kind: str
    """The server's role in its file system; of EXAScaler mgs, mds or oss."""
    index: int
    machine_type: MachineType
    disks: tuple[TargetDisk, ...]

    @property
    def boot_disk(self) -> str:
        """Name of the boot disk."""
        return f"{self.name}-boot-disk"


class FileSystem(ABC):
    """A file system of a stack. A kind overrides the attributes and methods whose defaults do not fit it."""

    key: ClassVar[str]
    """The key in the stack's outputs and in names of resources, and the kind of its mounts."""
    component: ClassVar[str]
    """The Pulumi component, `module:class`, which takes FileSystemArgs (components/gcp/filesystems.py)."""
    needs: ClassVar[Mapping[str, ServiceNeed]] = {}
    """Services and roles for the resources that only this kind has, by the beginning of a resource's type."""
    client: str | None = None
    """Kind of Lustre client that images need, as the recipes name it."""
    unsigned_servers: ClassVar[bool] = False
    """True if it has servers that can't boot with Secure Boot."""
    callback_ports: tuple[str, ...] | None = ()
    """TCP ports of all machines that servers run by Google connect to; None for every port."""
    peered: bool = False
    """True if it is reached by private service access, with an address of the range for it."""
    own_range: bool = False
    """True if it has a peering and a range of its own, as Filestore's basic tier has."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config

    @property
    def location(self) -> str:
        """The zone or region in which Google runs its servers; empty if Google does not."""
        return ""

    @property
    def service(self) -> str:
        """The service of Google Cloud that it is a resource of, by the part before .googleapis.com."""
        return next(iter(self.needs.values())).services[0]

    @classmethod
    @abstractmethod
    def used(cls, config: ClusterConfig) -> bool:
        """Return whether the stack has a file system of this kind."""

    @abstractmethod
    def places(self) -> Iterable[Place]:
        """Return where it is mounted."""

    @abstractmethod
    def mounts(self, spec: MachineSpec) -> Iterable[MachineMount]:
        """Return a machine's mounts of it."""

    def servers(self) -> Iterable[FileServer]:
        return ()

    def cost_parts(self) -> Iterable[Part]:
        """Return the parts that cost money, with their protection."""
        return ()

    def summary(self) -> Iterable[str]:
        """Return lines for the end of a preview: capacity and bandwidth."""
        return ()

    def pages(self) -> Mapping[str, str]:
        """Return the paths of its pages in the Cloud Console, by what they show."""
        return {}

    def find_errors(self) -> Iterable[Finding]:
        return ()

    def find_warnings(self) -> Iterable[Finding]:
        return ()

    def warn_unreachable(self, at: Location, address: str) -> Iterable[Finding]:
        """Yield a warning about an existing server if the stack's own network may not reach it."""
        if self.config.network.existing is None:
            yield Finding(
                id="existing-file-system-network",
                level=Level.WARNING,
                at=at,
                what=f"the stack has a network of its own, from which {address} is reached only if you connect the "
                "two; Managed Lustre and Filestore answer in the network alone that they were made with",
                todo="name that network in network.existing, with its services_cidr",
            )
