"""The subnet of a cluster: a given one, the project's first, or one of the cluster's own."""

from dataclasses import dataclass

import pulumi

from components.nebius.cloud import Cloud
from components.nebius.subnet import FirstSubnet


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    cloud: Cloud


class Network(pulumi.ComponentResource):
    """The subnet that everything is created in."""

    subnet_id: pulumi.Output[str]

    def __init__(self, name: str, args: NetworkArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Network", name, {}, opts)
        cloud, settings = args.cloud, args.cloud.settings
        child = pulumi.ResourceOptions(parent=self)
        if settings.subnet == "create":
            network = cloud.resource("Network", f"{name}-vpc", {}, called=cloud.config.name, opts=child)
            subnet = cloud.resource(
                "Subnet",
                f"{name}-subnet",
                # The network's own pools: private addresses that it has by default.
                {"network_id": network.id, "ipv4_private_pools": {"use_network_pools": True}},
                called=cloud.config.name,
                opts=child,
            )
            self.subnet_id = subnet.id
        elif settings.subnet:
            self.subnet_id = pulumi.Output.from_input(settings.subnet)
        else:
            found = FirstSubnet(
                f"{name}-first",
                project=settings.project,
                endpoint=settings.endpoint,
                opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=list(cloud.after))),
            )
            self.subnet_id = found.id
        self.register_outputs({"subnet_id": self.subnet_id})
