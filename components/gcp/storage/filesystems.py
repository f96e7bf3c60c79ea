"""File systems of a cluster as components."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

import pulumi
from pulumi_gcp import filestore, storage
from pulumi_gcp import lustre as managed_lustre
from pulumi_gcp.filestore.outputs import InstanceNetwork

from cluster.config import ClusterConfig
from cluster.platforms.gcp.address_plan import plan
from cluster.platforms.gcp.filesystems import lustre, nfs
from cluster.platforms.gcp.filesystems.base import FileSystem
from cluster.platforms.gcp.filesystems.buckets import Buckets as BucketsKind
from cluster.platforms.gcp.filesystems.registry import file_systems, mounts
from cluster.platforms.gcp.names import labels, place
from cluster.roster import MachineSpec
from components.gcp.network import Network

Kind = TypeVar("Kind", bound=FileSystem)
Lustre = TypeVar("Lustre", bound=lustre.LustreKind)


@dataclass(frozen=True, kw_only=True)
class FileSystemArgs(Generic[Kind]):
    config: ClusterConfig
    kind: Kind
    network: Network
    accounts: Mapping[str, pulumi.Input[str]]
    """Email of the service account of each role: controller, login, node."""


class FileSystemComponent(pulumi.ComponentResource, ABC, Generic[Kind]):
    """A file system, with the facts that machines and people need."""

    TYPE: ClassVar[str]
    """Type of the resource."""
    source: pulumi.Output[str] | None = None
    """The source of the mount, such as ADDRESS:/SHARE, where that is known only once it is made."""
    facts: Any
    """The entry in the stack's outputs."""
    ready: list[pulumi.Resource]
    """Dependencies of machines that mount it."""
    probe: pulumi.Output[str] | None = None
    """A shell command that waits until it answers; None where it does as soon as it is made."""

    def __init__(self, name: str, args: FileSystemArgs[Kind], *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, {}, opts)
        self.name, self.args = name, args
        self.make()

    @abstractmethod
    def make(self) -> None:
        """Make its resources, set the above, and register outputs."""


class Storage(pulumi.ComponentResource):
    """Every kind of file system that the stack file asks for."""

    facts: dict[str, Any]
    """The entries in the stack's outputs, by the key of each kind."""
    ready: list[pulumi.Resource]
    """Dependencies of machines that mount any of it."""
    probe: pulumi.Output[str] | None
    """A shell command that waits until the file systems answer that do not as soon as they are made."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        network: Network,
        accounts: Mapping[str, pulumi.Input[str]],
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`accounts` has the email of each role's service account."""
        super().__init__("hpc:gcp:Storage", name, {}, opts)
        self._config = config
        made: dict[str, FileSystemComponent[Any]] = {}
        for kind in file_systems(config):
            module, _, component = kind.component.partition(":")
            made[kind.key] = getattr(import_module(module), component)(
                f"{name}-{kind.key}",
                FileSystemArgs(config=config, kind=kind, network=network, accounts=accounts),
                opts=pulumi.ResourceOptions(parent=self),
            )
        self._sources = {key: system.source for key, system in made.items() if system.source is not None}
        self.facts = {key: system.facts for key, system in made.items()}
        self.ready = [resource for system in made.values() for resource in system.ready]
        self.probe = next((system.probe for system in made.values() if system.probe is not None), None)
        self.register_outputs({"facts": self.facts, "sources": self._sources})

    def mounts(self, spec: MachineSpec) -> list[dict[str, pulumi.Input[str]]]:
        """Return what a machine mounts, parents first, as its set-up takes it: source, target, fs_type, options."""
        return [
            {
                "source": mount.source or self._sources[mount.kind],
                "target": mount.target,
                "fs_type": mount.fs_type,
                "options": mount.options,
            }
            for mount in mounts(self._config, spec)
        ]


READ, WRITE = "roles/storage.objectViewer", "roles/storage.objectUser"


class Buckets(FileSystemComponent[BucketsKind]):
    """The machines' access to objects: read-only where the stack file sets that."""

    TYPE = "hpc:gcp:Buckets"

    def make(self) -> None:
        given = self.args.config.storage.buckets
        self.ready = [
            storage.BucketIAMMember(
                f"{self.name}-{bucket.name}-{role}",
                bucket=bucket.name,
                role=READ if bucket.read_only else WRITE,
                member=pulumi.Output.concat("serviceAccount:", email),
                opts=pulumi.ResourceOptions(parent=self),
            )
            for bucket in given
            for role, email in self.args.accounts.items()
        ]
        self.facts = {bucket.name: bucket.mount for bucket in given}
        self.register_outputs({"buckets": [bucket.name for bucket in given]})


class ExistingLustre(FileSystemComponent[lustre.ExistingLustre]):
    """A Lustre that machines mount once it answers."""

    TYPE = "hpc:gcp:ExistingLustre"

    def make(self) -> None:
        kind, given = self.args.kind, self.args.kind.section
        self.ready = []
        self.probe = pulumi.Output.from_input(kind.probe(str(given.existing)))
        self.facts = {
            "kind": kind.name,
            "fsname": given.fsname,
            "mount": given.mount,
            "source": kind.source,
            "server_ip": given.existing,
        }
        self.register_outputs({"source": kind.source})


class NfsDirectories(FileSystemComponent[nfs.Nfs]):
    """Directories of NFS servers."""

    TYPE = "hpc:gcp:NfsDirectories"

    def make(self) -> None:
        self.ready = []
        self.facts = [
            {"mount": section.mount, "source": f"{section.server}:{section.path}"}
            for section in self.args.kind.config.storage.nfs
        ]
        self.register_outputs({"directories": self.facts})


class FilestoreShare(FileSystemComponent[nfs.Filestore]):
    """A Filestore instance with one share."""

    TYPE = "hpc:gcp:FilestoreShare"

    def make(self) -> None:
        config, given, network = self.args.config, self.args.kind.section, self.args.network
        share = share_name(given.mount)
        direct = plan(config).filestore
        instance = filestore.Instance(
            f"{self.name}-instance",
            name=f"{config.name}-filestore",
            location=place(config).region if given.tier == "REGIONAL" else place(config).zone,
            tier=given.tier,
            file_shares=filestore.InstanceFileSharesArgs(name=share, capacity_gb=given.size_gb),
            networks=[
                filestore.InstanceNetworkArgs(
                    network=network.system_network,
                    modes=["MODE_IPV4"],
                    connect_mode="DIRECT_PEERING" if direct else "PRIVATE_SERVICE_ACCESS",
                    reserved_ip_range=direct,
                )
            ],
            labels=labels(config, "storage"),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=config.deletion_protection,
                depends_on=[network.services or network.ready],
            ),
        )
        address = instance.networks.apply(_address)
        self.source = pulumi.Output.format("{0}:/{1}", address, share)
        self.facts = {
            "tier": given.tier,
            "mount": given.mount,
            "source": self.source,
            "server_ip": address,
            "capacity_gib": given.size_gb,
        }
        self.ready = [instance]
        self.register_outputs({"source": self.source})


def share_name(mount: str) -> str:
    """Name of the share: never that of the directory that it is mounted at, which exportfs would stumble over."""
    return "shared" if mount.rpartition("/")[2] != "shared" else "files"


def _address(networks: Sequence[InstanceNetwork]) -> str:
    return (networks[0].ip_addresses or [""])[0]


class LustreComponent(FileSystemComponent[Lustre]):
    """The base of the two kinds of Lustre."""

    address: pulumi.Output[str]
    """Address of its management server."""

    def finish(self, address: pulumi.Output[str], source: pulumi.Output[str]) -> None:
        """Report where it is, how large, and how fast it can be at best. `source` is ADDRESS@tcp:/FSNAME."""
        kind, given = self.args.kind, self.args.kind.section
        figures = kind.expected(given)
        self.address, self.source, self.probe = address, source, address.apply(kind.probe)
        self.facts = {
            "kind": kind.name,
            "fsname": given.fsname,
            "mount": given.mount,
            "source": source,
            "server_ip": address,
            "capacity_gib": figures.capacity_gib,
            "bandwidth_mbps": {"read": figures.read_mbps, "write": figures.write_mbps},
            **self.more_facts(),
        }
        self.register_outputs({"source": source, "address": address})

    def more_facts(self) -> dict[str, object]:
        return {}


class ManagedLustre(LustreComponent[lustre.Managed]):
    """An instance of Managed Lustre, in the peered network."""

    TYPE = "hpc:gcp:ManagedLustre"

    def make(self) -> None:
        config, given, network = self.args.config, self.args.kind.section, self.args.network
        instance = managed_lustre.Instance(
            f"{self.name}-instance",
            instance_id=f"{config.name}-lustre",
            location=place(config).zone,
            filesystem=given.fsname,
            capacity_gib=str(given.size_gib),
            per_unit_storage_throughput=str(given.throughput),
            network=network.system_network,
            labels=labels(config, "lustre"),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=config.deletion_protection,
                # An existing network has its own peering, which is not in the stack.
                depends_on=[network.services or network.ready],
            ),
        )
        self.ready = [instance]
        self.finish(instance.mount_point.apply(lambda at: at.partition("@")[0]), instance.mount_point)
