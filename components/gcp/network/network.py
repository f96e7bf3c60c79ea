"""The networks of a cluster: one for all machines, and those of its GPUs' fabric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute

from cluster.config import ClusterConfig
from cluster.config.network import ExistingNetwork
from cluster.platforms.gcp.address_plan import Plan, plan, reserved
from cluster.platforms.gcp.fabric import fabric_of
from cluster.platforms.gcp.names import labels, place
from components.gcp.barrier import Barrier
from components.gcp.network.firewall import EVERYTHING, allow, firewalls
from components.gcp.network.nat import Nat, NatArgs
from components.gcp.network.peering import Peering, PeeringArgs


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    config: ClusterConfig
    after: Sequence[pulumi.Resource] = ()
    """What has to be there before: the services that are used."""


class Network(pulumi.ComponentResource):
    """The networks, and who may talk to whom in them.

    In place of the system network the stack file may name one that is there already; then only its firewall rules and
    reserved addresses are made in it.
    """

    system: pulumi.Output[str]
    """Path of the system subnetwork."""
    system_network: pulumi.Output[str]
    """Path of the system network: projects/PROJECT/global/networks/NAME."""
    hosts: list[pulumi.Output[str]]
    """Subnetwork of each NIC for other traffic than that of the GPUs, in the NICs' order: the system's first."""
    gpu: list[tuple[pulumi.Output[str], pulumi.Output[str]]]
    """Network and subnetwork of each NIC of the fabric, in the NICs' order."""
    addresses: Mapping[str, pulumi.Output[str]]
    """Reserved address of the controller, each login machine and each Lustre server, by the machine's name."""
    tag: str
    """Network tag of every machine of the stack."""
    login_tag: str
    """Network tag, besides, of those that people log in to from outside."""
    services: pulumi.Resource | None
    """The peering with what Google runs for the stack; None where nothing needs it, or the network is not ours."""
    built: list[pulumi.Resource]
    """What a machine with a fixed address depends on: without it, it can't reach anything."""
    ready: pulumi.Resource
    """What all others depend on: without it they take an address that another is to have."""

    def __init__(self, name: str, args: NetworkArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Network", name, {}, opts)
        self._name, self._config, self._after = name, args.config, list(args.after)
        config, ranges = args.config, plan(args.config)
        self.tag, self.login_tag, self.services = config.name, f"{config.name}-login", None
        self.built, self._reserved = [], []
        if config.network.existing:
            self._existing(config.network.existing)
        else:
            self._own(ranges)
        self.built += firewalls(f"{name}-fw", config, ranges, self.system_network, opts=self._child())
        self._fabric = fabric_of(config)
        self.hosts = [self.system]
        if ranges.second:
            self.hosts.append(self._closed("second", ranges.second, mtu=self._fabric.system_mtu)[1])
        if self._fabric.profile:
            self.gpu = self._one_network(ranges.gpu)
        else:
            self.gpu = [
                self._closed(f"gpu-{index}", cidr, mtu=self._fabric.mtu) for index, cidr in enumerate(ranges.gpu)
            ]
        self.addresses = {machine: self._address(machine, ranges.of.get(machine)) for machine in reserved(config)}
        self.ready = Barrier(f"{name}-ready", [*self.built, *self._reserved], parent=self)
        gpu = [subnetwork for _, subnetwork in self.gpu]
        found = {"system": self.system, "system_network": self.system_network, "gpu": gpu}
        self.register_outputs({**found, "addresses": dict(self.addresses)})

    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=self._after)

    def _existing(self, given: ExistingNetwork) -> None:
        where = place(self._config)
        network, subnetwork = given.network, given.subnetwork
        if "/" not in network:
            network = f"projects/{where.project}/global/networks/{network}"
        if "/" not in subnetwork:
            # A shared network's subnetworks are in its own project.
            project = network.split("/")[1]
            subnetwork = f"projects/{project}/regions/{where.region}/subnetworks/{subnetwork}"
        self.system_network, self.system = pulumi.Output.from_input(network), pulumi.Output.from_input(subnetwork)

    def _own(self, ranges: Plan) -> None:
        network, subnetwork = self._vpc(
            "system", ranges.system, mtu=fabric_of(self._config).system_mtu, routing="GLOBAL"
        )
        self.system_network, self.system = network.id, subnetwork.id
        self.built.append(subnetwork)
        child = pulumi.ResourceOptions(parent=self)
        if self._config.network.nat:
            args = NatArgs(config=self._config, network=network.id, after=self._after)
            self.built += Nat(f"{self._name}-nat", args, opts=child).ready
        if ranges.managed:
            args = PeeringArgs(config=self._config, network=network.id, cidr=ranges.managed)
            self.services = Peering(f"{self._name}-services", args, opts=child).connection

    def _closed(self, part: str, cidr: str, *, mtu: int | None) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        """A network that nodes talk to each other in, and nobody else."""
        network, subnetwork = self._vpc(part, cidr, mtu=mtu, routing="REGIONAL")
        called = f"{self._config.name}-{part}-internal"
        rule = allow(f"{self._name}-{part}-fw", called, network.id, [cidr], allows=EVERYTHING, opts=self._child())
        self.built += [subnetwork, rule]
        return network.id, subnetwork.id

    def _one_network(self, ranges: Sequence[str]) -> list[tuple[pulumi.Output[str], pulumi.Output[str]]]:
        """One network with the fabric's profile, and a subnetwork for each NIC. No firewall rules: the profile allows
        all traffic in it, and takes none (cloud.google.com/vpc/docs/rdma-network-profiles)."""
        where = place(self._config)
        profile = f"projects/{where.project}/global/networkProfiles/{where.zone}-{self._fabric.profile}"
        network = self._network("gpu", mtu=self._fabric.mtu, routing="REGIONAL", profile=profile)
        subnetworks = [
            self._subnetwork(f"gpu-{index}", network, cidr, private_access=None) for index, cidr in enumerate(ranges)
        ]
        self.built += subnetworks
        return [(network.id, subnetwork.id) for subnetwork in subnetworks]

    def _vpc(
        self, part: str, cidr: str, *, mtu: int | None, routing: str
    ) -> tuple[compute.Network, compute.Subnetwork]:
        network = self._network(part, mtu=mtu, routing=routing)
        return network, self._subnetwork(part, network, cidr, private_access=True)

    def _network(self, part: str, *, mtu: int | None, routing: str, profile: str | None = None) -> compute.Network:
        name = self._config.name
        return compute.Network(
            f"{self._name}-{part}",
            name=f"{name}-{part}",
            description=f"hpc: {part} network of {name}",
            auto_create_subnetworks=False,
            routing_mode=routing,
            mtu=mtu,
            network_profile=profile,
            opts=self._child(),
        )

    def _subnetwork(
        self, part: str, network: compute.Network, cidr: str, *, private_access: bool | None
    ) -> compute.Subnetwork:
        return compute.Subnetwork(
            f"{self._name}-{part}-subnet",
            name=f"{self._config.name}-{part}-subnet",
            region=place(self._config).region,
            network=network.id,
            ip_cidr_range=cidr,
            private_ip_google_access=private_access,
            opts=self._child(),
        )

    def _address(self, machine: str, address: str | None) -> pulumi.Output[str]:
        config = self._config
        reserved = compute.Address(
            f"{self._name}-{machine.removeprefix(config.name + '-')}-address",
            name=f"{machine}-address",
            address=address,
            address_type="INTERNAL",
            subnetwork=self.system,
            region=place(config).region,
            labels=labels(config, "network"),
            opts=self._child(),
        )
        self._reserved.append(reserved)
        return reserved.address
