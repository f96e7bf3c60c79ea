"""The networks of a cluster: one for all machines, those of its GPUs, firewall rules, Cloud NAT and the peering."""

import ipaddress
from collections.abc import Mapping, Sequence

import pulumi
from pulumi_gcp import compute, servicenetworking

from cluster.config import ClusterConfig
from cluster.config.network import ExistingNetwork
from cluster.platforms.gcp import iap
from cluster.platforms.gcp.address_plan import (
    NAT_ADDRESSES,
    Plan,
    callback_ports,
    fabric_of,
    plan,
    reserved,
    service_ranges,
)
from cluster.platforms.gcp.names import host_project, labels, place
from cluster.roster import monitoring_machine
from components.gcp.barrier import Barrier
from scripts.node.interface import PROMETHEUS_PORT

LNET_PORT = 988
"""Port of Lustre's network."""
EVERYTHING: Mapping[str, list[str] | None] = {"tcp": ["0-65535"], "udp": ["0-65535"], "icmp": None}
SSH: Mapping[str, list[str] | None] = {"tcp": ["22"]}


def firewalls(
    name: str, config: ClusterConfig, ranges: Plan, network: pulumi.Input[str], *, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Create the firewall rules of the system network.

    In an existing network every rule applies only to machines with the stack's tag.
    """
    tag, project = [config.name] if config.network.existing else None, host_project(config)

    def rule(
        part: str, sources: list[str], allows: Mapping[str, list[str] | None], tags: list[str] | None = tag
    ) -> compute.Firewall:
        called = f"{config.name}-{part}"
        return allow(f"{name}-{part}", called, network, sources, allows=allows, tags=tags, project=project, opts=opts)

    rules: list[pulumi.Resource] = [rule("internal", [ranges.system], EVERYTHING), rule("iap", [iap.SOURCES], SSH)]
    if config.network.admin_cidrs:
        rules.append(rule("admin", list(config.network.admin_cidrs), SSH, [f"{config.name}-login"]))
    if services := service_ranges(config):
        rules.append(rule("services", services, {"tcp": callback_ports(config)}))
    return rules


def allow(
    name: str,
    called: str,
    network: pulumi.Input[str],
    sources: list[str],
    *,
    allows: Mapping[str, list[str] | None],
    tags: list[str] | None = None,
    project: str | None = None,
    opts: pulumi.ResourceOptions,
) -> compute.Firewall:
    """Create a firewall rule that allows protocols on ports (None: all) to machines with one of the `tags` (None:
    all)."""
    return compute.Firewall(
        name,
        name=called,
        project=project,
        network=network,
        direction="INGRESS",
        source_ranges=sources,
        target_tags=tags,
        allows=[compute.FirewallAllowArgs(protocol=protocol, ports=ports) for protocol, ports in allows.items()],
        opts=opts,
    )


LEAST_PORTS, MOST_PORTS = 64, 4096
"""Ports of Cloud NAT for one machine: pulling a container opens many connections to the same registry."""


class Nat(pulumi.ComponentResource):
    """A router with Cloud NAT. Its addresses stay the same, so that others can allow them in their firewalls."""

    ready: pulumi.Resource

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        network: pulumi.Input[str],
        after: Sequence[pulumi.Resource],
        *,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("hpc:gcp:Nat", name, {}, opts)
        region = place(config).region
        child = pulumi.ResourceOptions(parent=self, depends_on=list(after))
        public = [
            compute.Address(
                f"{name}-address-{index}",
                name=f"{config.name}-nat-{index}",
                region=region,
                address_type="EXTERNAL",
                labels=labels(config, "network"),
                opts=child,
            )
            for index in range(NAT_ADDRESSES)
        ]
        router = compute.Router(
            f"{name}-router", name=f"{config.name}-router", region=region, network=network, opts=child
        )
        self.ready = compute.RouterNat(
            f"{name}-gateway",
            name=f"{config.name}-nat",
            region=region,
            router=router.name,
            nat_ip_allocate_option="MANUAL_ONLY",
            nat_ips=[address.self_link for address in public],
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            enable_dynamic_port_allocation=True,
            # Google refuses it together with dynamic port allocation.
            enable_endpoint_independent_mapping=False,
            min_ports_per_vm=LEAST_PORTS,
            max_ports_per_vm=MOST_PORTS,
            opts=child,
        )
        self.register_outputs({"addresses": [address.address for address in public]})


class Peering(pulumi.ComponentResource):
    """A range reserved for Google's services, and the connection to them."""

    connection: servicenetworking.Connection

    def __init__(
        self, name: str, config: ClusterConfig, network: pulumi.Input[str], cidr: str, *, opts: pulumi.ResourceOptions
    ) -> None:
        """`cidr` is the range that Google may take addresses from."""
        super().__init__("hpc:gcp:Peering", name, {}, opts)
        block = ipaddress.IPv4Network(cidr)
        child = pulumi.ResourceOptions(parent=self)
        reserved = compute.GlobalAddress(
            f"{name}-range",
            name=f"{config.name}-services",
            address=str(block.network_address),
            prefix_length=block.prefixlen,
            address_type="INTERNAL",
            purpose="VPC_PEERING",
            network=network,
            labels=labels(config, "network"),
            opts=child,
        )
        self.connection = servicenetworking.Connection(
            f"{name}-connection",
            network=network,
            service="servicenetworking.googleapis.com",
            reserved_peering_ranges=[reserved.name],
            # Google keeps its side for days after the last instance is deleted, and refuses to delete the connection
            # until then. Without the peering the network can be deleted; with ABANDON it could not.
            deletion_policy="REMOVE_PEERING",
            # For the same reason the old connection may still exist when a stack is created again.
            update_on_creation_fail=True,
            opts=child,
        )
        self.register_outputs({"range": reserved.name, "connection": self.connection.id})


class GoogleNetwork(pulumi.ComponentResource):
    """The networks, and their firewall rules.

    The stack file may name an existing network as system network. Then only firewall rules and reserved addresses are
    created in it.
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
    """Additional network tag of the machines that people log in to from outside."""
    services: pulumi.Resource | None
    """The peering with services that Google runs; None where none is needed, and in an existing network."""
    built: list[pulumi.Resource]
    """Dependencies of a machine with a fixed address: without them it has no network."""
    ready: pulumi.Resource
    """Dependency of all other machines: before it Google could give them an address that is reserved for another."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        after: Sequence[pulumi.Resource] = (),
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`after` are resources that must exist first: the services of Google Cloud."""
        super().__init__("hpc:gcp:Network", name, {}, opts)
        self._name, self._config, self._after = name, config, list(after)
        ranges = plan(config)
        self.tag, self.login_tag, self.services = config.name, f"{config.name}-login", None
        self.built, self._reserved, self._fabric = [], [], fabric_of(config)
        if config.network.existing:
            self._use_existing_network(config.network.existing)
        else:
            self._create_system_network(ranges)
        self.built += firewalls(f"{name}-fw", config, ranges, self.system_network, opts=self._child())
        self.hosts = [self.system]
        if ranges.second:
            self.hosts.append(self._internal_network("second", ranges.second, mtu=self._fabric.system_mtu)[1])
        if self._fabric.profile:
            self.gpu = self._profile_network(ranges.gpu)
        else:
            mtu = self._fabric.mtu
            self.gpu = [self._internal_network(f"gpu-{index}", cidr, mtu=mtu) for index, cidr in enumerate(ranges.gpu)]
        self.addresses = {machine: self._address(machine, ranges.of.get(machine)) for machine in reserved(config)}
        if config.monitoring and config.monitoring.web and config.monitoring.web.cidrs:
            self.built.append(self._prometheus_firewall(list(config.monitoring.web.cidrs)))
        self.ready = Barrier(f"{name}-ready", [*self.built, *self._reserved], parent=self)
        self.register_outputs(
            {
                "system": self.system,
                "system_network": self.system_network,
                "gpu": [subnetwork for _, subnetwork in self.gpu],
                "addresses": dict(self.addresses),
            }
        )

    def role_tag(self, role: str) -> str:
        """Return the additional network tag of the one machine with this role."""
        return f"{self.tag}-{role}"

    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=self._after)

    def _prometheus_firewall(self, sources: list[str]) -> compute.Firewall:
        config = self._config
        return allow(
            f"{self._name}-fw-prometheus",
            f"{config.name}-prometheus",
            self.system_network,
            sources,
            allows={"tcp": [str(PROMETHEUS_PORT)]},
            tags=[self.role_tag("monitoring" if monitoring_machine(config) else "controller")],
            project=host_project(config),
            opts=self._child(),
        )

    def _use_existing_network(self, existing: ExistingNetwork) -> None:
        network, subnetwork = existing.network, existing.subnetwork
        if "/" not in network:
            network = f"projects/{place(self._config).project}/global/networks/{network}"
        if "/" not in subnetwork:
            # A shared network's subnetworks are in its own project.
            project = network.split("/")[1]
            subnetwork = f"projects/{project}/regions/{place(self._config).region}/subnetworks/{subnetwork}"
        self.system_network, self.system = pulumi.Output.from_input(network), pulumi.Output.from_input(subnetwork)

    def _create_system_network(self, ranges: Plan) -> None:
        network, subnetwork = self._vpc("system", ranges.system, mtu=self._fabric.system_mtu, routing="GLOBAL")
        self.system_network, self.system = network.id, subnetwork.id
        self.built.append(subnetwork)
        child = pulumi.ResourceOptions(parent=self)
        if self._config.network.nat:
            self.built.append(Nat(f"{self._name}-nat", self._config, network.id, self._after, opts=child).ready)
        if ranges.managed:
            peering = Peering(f"{self._name}-services", self._config, network.id, ranges.managed, opts=child)
            self.services = peering.connection

    def _internal_network(
        self, part: str, cidr: str, *, mtu: int | None
    ) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        """Create a network in which only the nodes can connect to each other."""
        network, subnetwork = self._vpc(part, cidr, mtu=mtu, routing="REGIONAL")
        called = f"{self._config.name}-{part}-internal"
        rule = allow(f"{self._name}-{part}-fw", called, network.id, [cidr], allows=EVERYTHING, opts=self._child())
        self.built += [subnetwork, rule]
        return network.id, subnetwork.id

    def _profile_network(self, ranges: Sequence[str]) -> list[tuple[pulumi.Output[str], pulumi.Output[str]]]:
        """Create a network with the fabric's profile, and a subnetwork for each NIC. It has no firewall rules: the
        profile allows all traffic in it, and accepts none (cloud.google.com/vpc/docs/rdma-network-profiles)."""
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
