"""What all machines on Google Cloud have in common, in the provider's own classes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute

from cluster.config import ClusterConfig
from cluster.config.machines import BasicCapacity
from cluster.platforms.gcp.capacity import RESERVATION_KEY, Scheduling, of_machine
from cluster.platforms.gcp.disks import boot_disk
from cluster.platforms.gcp.image.source import secure_boot
from cluster.platforms.gcp.names import labels, place
from cluster.roster import MachineSpec
from components.gcp.machines.identity import SCOPES, Identity
from components.gcp.network.network import Network
from components.machine import Machine

NIC_TYPE = "GVNIC"
"""Google's virtual NIC: what fast machine types need, and every image of the catalog has a driver for."""

Metadata = Callable[[MachineSpec], Mapping[str, pulumi.Input[str]]]


@dataclass(frozen=True, kw_only=True)
class MachineArgs:
    """What machines are made of."""

    config: ClusterConfig
    network: Network
    identity: Identity
    image: pulumi.Input[str]
    """Path of the image that they boot."""
    metadata: Metadata
    """Metadata of a machine; one nodeset's machines have the same."""
    after: Sequence[pulumi.Resource] = ()
    """What everything waits for: the services of Google Cloud that it uses."""
    mounted: Sequence[pulumi.Resource] = ()
    """What machines wait for besides: file systems that they mount."""

    def waits(self, spec: MachineSpec) -> list[pulumi.Resource]:
        """All that must be there before a machine is."""
        return [self.network.ready, *self.identity.ready(spec.roles[0]), *self.after, *self.mounted]

    def zone(self) -> str:
        return place(self.config).zone

    def tags(self, spec: MachineSpec) -> list[str]:
        """Network tags, by which firewall rules know a machine."""
        return [self.network.tag, *([self.network.login_tag] if "login" in spec.roles else [])]


def ssh_machine(
    args: MachineArgs, spec: MachineSpec, capacity: BasicCapacity | None, *, public: pulumi.Input[str] | None,
    attached: Sequence[compute.InstanceAttachedDiskArgs] = (), parent: pulumi.Resource,
) -> Machine:  # fmt: skip
    """A machine with a fixed address, which is set up over SSH, by the host key that the stack gave it.

    It is stopped and started to change its type, and recreated for another image or boot disk: the old one is deleted
    first, since it has name and address.
    """
    config, (disk_type, size) = args.config, boot_disk(args.config, spec)
    access = [compute.InstanceNetworkInterfaceAccessConfigArgs(nat_ip=public)] if public is not None else []
    nic = compute.InstanceNetworkInterfaceArgs(
        subnetwork=args.network.system, network_ip=args.network.addresses[spec.name], nic_type=NIC_TYPE,
        access_configs=access,
    )  # fmt: skip
    marks, scheduling = labels(config, spec.roles[0]), of_machine(capacity).scheduling(migrates=spec.gpu is None)
    made = compute.Instance(
        spec.name,
        name=spec.name,
        machine_type=spec.machine_type.name,
        zone=args.zone(),
        boot_disk=compute.InstanceBootDiskArgs(
            auto_delete=True,
            initialize_params=compute.InstanceBootDiskInitializeParamsArgs(
                image=args.image, type=disk_type, size=size, labels=marks
            ),
        ),
        attached_disks=list(attached),
        network_interfaces=[nic],
        service_account=compute.InstanceServiceAccountArgs(
            email=args.identity.email(spec.roles[0]), scopes=list(SCOPES)
        ),
        scheduling=compute.InstanceSchedulingArgs(
            provisioning_model=scheduling.model,
            preemptible=scheduling.model == "SPOT",
            on_host_maintenance=scheduling.on_host_maintenance,
            automatic_restart=scheduling.automatic_restart,
            instance_termination_action=scheduling.end,
        ),
        shielded_instance_config=compute.InstanceShieldedInstanceConfigArgs(
            enable_secure_boot=secure_boot(config, spec), enable_vtpm=True, enable_integrity_monitoring=True
        ),
        metadata=args.metadata(spec),
        labels=marks,
        tags=args.tags(spec),
        allow_stopping_for_update=True,
        # A machine that was stopped, manually or by a preemption, is started by `pulumi up --refresh`.
        desired_status="RUNNING",
        opts=pulumi.ResourceOptions(parent=parent, depends_on=args.waits(spec), delete_before_replace=True),
    )
    return Machine(
        spec=spec,
        address=args.network.addresses[spec.name],
        instance_id=made.instance_id,
        # New at each start that the program makes: of a new machine, and of one that was stopped to change its type.
        boot_id=made.instance_id.apply(lambda id_: f"{id_}/{spec.machine_type.name}"),
        resource=made,
        host_key=args.identity.host_key(spec.name).public_key_openssh,
    )


def affinity(scheduling: Scheduling) -> compute.InstanceTemplateReservationAffinityArgs | None:
    """The reservation that machines take their capacity from, as a template takes it."""
    if scheduling.affinity is None:
        return None
    kind, values = scheduling.affinity.type, list(scheduling.affinity.values)
    specific = compute.InstanceTemplateReservationAffinitySpecificReservationArgs(key=RESERVATION_KEY, values=values)
    return compute.InstanceTemplateReservationAffinityArgs(type=kind, specific_reservation=specific if values else None)
