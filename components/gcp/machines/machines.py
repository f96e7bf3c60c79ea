"""All machines of a cluster on Google Cloud."""

import pulumi

from cluster.roster import machines
from components.gcp.machines.controller import Controller
from components.gcp.machines.instance import MachineArgs
from components.gcp.machines.login import Login
from components.gcp.machines.nodeset import Nodeset
from components.machine import Machine


class Machines(pulumi.ComponentResource):
    """Controller, login machines and nodes."""

    machines: tuple[Machine, ...]
    """In the roster's order: controller, login machines, nodes."""
    public: dict[str, pulumi.Output[str]]
    """Public addresses, by the name of the machine that has one."""

    def __init__(self, name: str, args: MachineArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Machines", name, {}, opts)
        config, child = args.config, pulumi.ResourceOptions(parent=self)
        specs = machines(config)
        controller = Controller(config.name, args, specs[0], opts=child)
        found, self.public = [controller.machine], {}
        if controller.public is not None:
            self.public[specs[0].name] = controller.public
        if logins := [spec for spec in specs if spec.roles == ("login",)]:
            login = Login(f"{config.name}-login", args, logins, opts=child)
            found += login.machines
            self.public |= login.public
        for nodeset, section in config.nodesets.items():
            if not section.on:
                nodes = [spec for spec in specs if spec.roles == ("node",) and spec.nodeset == nodeset]
                found += Nodeset(f"{config.name}-{nodeset}", args, section, nodes, opts=child).machines
        self.machines = tuple(found)
        self.register_outputs({"machines": len(found)})
