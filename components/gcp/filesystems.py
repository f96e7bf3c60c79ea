"""The file systems of a cluster on Google Cloud, one component for each kind."""

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
from cluster.platforms.gcp.filesystems.buckets import BucketsKind
from cluster.platforms.gcp.filesystems.registry import file_systems, mounts
from cluster.platforms.gcp.names import labels
from cluster.roster import MachineSpec
from components.gcp.network import GoogleNetwork

Kind = TypeVar("Kind", bound=FileSystem)
Lustre = TypeVar("Lustre", bound=lustre.LustreKind)


@dataclass(frozen=True, kw_only=True)
class FileSystemArgs(Generic[Kind]):
    config: ClusterConfig
    kind: Kind
    network: GoogleNetwork
    accounts: Mapping[str, pulumi.Input[str]]
    """Email of the service account of each role: controller, login, node."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist before anything that costs money."""


class FileSystemComponent(pulumi.ComponentResource, ABC, Generic[Kind]):
    """The base of the components: a file system, with its source for mounts and its entry in the stack's outputs."""

    TYPE: ClassVar[str]
    """Type of the resource."""
    source: pulumi.Output[str] | None = None
    """The source of the mount, such as ADDRESS:/SHARE, where that is known only once the file system exists."""
    facts: Any
    """The entry in the stack's outputs."""
    ready: list[pulumi.Resource]
    """Dependencies of machines that mount it."""
    probe: pulumi.Output[str] | None = None
    """A shell command that waits until the file system answers; None if it answers as soon as it is created."""

    def __init__(self, name: str, args: FileSystemArgs[Kind], *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, {}, opts)
        self.name, self.args = name, args
        self.create()

    @abstractmethod
    def create(self) -> None:
        """Create the resources, set the attributes above, and register outputs."""


class GoogleStorage(pulumi.ComponentResource):
    """Every kind of file system that the stack file asks for."""

    facts: dict[str, Any]
    """The entries in the stack's outputs, by the key of each kind."""
    ready: list[pulumi.Resource]
    """Dependencies of machines that mount any of it."""
    probe: pulumi.Output[str] | None
    """A shell command that waits for a file system that does not answer as soon as it is created; None without one."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        network: GoogleNetwork,
        accounts: Mapping[str, pulumi.Input[str]],
        after: Sequence[pulumi.Resource] = (),
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`accounts` has the email of each role's service account. File systems are created after `after`."""
        super().__init__("hpc:gcp:Storage", name, {}, opts)
        self._config = config
        components: dict[str, FileSystemComponent[Any]] = {}
        for kind in file_systems(config):
            module, _, component = kind.component.partition(":")
            components[kind.key] = getattr(import_module(module), component)(
                f"{name}-{kind.key}",
                FileSystemArgs(config=config, kind=kind, network=network, accounts=accounts, after=after),
                opts=pulumi.ResourceOptions(parent=self),
            )
        self._sources = {key: system.source for key, system in components.items() if system.source is not None}
        self.facts = {key: system.facts for key, system in components.items()}
        self.ready = [resource for system in components.values() for resource in system.ready]
        self.probe = next((system.probe for system in components.values() if system.probe is not None), None)
        self.register_outputs({"facts": self.facts, "sources": self._sources})

    def mounts(self, spec: MachineSpec) -> list[dict[str, pulumi.Input[str]]]:
        """Return a machine's mounts, parents first, as its set-up takes them: source, target, fs_type, options."""
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

    def create(self) -> None:
        buckets = self.args.config.storage.buckets
        self.ready = [
            storage.BucketIAMMember(
                f"{self.name}-{bucket.name}-{role}",
                bucket=bucket.name,
                role=READ if bucket.read_only else WRITE,
                member=pulumi.Output.concat("serviceAccount:", email),
                opts=pulumi.ResourceOptions(parent=self),
            )
            for bucket in buckets
            for role, email in self.args.accounts.items()
        ]
        self.facts = {bucket.name: bucket.mount for bucket in buckets}
        self.register_outputs({"buckets": [bucket.name for bucket in buckets]})


class ExistingLustre(FileSystemComponent[lustre.ExistingLustreKind]):
    """A Lustre that machines mount once it answers."""

    TYPE = "hpc:gcp:ExistingLustre"

    def create(self) -> None:
        kind, section = self.args.kind, self.args.kind.section
        self.ready = []
        self.probe = pulumi.Output.from_input(kind.probe(str(section.existing)))
        self.facts = {
            "kind": kind.name,
            "fsname": section.fsname,
            "mount": section.mount,
            "source": kind.source,
            "server_ip": section.existing,
        }
        self.register_outputs({"source": kind.source})


class NfsDirectories(FileSystemComponent[nfs.NfsKind]):
    """Directories of NFS servers."""

    TYPE = "hpc:gcp:NfsDirectories"

    def create(self) -> None:
        self.ready = []
        self.facts = [
            {"mount": section.mount, "source": f"{section.server}:{section.path}"}
            for section in self.args.kind.config.storage.nfs
        ]
        self.register_outputs({"directories": self.facts})


class FilestoreShare(FileSystemComponent[nfs.FilestoreKind]):
    """A Filestore instance with one share."""

    TYPE = "hpc:gcp:FilestoreShare"

    def create(self) -> None:
        config, section, network = self.args.config, self.args.kind.section, self.args.network
        share = share_name(section.mount)
        direct = plan(config).filestore
        instance = filestore.Instance(
            f"{self.name}-instance",
            name=f"{config.name}-filestore",
            location=self.args.kind.location,
            tier=section.tier,
            file_shares=filestore.InstanceFileSharesArgs(name=share, capacity_gb=section.size_gb),
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
                depends_on=[network.services or network.ready, *self.args.after],
            ),
        )
        address = instance.networks.apply(_address)
        self.source = pulumi.Output.format("{0}:/{1}", address, share)
        self.facts = {
            "tier": section.tier,
            "mount": section.mount,
            "source": self.source,
            "server_ip": address,
            "capacity_gib": section.size_gb,
        }
        self.ready = [instance]
        self.register_outputs({"source": self.source})


def share_name(mount: str) -> str:
    """Return the name of the share. It differs from the mount point's last part, since exportfs fails on equal
    names."""
    return "shared" if mount.rpartition("/")[2] != "shared" else "files"


def _address(networks: Sequence[InstanceNetwork]) -> str:
    return (networks[0].ip_addresses or [""])[0]


class LustreComponent(FileSystemComponent[Lustre]):
    """The base of the two kinds of Lustre that a stack creates."""

    address: pulumi.Output[str]
    """Address of its management server."""

    def finish(self, address: pulumi.Output[str], source: pulumi.Output[str]) -> None:
        """Set source, probe and facts: address, capacity, largest bandwidth. `source` is ADDRESS@tcp:/FSNAME."""
        kind, section = self.args.kind, self.args.kind.section
        figures = kind.expected(section)
        self.address, self.source, self.probe = address, source, address.apply(kind.probe)
        self.facts = {
            "kind": kind.name,
            "fsname": section.fsname,
            "mount": section.mount,
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

    def create(self) -> None:
        config, section, network = self.args.config, self.args.kind.section, self.args.network
        instance = managed_lustre.Instance(
            f"{self.name}-instance",
            instance_id=f"{config.name}-lustre",
            location=self.args.kind.location,
            filesystem=section.fsname,
            capacity_gib=str(section.size_gib),
            per_unit_storage_throughput=str(section.throughput),
            network=network.system_network,
            labels=labels(config, "lustre"),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=config.deletion_protection,
                # The peering of an existing network is not in the stack.
                depends_on=[network.services or network.ready, *self.args.after],
            ),
        )
        self.ready = [instance]
        self.finish(instance.mount_point.apply(lambda at: at.partition("@")[0]), instance.mount_point)
