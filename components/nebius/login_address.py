"""The static public address of the login Service."""

from dataclasses import dataclass

import pulumi

from components.nebius.cloud import Cloud, shortened


@dataclass(frozen=True, kw_only=True)
class LoginAddressArgs:
    cloud: Cloud
    subnet_id: pulumi.Input[str]


class LoginAddress(pulumi.ComponentResource):
    """An address that stays while the Service is created again; none for a Service that is not public."""

    allocation_id: pulumi.Output[str] | None = None
    address: pulumi.Output[str] | None = None

    def __init__(self, name: str, args: LoginAddressArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:LoginAddress", name, {}, opts)
        login = args.cloud.settings.login
        if login.service == "LoadBalancer" and login.exposure == "public":
            made = args.cloud.resource(
                "Allocation",
                f"{name}-allocation",
                {"ipv4_public": {"cidr": "/32", "subnet_id": args.subnet_id}},
                called=shortened(args.cloud.config.name, "static-ip"),
                opts=pulumi.ResourceOptions(parent=self),
            )
            self.allocation_id = made.id
            self.address = made.status.apply(lambda status: status["details"]["allocated_cidr"].partition("/")[0])
        self.register_outputs({"address": self.address})
