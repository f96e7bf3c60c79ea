"""Private service access: the peering through which machines reach what Google runs for the stack."""

import ipaddress
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute, servicenetworking

from cluster.config import ClusterConfig
from cluster.platforms.gcp.names import labels


@dataclass(frozen=True, kw_only=True)
class PeeringArgs:
    config: ClusterConfig
    network: pulumi.Input[str]
    cidr: str
    """Range that Google may take addresses from."""


class Peering(pulumi.ComponentResource):
    """A range set aside for Google's services, and the connection to them."""

    connection: servicenetworking.Connection

    def __init__(self, name: str, args: PeeringArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Peering", name, {}, opts)
        config, cidr = args.config, ipaddress.IPv4Network(args.cidr)
        child = pulumi.ResourceOptions(parent=self)
        reserved = compute.GlobalAddress(
            f"{name}-range",
            name=f"{config.name}-services",
            address=str(cidr.network_address),
            prefix_length=cidr.prefixlen,
            address_type="INTERNAL",
            purpose="VPC_PEERING",
            network=args.network,
            labels=labels(config, "network"),
            opts=child,
        )
        self.connection = servicenetworking.Connection(
            f"{name}-connection",
            network=args.network,
            service="servicenetworking.googleapis.com",
            reserved_peering_ranges=[reserved.name],
            # Google keeps its side for days after the last instance is gone, and refuses to end the connection until
            # then; without the peering the network can go, and with ABANDON it could not.
            deletion_policy="REMOVE_PEERING",
            # For the same reason a stack that is recreated may find the old connection.
            update_on_creation_fail=True,
            opts=child,
        )
        self.register_outputs({"range": reserved.name, "connection": self.connection.id})
