"""The network of a cluster: its subnet, and the public address of its login Service."""

from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, ReadResult

from components.dynamic import ActionProvider, DynamicResource, given, without_traceback
from components.nebius.api.client import NebiusError
from components.nebius.resource import Cloud, shortened


class FirstSubnetProvider(ActionProvider):
    """Finds a subnet once; the stack keeps its id, whatever subnets come later. Another project has others."""

    LEAVES_NOTHING = False
    PLACE = ("project",)
    ACTED_ON = ("endpoint",)

    def create(self, props: dict[str, Any]) -> CreateResult:
        from components.nebius.api import objects

        with without_traceback(NebiusError):
            return CreateResult(objects.first_subnet(props["project"], props["endpoint"]), given(props))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        from components.nebius.api import objects

        with without_traceback(NebiusError):
            there = objects.exists("Subnet", id_, props["endpoint"])
        return ReadResult(id_ if there else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Do nothing: the subnet was there before."""


class FirstSubnet(DynamicResource, module="nebius", name="FirstSubnet"):
    """A lookup; its id is the subnet's."""

    def __init__(self, name: str, *, project: str, endpoint: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(FirstSubnetProvider(), name, {"project": project, "endpoint": endpoint}, opts)


class Network(pulumi.ComponentResource):
    """The subnet that everything is created in."""

    subnet_id: pulumi.Output[str]

    def __init__(self, name: str, cloud: Cloud, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Network", name, {}, opts)
        settings = cloud.settings
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


class LoginAddress(pulumi.ComponentResource):
    """An address that stays while the Service is created again; none for a Service that is not public."""

    allocation_id: pulumi.Output[str] | None = None
    address: pulumi.Output[str] | None = None

    def __init__(
        self, name: str, cloud: Cloud, subnet_id: pulumi.Input[str], *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:nebius:LoginAddress", name, {}, opts)
        login = cloud.settings.login
        if login.service == "LoadBalancer" and login.exposure == "public":
            made = cloud.resource(
                "Allocation",
                f"{name}-allocation",
                {"ipv4_public": {"cidr": "/32", "subnet_id": subnet_id}},
                called=shortened(cloud.config.name, "static-ip"),
                opts=pulumi.ResourceOptions(parent=self),
            )
            self.allocation_id = made.id
            self.address = made.status.apply(lambda status: status["details"]["allocated_cidr"].partition("/")[0])
        self.register_outputs({"address": self.address})
