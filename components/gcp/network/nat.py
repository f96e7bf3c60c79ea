"""Access to the internet for machines without a public address."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute

from cluster.config import ClusterConfig
from cluster.platforms.gcp.address_plan import NAT_ADDRESSES
from cluster.platforms.gcp.names import labels, place

LEAST_PORTS, MOST_PORTS = 64, 4096
"""Ports of one machine: pulling a container opens many connections to the same registry."""


@dataclass(frozen=True, kw_only=True)
class NatArgs:
    config: ClusterConfig
    network: pulumi.Input[str]
    after: Sequence[pulumi.Resource] = ()


class Nat(pulumi.ComponentResource):
    """A router with address translation. Its addresses stay the same, so that others can let them in."""

    addresses: list[pulumi.Output[str]]
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: NatArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Nat", name, {}, opts)
        config = args.config
        region = place(config).region
        child = pulumi.ResourceOptions(parent=self, depends_on=list(args.after))
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
            f"{name}-router", name=f"{config.name}-router", region=region, network=args.network, opts=child
        )
        gateway = compute.RouterNat(
            f"{name}-gateway",
            name=f"{config.name}-nat",
            region=region,
            router=router.name,
            nat_ip_allocate_option="MANUAL_ONLY",
            nat_ips=[one.self_link for one in public],
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            enable_dynamic_port_allocation=True,
            # The two can't be had together.
            enable_endpoint_independent_mapping=False,
            min_ports_per_vm=LEAST_PORTS,
            max_ports_per_vm=MOST_PORTS,
            opts=child,
        )
        self.addresses = [one.address for one in public]
        self.ready = [gateway]
        self.register_outputs({"addresses": self.addresses})
