"""The controller: its machine, and the disk that outlives it."""

import pulumi
from pulumi_gcp import compute

from cluster.platforms.gcp.disks import state_disk
from cluster.platforms.gcp.names import labels
from cluster.roster import MachineSpec
from components.gcp.machines.boot import STATE_DEVICE
from components.gcp.machines.instance import MachineArgs, ssh_machine
from components.gcp.machines.login import public_address
from components.machine import Machine


class Controller(pulumi.ComponentResource):
    """The machine that runs slurmctld, slurmdbd and the accounting database."""

    machine: Machine
    public: pulumi.Output[str] | None
    """Its public address, if people log in to it from outside."""

    def __init__(
        self, name: str, args: MachineArgs, spec: MachineSpec, *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:gcp:Controller", name, {}, opts)
        config, (disk_type, size) = args.config, state_disk(args.config)
        # Not part of the machine: it is there before it and after it, and no change of the machine reaches it.
        disk = compute.Disk(
            f"{spec.name}-state",
            name=f"{spec.name}-state",
            type=disk_type,
            size=size,
            zone=args.zone(),
            labels=labels(config, "controller"),
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.after), protect=config.deletion_protection),
        )
        self.public = public_address(args, spec, parent=self)
        attached = [compute.InstanceAttachedDiskArgs(source=disk.id, device_name=STATE_DEVICE)]
        self.machine = ssh_machine(
            args, spec, config.controller.capacity, public=self.public, attached=attached, parent=self
        )
        self.register_outputs({"address": self.machine.address, "state_disk": disk.name})
