"""Machines where people log in."""

from collections.abc import Mapping, Sequence

import pulumi
from pulumi_gcp import compute

from cluster.platforms.gcp.names import labels, place
from cluster.roster import MachineSpec
from components.gcp.machines.instance import MachineArgs, ssh_machine
from components.machine import Machine

TIER = "PREMIUM"
"""Network tier of public addresses: every region has it, and traffic enters Google's network near the caller. STANDARD
is cheaper by the GB that leaves, of which SSH makes few."""


class Login(pulumi.ComponentResource):
    """The login machines. None has a public address unless the stack file asks for it."""

    machines: Sequence[Machine]
    public: Mapping[str, pulumi.Output[str]]
    """Public addresses by the machine's name."""

    def __init__(
        self, name: str, args: MachineArgs, specs: Sequence[MachineSpec], *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:gcp:Login", name, {}, opts)
        found = {spec.name: public_address(args, spec, parent=self) for spec in specs}
        self.public = {machine: address for machine, address in found.items() if address is not None}
        capacity = args.config.login.capacity
        self.machines = [
            ssh_machine(args, spec, capacity, public=self.public.get(spec.name), parent=self) for spec in specs
        ]
        self.register_outputs({"addresses": [machine.address for machine in self.machines], "public": self.public})


def public_address(args: MachineArgs, spec: MachineSpec, *, parent: pulumi.Resource) -> pulumi.Output[str] | None:
    """A public address that a machine keeps, if it is one to log in to and the stack file asks for it."""
    config = args.config
    if not config.login.public or "login" not in spec.roles:
        return None
    return compute.Address(
        f"{spec.name}-public",
        name=f"{spec.name}-public",
        address_type="EXTERNAL",
        network_tier=TIER,
        region=place(config).region,
        labels=labels(config, "network"),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=list(args.after)),
    ).address
