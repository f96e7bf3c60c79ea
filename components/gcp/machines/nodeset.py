"""Nodes of one kind: a template, and one machine from it for each."""

from collections.abc import Sequence
from datetime import datetime

import pulumi
from pulumi_gcp import compute

from cluster.catalog.gpus import ACCELERATORS
from cluster.config import ClusterConfig
from cluster.config.machines import Nodeset as Section
from cluster.platforms.gcp.capacity import Calendar, Flex, OnDemand, Reserved, Scheduling, Spot, Way, of_nodes
from cluster.platforms.gcp.disks import boot_disk
from cluster.platforms.gcp.image.source import secure_boot
from cluster.platforms.gcp.names import labels, place
from cluster.roster import MachineSpec
from components.gcp.flex.node import TYPE as FLEX
from components.gcp.flex.node import flex_nodes
from components.gcp.machines.identity import SCOPES
from components.gcp.machines.instance import NIC_TYPE, MachineArgs, affinity
from components.machine import Machine


class Nodeset(pulumi.ComponentResource):
    """The machines of one nodeset. They configure themselves, and the program logs in to none of them.

    Type, disk, image and capacity are the template's: another template recreates all machines, each after it was
    drained. The configuration is in each machine's metadata, which changes in place.
    """

    machines: Sequence[Machine]

    def __init__(
        self, name: str, args: MachineArgs, section: Section, specs: Sequence[MachineSpec], *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        super().__init__("hpc:gcp:Nodeset", name, {}, opts)
        self._name, self._args = name, args
        capacity, first = of_nodes(section.capacity), specs[0]
        template = self._template(first, section, capacity)
        # Computed once, not for each of 256 nodes. The template waits for networks and grants, and machines for it.
        source = template.self_link
        metadata = pulumi.Output.from_input(dict(args.metadata(first)))
        marks, zone = labels(args.config, "node"), args.zone()
        # The node generates it, and reports it in the cluster state.
        host_key = pulumi.Output.from_input("")
        if isinstance(capacity, Flex):
            child = pulumi.ResourceOptions(parent=self, depends_on=[template])
            made = flex_nodes(
                name, [spec.name for spec in specs], project=place(args.config).project, zone=zone,
                cluster=args.config.name, template=source, labels=marks, metadata=metadata,
                endpoint=pulumi.Config("gcp").get("computeCustomEndpoint") or "", opts=child,
            )  # fmt: skip
            addresses = [one.address for one in made]
            ends = [one.ends for one in made]
        else:
            child = pulumi.ResourceOptions(parent=self, delete_before_replace=True, aliases=[pulumi.Alias(type_=FLEX)])
            made = [
                # A spot node that was preempted is started by `pulumi up --refresh` (desired_status).
                compute.InstanceFromTemplate(
                    spec.name, name=spec.name, zone=zone, source_instance_template=source, metadata=metadata,
                    labels=marks, desired_status="RUNNING", opts=child,
                )
                for spec in specs
            ]  # fmt: skip
            addresses = [one.network_interfaces.apply(lambda nics: nics[0].network_ip or "") for one in made]
            ends = [_ends(capacity)] * len(made)
        self.machines = [
            Machine(
                spec=spec, address=address, instance_id=one.instance_id, boot_id=one.instance_id, resource=one,
                host_key=host_key, ends=end,
            )
            for spec, one, address, end in zip(specs, made, addresses, ends, strict=True)
        ]  # fmt: skip
        self.register_outputs({"template": template.name, "nodes": len(specs)})

    def _template(self, spec: MachineSpec, section: Section, capacity: Way) -> compute.InstanceTemplate:
        args, config = self._args, self._args.config
        disk_type, size = boot_disk(config, spec)
        marks = labels(config, "node")
        disk = compute.InstanceTemplateDiskArgs(
            boot=True, auto_delete=True, source_image=args.image, disk_type=disk_type, disk_size_gb=size, labels=marks
        )
        accelerators = None
        if gpus := section.gpus:
            name = ACCELERATORS[gpus.type].name
            accelerators = [compute.InstanceTemplateGuestAcceleratorArgs(type=name, count=gpus.count)]
        scheduling = capacity.scheduling(migrates=spec.gpu is None)
        # No name: a template can't change, so the next one needs another name beside the old one's.
        return compute.InstanceTemplate(
            f"{self._name}-template",
            description=f"hpc: nodeset {spec.nodeset} of {config.name}",
            machine_type=spec.machine_type.name,
            disks=[disk],
            # Local SSDs come with the machine types that have some, and are not listed.
            network_interfaces=self._nics(spec),
            guest_accelerators=accelerators,
            service_account=compute.InstanceTemplateServiceAccountArgs(
                email=args.identity.email("node"), scopes=list(SCOPES)
            ),
            scheduling=_scheduling(scheduling),
            reservation_affinity=affinity(scheduling),
            resource_policies=self._placement(capacity),
            shielded_instance_config=compute.InstanceTemplateShieldedInstanceConfigArgs(
                enable_secure_boot=secure_boot(config, spec), enable_vtpm=True, enable_integrity_monitoring=True
            ),
            labels=marks,
            tags=args.tags(spec),
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.waits(spec)),
        )

    def _nics(self, spec: MachineSpec) -> list[compute.InstanceTemplateNetworkInterfaceArgs]:
        """The system network's and others of the host, then those of the fabric, in their order; none has a public
        address."""
        network, fabric = self._args.network, spec.machine_type.family.fabric
        hosts = [(subnetwork, NIC_TYPE) for subnetwork in network.hosts[: len(fabric.host_nics)]]
        gpus = [(subnetwork, fabric.nic_type) for _, subnetwork in network.gpu[: fabric.nics]]
        return [
            compute.InstanceTemplateNetworkInterfaceArgs(subnetwork=subnetwork, nic_type=kind)
            for subnetwork, kind in (*hosts, *gpus)
        ]

    def _placement(self, capacity: Way) -> pulumi.Input[str] | None:
        """A policy that keeps the nodes close to each other: the reservation's, or one of the stack's own."""
        if isinstance(capacity, Reserved):
            return policy_path(self._args.config, capacity.policy) if capacity.policy else None
        if not isinstance(capacity, OnDemand | Spot) or capacity.max_distance is None:
            return None
        # No name, as with the template: one that is in use can't change.
        return compute.ResourcePolicy(
            f"{self._name}-placement",
            region=place(self._args.config).region,
            group_placement_policy=compute.ResourcePolicyGroupPlacementPolicyArgs(
                collocation="COLLOCATED", max_distance=capacity.max_distance
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(self._args.after)),
        ).self_link


def _ends(capacity: Way) -> pulumi.Output[int] | None:
    if not isinstance(capacity, Calendar) or capacity.ends is None:
        return None
    return pulumi.Output.from_input(int(datetime.strptime(f"{capacity.ends}+0000", "%Y%m%dT%H%M%SZ%z").timestamp()))


def policy_path(config: ClusterConfig, policy: str) -> str:
    """A placement policy as a template takes it; one that is only named is in the stack's project and region."""
    where = place(config)
    return policy if "/" in policy else f"projects/{where.project}/regions/{where.region}/resourcePolicies/{policy}"


def _scheduling(scheduling: Scheduling) -> compute.InstanceTemplateSchedulingArgs:
    return compute.InstanceTemplateSchedulingArgs(
        provisioning_model=scheduling.model,
        preemptible=scheduling.model == "SPOT",
        on_host_maintenance=scheduling.on_host_maintenance,
        automatic_restart=scheduling.automatic_restart,
        instance_termination_action=scheduling.end,
        max_run_duration=compute.InstanceTemplateSchedulingMaxRunDurationArgs(seconds=scheduling.seconds)
        if scheduling.seconds is not None
        else None,
    )
