"""Machines on Google Cloud: the controller, login machines, the machine of Prometheus, nodesets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pulumi
from pulumi_gcp import compute

from cluster.catalog.machine_families import ACCELERATORS
from cluster.config import ClusterConfig
from cluster.config.capacity import BasicCapacity
from cluster.impact.upgrade import TEMPLATE
from cluster.platforms.gcp.capacity import RESERVATION_KEY, Scheduling, machine_scheduling, node_scheduling
from cluster.platforms.gcp.disks import boot_disk, state_disk, state_zones
from cluster.platforms.gcp.image import secure_boot
from cluster.platforms.gcp.names import elastic_labels, labels, place
from cluster.roster import MachineSpec, elastic_machine, machines
from components.gcp.boot import STATE_DEVICE
from components.gcp.identity import SCOPES, Identity
from components.gcp.network import GoogleNetwork
from components.gcp.nodes import FLEX_NODE, ElasticInstances, flex_nodes
from components.machine import Machine

NIC_TYPE = "GVNIC"
"""Google's virtual NIC: fast machine types require it, and every image of the catalog has its driver."""


@dataclass(frozen=True, kw_only=True)
class MachineArgs:
    """The inputs that all machines have in common."""

    config: ClusterConfig
    network: GoogleNetwork
    identity: Identity
    image: pulumi.Input[str]
    """Path of the image that they boot."""
    metadata: Callable[[MachineSpec], Mapping[str, pulumi.Input[str]]]
    """Returns the metadata of a machine. All machines of a nodeset have the same."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist first: the services of Google Cloud."""
    mounted: Sequence[pulumi.Resource] = ()
    """File systems that machines mount, which must exist before the machines."""

    def dependencies(self, spec: MachineSpec) -> list[pulumi.Resource]:
        """Return the resources that must exist before a machine is created."""
        return [self.network.ready, *self.identity.ready(spec.roles[0]), *self.after, *self.mounted]

    def tags(self, spec: MachineSpec) -> list[str]:
        """Return a machine's network tags, by which firewall rules select it."""
        tags = [self.network.tag, *([self.network.login_tag] if "login" in spec.roles else [])]
        return [*tags, *(self.network.role_tag(role) for role in ("controller", "monitoring") if role in spec.roles)]


def ssh_machine(
    args: MachineArgs,
    spec: MachineSpec,
    capacity: BasicCapacity | None,
    *,
    public: pulumi.Input[str] | None,
    attached: Sequence[compute.InstanceAttachedDiskArgs] = (),
    after: Sequence[pulumi.Resource] = (),
    parent: pulumi.Resource,
) -> Machine:
    """Create a machine that is set up over SSH: with a fixed address, and the host key of the stack.

    A change of its type stops and starts it. Another image or boot disk recreates it: the old machine is deleted first,
    since it has the name and the address.
    """
    config, (disk_type, size) = args.config, boot_disk(args.config, spec)
    address = args.network.addresses[spec.name]
    nic = compute.InstanceNetworkInterfaceArgs(
        subnetwork=args.network.system,
        network_ip=address,
        nic_type=NIC_TYPE,
        access_configs=[] if public is None else [compute.InstanceNetworkInterfaceAccessConfigArgs(nat_ip=public)],
    )
    own_labels, scheduling = labels(config, spec.roles[0]), machine_scheduling(capacity, migrates=spec.gpu is None)
    instance = compute.Instance(
        spec.name,
        name=spec.name,
        machine_type=spec.machine_type.name,
        zone=place(config).zone,
        boot_disk=compute.InstanceBootDiskArgs(
            auto_delete=True,
            initialize_params=compute.InstanceBootDiskInitializeParamsArgs(
                image=args.image, type=disk_type, size=size, labels=own_labels
            ),
        ),
        attached_disks=list(attached),
        network_interfaces=[nic],
        service_account=compute.InstanceServiceAccountArgs(
            email=args.identity.email(spec.roles[0]), scopes=list(SCOPES)
        ),
        scheduling=compute.InstanceSchedulingArgs(**_scheduling(scheduling)),
        shielded_instance_config=compute.InstanceShieldedInstanceConfigArgs(
            enable_secure_boot=secure_boot(config, spec), enable_vtpm=True, enable_integrity_monitoring=True
        ),
        metadata=args.metadata(spec),
        labels=own_labels,
        tags=args.tags(spec),
        allow_stopping_for_update=True,
        # A machine that was stopped, manually or by a preemption, is started by `pulumi up --refresh`.
        desired_status="RUNNING",
        opts=pulumi.ResourceOptions(
            parent=parent, depends_on=[*args.dependencies(spec), *after], delete_before_replace=True
        ),
    )
    return Machine(
        spec=spec,
        address=address,
        instance_id=instance.instance_id,
        # It changes at each start by this program: of a new machine, and of one that was stopped to change its type.
        boot_id=instance.instance_id.apply(lambda id_: f"{id_}/{spec.machine_type.name}"),
        resource=instance,
        host_key=args.identity.host_key(spec.name).public_key_openssh,
    )


def affinity(scheduling: Scheduling, project: str) -> compute.InstanceTemplateReservationAffinityArgs | None:
    """Return the reservation that machines take their capacity from, as a template names it."""
    if scheduling.affinity is None:
        return None
    kind, values = scheduling.affinity.type, scheduling.affinity.paths(project)
    specific = compute.InstanceTemplateReservationAffinitySpecificReservationArgs(key=RESERVATION_KEY, values=values)
    return compute.InstanceTemplateReservationAffinityArgs(type=kind, specific_reservation=specific if values else None)


TIER = "PREMIUM"
"""Network tier of public addresses: every region has it, and traffic enters Google's network near the caller. STANDARD
is cheaper for each GB that leaves, but SSH sends little."""


class LoginMachines(pulumi.ComponentResource):
    """The login machines. None has a public address unless the stack file asks for it."""

    machines: Sequence[Machine]
    public: Mapping[str, pulumi.Output[str]]
    """Public addresses by the machine's name."""

    def __init__(
        self, name: str, args: MachineArgs, specs: Sequence[MachineSpec], *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:gcp:Login", name, {}, opts)
        addresses = {spec.name: public_address(args, spec, parent=self) for spec in specs}
        self.public = {machine: address for machine, address in addresses.items() if address is not None}
        capacity = args.config.login.capacity
        self.machines = [
            ssh_machine(args, spec, capacity, public=self.public.get(spec.name), parent=self) for spec in specs
        ]
        self.register_outputs({"addresses": [machine.address for machine in self.machines], "public": self.public})


def public_address(args: MachineArgs, spec: MachineSpec, *, parent: pulumi.Resource) -> pulumi.Output[str] | None:
    """Create a lasting public address for a machine that people log in to; None if the stack file does not ask for
    one."""
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


class ControllerMachine(pulumi.ComponentResource):
    """The machine that runs slurmctld, slurmdbd and the accounting database."""

    machine: Machine
    public: pulumi.Output[str] | None
    """The public address, if people log in to it from outside."""

    def __init__(
        self,
        name: str,
        args: MachineArgs,
        spec: MachineSpec,
        after: Sequence[pulumi.Resource] = (),
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`after` are resources that are deleted after the machine."""
        super().__init__("hpc:gcp:Controller", name, {}, opts)
        config = args.config
        self.public = public_address(args, spec, parent=self)
        disk_type, size = state_disk(config)
        zones = state_zones(config)
        given: dict[str, Any] = {
            "name": f"{spec.name}-state",
            "type": disk_type,
            "size": size,
            "labels": labels(config, "controller"),
            "opts": pulumi.ResourceOptions(
                parent=self, depends_on=list(args.after), protect=config.deletion_protection
            ),
        }
        # A resource of its own: it outlives the machine, and no change of the machine affects it.
        disk: compute.Disk | compute.RegionDisk
        if len(zones) == 1:
            disk = compute.Disk(f"{spec.name}-state", zone=zones[0], **given)
        else:
            disk = compute.RegionDisk(f"{spec.name}-state", region=place(config).region, replica_zones=zones, **given)
        # A machine in a zone that failed may have it still. Only disks in two zones can be attached by force
        # (compute.v1 discovery document 20261106, AttachedDisk.forceAttach).
        force = True if len(zones) > 1 else None
        attached = [compute.InstanceAttachedDiskArgs(source=disk.id, device_name=STATE_DEVICE, force_attach=force)]
        self.machine = ssh_machine(
            args, spec, config.controller.capacity, public=self.public, attached=attached, after=after, parent=self
        )
        self.register_outputs({"address": self.machine.address, "state_disk": disk.name})


class GoogleMonitoring(pulumi.ComponentResource):
    """The machine of Prometheus, if the stack has one."""

    machine: Machine

    def __init__(
        self, name: str, args: MachineArgs, spec: MachineSpec, *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:gcp:Monitoring", name, {}, opts)
        self.machine = ssh_machine(args, spec, None, public=None, parent=self)
        self.register_outputs({"address": self.machine.address})


class GoogleMachines(pulumi.ComponentResource):
    """All machines."""

    machines: tuple[Machine, ...]
    """The machines in the roster's order."""
    public: dict[str, pulumi.Output[str]]
    """Public addresses, by the name of the machine that has one."""
    templates: Mapping[str, Sequence[Mapping[str, pulumi.Input[Any]]]]
    """The templates of each elastic nodeset, as NodesetMachines has them."""

    def __init__(self, name: str, args: MachineArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Machines", name, {}, opts)
        config, child = args.config, pulumi.ResourceOptions(parent=self)
        specs = machines(config)
        # Created before the controller, so that the controller is deleted before the instances that it creates.
        nodesets = {
            nodeset: NodesetMachines(
                f"{config.name}-{nodeset}",
                args,
                nodeset,
                [spec for spec in specs if spec.roles == ("node",) and spec.nodeset == nodeset],
                opts=child,
            )
            for nodeset, section in config.nodesets.items()
            if not section.on
        }
        self.templates = {name: nodeset.templates for name, nodeset in nodesets.items() if nodeset.instances}
        elastic = [nodeset.instances for nodeset in nodesets.values() if nodeset.instances]
        controller = ControllerMachine(config.name, args, specs[0], elastic, opts=child)
        all_machines, self.public = [controller.machine], {}
        if controller.public is not None:
            self.public[specs[0].name] = controller.public
        if logins := [spec for spec in specs if spec.roles == ("login",)]:
            login = LoginMachines(f"{config.name}-login", args, logins, opts=child)
            all_machines += login.machines
            self.public |= login.public
        if monitoring := next((spec for spec in specs if spec.roles == ("monitoring",)), None):
            all_machines.append(GoogleMonitoring(config.name, args, monitoring, opts=child).machine)
        all_machines += [machine for nodeset in nodesets.values() for machine in nodeset.machines]
        self.machines = tuple(all_machines)
        self.register_outputs({"machines": len(all_machines)})


class NodesetMachines(pulumi.ComponentResource):
    """The machines of one nodeset. They configure themselves, and the program logs in to none of them.

    Type, disk, image and capacity are in the template: another template recreates all static machines, each after it
    was drained. Their configuration is in each machine's metadata, which changes in place.

    Elastic machines have templates of their own, one for each kind of capacity that is tried. These contain the
    configuration, since only the template exists before the machine. In the template of static machines the
    configuration would recreate all of them at each change.
    """

    machines: Sequence[Machine]
    templates: Sequence[Mapping[str, pulumi.Input[Any]]] = ()
    """`way` and `template` (self link) of elastic machines, in the order in which they are tried. Flex start also has
    `run_seconds`, and `policy` (self link) where machines can be close to each other."""
    instances: ElasticInstances | None = None
    """The elastic machines; None where there are none."""

    def __init__(
        self,
        name: str,
        args: MachineArgs,
        nodeset: str,
        specs: Sequence[MachineSpec],
        *,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("hpc:gcp:Nodeset", name, {}, opts)
        self._name, self._args, self._section = name, args, args.config.nodesets[nodeset]
        self._policies: dict[int, pulumi.Output[str]] = {}
        self.machines = self._create_static(specs) if specs else []
        elastic = elastic_machine(args.config, nodeset)
        if elastic is not None:
            self._create_elastic(elastic, nodeset)
        self.register_outputs({"templates": list(self.templates), "nodes": len(specs)})

    def _create_static(self, specs: Sequence[MachineSpec]) -> list[Machine]:
        name, args, first = self._name, self._args, specs[0]
        own_labels, zone = labels(args.config, "node"), place(args.config).zone
        bound = first.machine_type.family.reservation_bound
        scheduling = node_scheduling(self._section.ways[0], migrates=first.gpu is None, bound=bound)
        template = self._template(f"{name}-{TEMPLATE}", first, scheduling, own_labels)
        # Computed once, not for each of 256 nodes. The template waits for networks and grants, and machines for it.
        source = template.self_link
        metadata = pulumi.Output.from_input(dict(args.metadata(first)))
        if scheduling.model == "FLEX_START":
            child = pulumi.ResourceOptions(parent=self, depends_on=[template])
            own = {"template": source, "labels": own_labels, "metadata": metadata}
            nodes = flex_nodes(name, [spec.name for spec in specs], self._location(), own, child)
            addresses = [node.address for node in nodes]
            ends = [node.ends for node in nodes]
        else:
            aliases = [pulumi.Alias(type_=FLEX_NODE)]
            child = pulumi.ResourceOptions(parent=self, delete_before_replace=True, aliases=aliases)
            nodes = [
                # A spot node that was preempted is started by `pulumi up --refresh` (desired_status).
                compute.InstanceFromTemplate(
                    spec.name,
                    name=spec.name,
                    zone=zone,
                    source_instance_template=source,
                    metadata=metadata,
                    labels=own_labels,
                    desired_status="RUNNING",
                    opts=child,
                )
                for spec in specs
            ]
            addresses = [node.network_interfaces.apply(lambda nics: nics[0].network_ip or "") for node in nodes]
            ends = [_end_time(scheduling.ends)] * len(nodes)
        return [
            Machine(
                spec=spec,
                address=address,
                instance_id=node.instance_id,
                boot_id=node.instance_id,
                resource=node,
                # The node generates its host key, and reports it in the cluster state.
                host_key=pulumi.Output.from_input(""),
                ends=end,
            )
            for spec, node, address, end in zip(specs, nodes, addresses, ends, strict=True)
        ]

    def _location(self) -> dict[str, str]:
        config = self._args.config
        where = place(config)
        return {"project": where.project, "zone": where.zone, "cluster": config.name, "endpoint": endpoint()}

    def _create_elastic(self, spec: MachineSpec, nodeset: str) -> None:
        args, family = self._args, spec.machine_type.family
        metadata = pulumi.Output.from_input(dict(args.metadata(spec)))
        ways, templates, rows = self._section.ways, [], []
        for index, way in enumerate(ways):
            before = sum(other.way == way.way for other in ways[:index])
            # A unique name: by it the reconcile loop keeps which kinds of capacity have no machines at the time.
            way_name = way.way + (f"-{before + 1}" if before else "")
            name = f"{self._name}-{way_name.replace('_', '-')}"
            scheduling = node_scheduling(way, migrates=spec.gpu is None, elastic=True, bound=family.reservation_bound)
            template = self._template(name, spec, scheduling, elastic_labels(args.config, nodeset), metadata)
            row: dict[str, pulumi.Input[Any]] = {"way": way_name, "template": template.self_link}
            if scheduling.seconds:
                row["run_seconds"] = scheduling.seconds
                if family.flex_placement:
                    row["policy"] = self._workload_policy(name)
            templates.append(template)
            rows.append(row)
        self.templates = rows
        self.instances = ElasticInstances(
            f"{self._name}-elastic",
            **self._location(),
            nodeset=nodeset,
            opts=pulumi.ResourceOptions(parent=self, depends_on=templates),
        )

    def _template(
        self,
        name: str,
        spec: MachineSpec,
        scheduling: Scheduling,
        own_labels: Mapping[str, str],
        metadata: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None,
    ) -> compute.InstanceTemplate:
        args, config = self._args, self._args.config
        disk_type, size = boot_disk(config, spec)
        disk = compute.InstanceTemplateDiskArgs(
            boot=True,
            auto_delete=True,
            source_image=args.image,
            disk_type=disk_type,
            disk_size_gb=size,
            labels=own_labels,
        )
        accelerators = None
        if gpus := self._section.gpus:
            kind = ACCELERATORS[gpus.type].name
            accelerators = [compute.InstanceTemplateGuestAcceleratorArgs(type=kind, count=gpus.count)]
        # No name: a template can't change, so the next template needs a name of its own beside the old one's.
        return compute.InstanceTemplate(
            name,
            description=f"hpc: nodeset {spec.nodeset} of {config.name}",
            machine_type=spec.machine_type.name,
            disks=[disk],
            # Local SSDs are part of the machine type, and are not listed.
            network_interfaces=self._nics(spec),
            guest_accelerators=accelerators,
            service_account=compute.InstanceTemplateServiceAccountArgs(
                email=args.identity.email("node"), scopes=list(SCOPES)
            ),
            scheduling=compute.InstanceTemplateSchedulingArgs(
                max_run_duration=compute.InstanceTemplateSchedulingMaxRunDurationArgs(seconds=scheduling.seconds)
                if scheduling.seconds
                else None,
                **_scheduling(scheduling),
            ),
            reservation_affinity=affinity(scheduling, place(config).project),
            resource_policies=self._placement(scheduling),
            shielded_instance_config=compute.InstanceTemplateShieldedInstanceConfigArgs(
                enable_secure_boot=secure_boot(config, spec), enable_vtpm=True, enable_integrity_monitoring=True
            ),
            metadata=metadata,
            labels=own_labels,
            tags=args.tags(spec),
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.dependencies(spec)),
        )

    def _nics(self, spec: MachineSpec) -> list[compute.InstanceTemplateNetworkInterfaceArgs]:
        """Return the NICs of the system network and of the host's other networks, then those of the fabric, in their
        order. None has a public address."""
        network, fabric = self._args.network, spec.machine_type.family.fabric
        hosts = [(subnetwork, NIC_TYPE) for subnetwork in network.hosts[: len(fabric.host_nics)]]
        gpus = [(subnetwork, fabric.nic_type) for _, subnetwork in network.gpu[: fabric.nics]]
        return [
            compute.InstanceTemplateNetworkInterfaceArgs(subnetwork=subnetwork, nic_type=kind)
            for subnetwork, kind in (*hosts, *gpus)
        ]

    def _placement(self, scheduling: Scheduling) -> pulumi.Input[str] | None:
        """Return the policy that places nodes close to each other: the reservation's, or one that the stack creates."""
        distance, policy, where = scheduling.max_distance, scheduling.policy, place(self._args.config)
        if distance is None and policy and "/" not in policy:
            return f"projects/{where.project}/regions/{where.region}/resourcePolicies/{policy}"
        if distance is None:
            return policy
        # One policy for each distance, so that static and elastic nodes are close to each other as well.
        if distance not in self._policies:
            # No name, for the same reason as a template: a policy in use can't change.
            self._policies[distance] = compute.ResourcePolicy(
                f"{self._name}-placement" + (f"-{distance}" if self._policies else ""),
                region=where.region,
                group_placement_policy=compute.ResourcePolicyGroupPlacementPolicyArgs(
                    collocation="COLLOCATED", max_distance=distance
                ),
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(self._args.after)),
            ).self_link
        return self._policies[distance]

    def _workload_policy(self, name: str) -> pulumi.Input[str]:
        """Create a policy for groups of flex start that places the machines of each group close to each other."""
        return compute.ResourcePolicy(
            f"{name}-placement",
            region=place(self._args.config).region,
            workload_policy=compute.ResourcePolicyWorkloadPolicyArgs(
                type="HIGH_THROUGHPUT", max_topology_distance="CLUSTER"
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(self._args.after)),
        ).self_link


def endpoint() -> str:
    """Return the endpoint of the Compute Engine API that the stack sets; empty for Google's own."""
    return pulumi.Config("gcp").get("computeCustomEndpoint") or ""


def _end_time(text: str | None) -> pulumi.Output[int] | None:
    if text is None:
        return None
    return pulumi.Output.from_input(int(datetime.strptime(f"{text}+0000", "%Y%m%dT%H%M%SZ%z").timestamp()))


def _scheduling(scheduling: Scheduling) -> dict[str, Any]:
    return {
        "provisioning_model": scheduling.model,
        "preemptible": scheduling.model == "SPOT",
        "on_host_maintenance": scheduling.on_host_maintenance,
        "automatic_restart": scheduling.automatic_restart,
        "instance_termination_action": scheduling.end,
    }
