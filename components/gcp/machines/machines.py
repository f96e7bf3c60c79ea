"""Machines on Google Cloud: what all have in common, the controller, login machines, that of Prometheus, nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pulumi
from pulumi_gcp import compute

from cluster.catalog.machine_families import ACCELERATORS
from cluster.config import ClusterConfig
from cluster.config.machines import BasicCapacity
from cluster.impact.upgrade import TEMPLATE
from cluster.platforms.gcp.capacity import RESERVATION_KEY, Scheduling, of_machine, of_nodes
from cluster.platforms.gcp.disks import WATCH_DISK, WATCH_GB, WATCH_TYPE, boot_disk, state_disk
from cluster.platforms.gcp.image import recipe, secure_boot
from cluster.platforms.gcp.names import WATCH_PORT, elastic_labels, labels, place, watch_name
from cluster.roster import MachineSpec, elastic_machine, machines
from components.gcp.elastic.instances import ElasticInstances
from components.gcp.failover.controller import FailoverController, whole_body
from components.gcp.flex.node import TYPE as FLEX
from components.gcp.flex.node import flex_nodes
from components.gcp.machines.boot import FIXED, STATE_DEVICE, program
from components.gcp.machines.identity import SCOPES, WATCH, Identity
from components.gcp.network import Network
from components.machine import Machine

NIC_TYPE = "GVNIC"
"""Google's virtual NIC: what fast machine types need, and every image of the catalog has a driver for."""

Metadata = Callable[[MachineSpec], Mapping[str, pulumi.Input[str]]]


@dataclass(frozen=True, kw_only=True)
class MachineArgs:
    """The arguments for all machines."""

    config: ClusterConfig
    network: Network
    identity: Identity
    image: pulumi.Input[str]
    """Path of the image that they boot."""
    metadata: Metadata
    """Metadata of a machine; one nodeset's machines have the same."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that everything waits for: the services of Google Cloud that it uses."""
    mounted: Sequence[pulumi.Resource] = ()
    """Resources that machines wait for besides: file systems that they mount."""

    def waits(self, spec: MachineSpec) -> list[pulumi.Resource]:
        """Return all that must be there before a machine is."""
        return [self.network.ready, *self.identity.ready(spec.roles[0]), *self.after, *self.mounted]

    def tags(self, spec: MachineSpec) -> list[str]:
        """Network tags, by which firewall rules know a machine."""
        found = [self.network.tag, *([self.network.login_tag] if "login" in spec.roles else [])]
        return [*found, *(self.network.role_tag(role) for role in ("controller", "monitoring") if role in spec.roles)]


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
    """A machine with a fixed address, which is set up over SSH, by the host key that the stack gave it.

    It is stopped and started to change its type, and recreated for another image or boot disk: the old one is deleted
    first, since it has name and address.
    """
    config, (disk_type, size) = args.config, boot_disk(args.config, spec)
    address = args.network.addresses[spec.name]
    nic = compute.InstanceNetworkInterfaceArgs(
        subnetwork=args.network.system,
        network_ip=address,
        nic_type=NIC_TYPE,
        access_configs=[] if public is None else [compute.InstanceNetworkInterfaceAccessConfigArgs(nat_ip=public)],
    )
    marks, scheduling = labels(config, spec.roles[0]), of_machine(capacity, migrates=spec.gpu is None)
    made = compute.Instance(
        spec.name,
        name=spec.name,
        machine_type=spec.machine_type.name,
        zone=place(config).zone,
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
        scheduling=compute.InstanceSchedulingArgs(**_scheduling(scheduling)),
        shielded_instance_config=compute.InstanceShieldedInstanceConfigArgs(
            enable_secure_boot=secure_boot(config, spec), enable_vtpm=True, enable_integrity_monitoring=True
        ),
        metadata=args.metadata(spec),
        labels=marks,
        tags=args.tags(spec),
        allow_stopping_for_update=True,
        # A machine that was stopped, manually or by a preemption, is started by `pulumi up --refresh`.
        desired_status="RUNNING",
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[*args.waits(spec), *after], delete_before_replace=True),
    )
    return Machine(
        spec=spec,
        address=address,
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


class Controller(pulumi.ComponentResource):
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
        if config.controller.failover:
            self.machine = self._in_two_zones(args, spec, after)
            self.register_outputs({"address": self.machine.address, "state_disk": f"{spec.name}-state"})
            return
        disk_type, size = state_disk(config)
        # Not part of the machine: it is there before it and after it, and no change of the machine reaches it.
        disk = compute.Disk(
            f"{spec.name}-state",
            name=f"{spec.name}-state",
            type=disk_type,
            size=size,
            zone=place(config).zone,
            labels=labels(config, "controller"),
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.after), protect=config.deletion_protection),
        )
        attached = [compute.InstanceAttachedDiskArgs(source=disk.id, device_name=STATE_DEVICE)]
        self.machine = ssh_machine(
            args, spec, config.controller.capacity, public=self.public, attached=attached, after=after, parent=self
        )
        self.register_outputs({"address": self.machine.address, "state_disk": disk.name})

    def _in_two_zones(self, args: MachineArgs, spec: MachineSpec, after: Sequence[pulumi.Resource]) -> Machine:
        """The machine on regional disks, and the one in the other zone that brings it back there."""
        config, where, address = args.config, place(args.config), args.network.addresses[spec.name]
        zones, marks = [where.zone, config.controller.failover_zone or ""], labels(config, "controller")

        def disk(part: str, kind: tuple[str, int], *, protect: bool = False, **own: Any) -> compute.RegionDisk:  # noqa: ANN401
            waits = pulumi.ResourceOptions(parent=self, depends_on=list(args.after), protect=protect)
            name, (type_, size) = f"{spec.name}-{part}", kind
            return compute.RegionDisk(
                name, type=type_, size=size, region=where.region, replica_zones=zones, labels=marks, opts=waits, **own
            )

        # No name: another image is another disk beside the old one, and then the machine moves to it.
        boot = disk("boot", boot_disk(config, spec), image=args.image)
        kept = disk("state", state_disk(config), protect=config.deletion_protection, name=f"{spec.name}-state")
        scheduling = of_machine(config.controller.capacity, migrates=spec.gpu is None)
        nic: dict[str, Any] = {"subnetwork": args.network.system, "networkIP": address, "nicType": NIC_TYPE}
        if self.public is not None:
            public = {"type": "ONE_TO_ONE_NAT", "name": "External NAT", "natIP": self.public, "networkTier": TIER}
            nic["accessConfigs"] = [public]
        secure = secure_boot(config, spec)
        body = pulumi.Output.json_dumps(
            {
                "name": spec.name,
                "machineType": f"zones/{{zone}}/machineTypes/{spec.machine_type.name}",
                "disks": [
                    {"boot": True, "autoDelete": False, "source": boot.id, "forceAttach": True},
                    {"autoDelete": False, "source": kept.id, "deviceName": STATE_DEVICE, "forceAttach": True},
                ],
                "networkInterfaces": [nic],
                "serviceAccounts": [{"email": args.identity.email("controller"), "scopes": list(SCOPES)}],
                "scheduling": {
                    "provisioningModel": scheduling.model,
                    "preemptible": scheduling.model == "SPOT",
                    "onHostMaintenance": scheduling.on_host_maintenance,
                    "automaticRestart": scheduling.automatic_restart,
                    **({"instanceTerminationAction": scheduling.end} if scheduling.end else {}),
                },
                "shieldedInstanceConfig": {
                    "enableSecureBoot": secure, "enableVtpm": True, "enableIntegrityMonitoring": True
                },
                "tags": {"items": args.tags(spec)},
            },
            sort_keys=True,
        )  # fmt: skip
        metadata = pulumi.Output.from_input(dict(args.metadata(spec)))
        at = {"project": where.project, "zones": zones, "cluster": config.name, "endpoint": endpoint()}
        made = FailoverController(
            spec.name,
            {**at, "body": body, "labels": marks, "metadata": metadata},
            pulumi.ResourceOptions(parent=self, depends_on=[*args.waits(spec), *after], delete_before_replace=True),
        )
        whole = pulumi.Output.all(body, metadata).apply(lambda found: whole_body(found[0], marks, found[1]))
        self._watch(args, {**at, "name": spec.name, "address": address, "body": whole}, zones[1], made)
        return Machine(
            spec=spec,
            address=address,
            # Its root file system, in which a move changes nothing; what waits for it waits for the instance too.
            instance_id=pulumi.Output.all(boot.disk_id, made.boot_id).apply(lambda ids: ids[0]),
            boot_id=pulumi.Output.concat(boot.disk_id, f"/{spec.machine_type.name}"),
            resource=made,
            host_key=args.identity.host_key(spec.name).public_key_openssh,
            zone=made.zone,
        )

    def _watch(
        self, args: MachineArgs, settings: Mapping[str, pulumi.Input[Any]], zone: str, controller: pulumi.Resource
    ) -> None:
        """The machine that watches the controller: nobody can log in to it, and it is no member of the cluster."""
        config, name = args.config, watch_name(args.config)
        own = {"mode": config.controller.failover_mode, "port": WATCH_PORT}
        settings_text = pulumi.Output.json_dumps({**settings, **own}, sort_keys=True)
        keys = ("enable-oslogin", "block-project-ssh-keys", "enable-guest-attributes", "serial-port-logging-enable")
        compute.Instance(
            name,
            name=name,
            machine_type=WATCH_TYPE,
            zone=zone,
            boot_disk=compute.InstanceBootDiskArgs(
                initialize_params=compute.InstanceBootDiskInitializeParamsArgs(
                    image=recipe(config).image, type=WATCH_DISK, size=WATCH_GB, labels=labels(config, "watch")
                )
            ),
            network_interfaces=[compute.InstanceNetworkInterfaceArgs(subnetwork=args.network.system)],
            service_account=compute.InstanceServiceAccountArgs(email=args.identity.email(WATCH), scopes=list(SCOPES)),
            shielded_instance_config=compute.InstanceShieldedInstanceConfigArgs(
                enable_secure_boot=True, enable_vtpm=True, enable_integrity_monitoring=True
            ),
            metadata={
                **{key: FIXED[key] for key in keys},
                "startup-script": program("failover.py"),
                "hpc-watch": settings_text,
            },
            labels=labels(config, "watch"),
            tags=[args.network.tag],
            desired_status="RUNNING",
            # Deleted before the controller, and after it has its own grants.
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.network.ready, *args.identity.ready(WATCH), *args.after, controller],
                delete_before_replace=True,
            ),
        )


class Monitoring(pulumi.ComponentResource):
    """The machine of Prometheus, where it has one of its own."""

    machine: Machine

    def __init__(
        self, name: str, args: MachineArgs, spec: MachineSpec, *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:gcp:Monitoring", name, {}, opts)
        self.machine = ssh_machine(args, spec, None, public=None, parent=self)
        self.register_outputs({"address": self.machine.address})


class Machines(pulumi.ComponentResource):
    """All machines."""

    machines: tuple[Machine, ...]
    """The machines in the roster's order."""
    public: dict[str, pulumi.Output[str]]
    """Public addresses, by the name of the machine that has one."""
    templates: Mapping[str, Sequence[Mapping[str, pulumi.Input[Any]]]]
    """Of each elastic nodeset: see Nodeset."""

    def __init__(self, name: str, args: MachineArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Machines", name, {}, opts)
        config, child = args.config, pulumi.ResourceOptions(parent=self)
        specs = machines(config)
        # Before the controller, which is deleted before what it creates.
        nodesets = {
            nodeset: Nodeset(
                f"{config.name}-{nodeset}",
                args,
                nodeset,
                [spec for spec in specs if spec.roles == ("node",) and spec.nodeset == nodeset],
                opts=child,
            )
            for nodeset, section in config.nodesets.items()
            if not section.on
        }
        self.templates = {nodeset: made.templates for nodeset, made in nodesets.items() if made.instances}
        created = [made.instances for made in nodesets.values() if made.instances]
        controller = Controller(config.name, args, specs[0], created, opts=child)
        found, self.public = [controller.machine], {}
        if controller.public is not None:
            self.public[specs[0].name] = controller.public
        if logins := [spec for spec in specs if spec.roles == ("login",)]:
            login = Login(f"{config.name}-login", args, logins, opts=child)
            found += login.machines
            self.public |= login.public
        if own := next((spec for spec in specs if spec.roles == ("monitoring",)), None):
            found.append(Monitoring(config.name, args, own, opts=child).machine)
        found += [machine for made in nodesets.values() for machine in made.machines]
        self.machines = tuple(found)
        self.register_outputs({"machines": len(found)})


class Nodeset(pulumi.ComponentResource):
    """The machines of one nodeset. They configure themselves, and the program logs in to none of them.

    Type, disk, image and capacity are the template's: another template recreates all static machines, each after it was
    drained. Their configuration is in each machine's metadata, which changes in place.

    Elastic machines have templates of their own, one for each way in which they are asked for: the configuration is in
    these, since nothing but the template is there before the machine. In the template of static machines it would
    recreate all of them at each change.
    """

    machines: Sequence[Machine]
    templates: Sequence[Mapping[str, pulumi.Input[Any]]] = ()
    """`way` and `template` (self link) of elastic machines, in the order in which they are tried; of flex start
    `run_seconds` too, and `policy` (self link) where machines can be close to each other."""
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
        self.machines = self._static(specs) if specs else []
        elastic = elastic_machine(args.config, nodeset)
        if elastic is not None:
            self._elastic(elastic, nodeset)
        self.register_outputs({"templates": list(self.templates), "nodes": len(specs)})

    def _static(self, specs: Sequence[MachineSpec]) -> list[Machine]:
        name, args, first = self._name, self._args, specs[0]
        bound = first.machine_type.family.reservation_bound
        asked = of_nodes(self._section.ways[0], migrates=first.gpu is None, bound=bound)
        template = self._template(f"{name}-{TEMPLATE}", first, asked, labels(args.config, "node"))
        # Computed once, not for each of 256 nodes. The template waits for networks and grants, and machines for it.
        source = template.self_link
        metadata = pulumi.Output.from_input(dict(args.metadata(first)))
        marks, zone = labels(args.config, "node"), place(args.config).zone
        # The node generates it, and reports it in the cluster state.
        host_key = pulumi.Output.from_input("")
        if asked.model == "FLEX_START":
            child = pulumi.ResourceOptions(parent=self, depends_on=[template])
            where = {"project": place(args.config).project, "zone": zone, "cluster": args.config.name}
            where["endpoint"] = endpoint()
            own = {"template": source, "labels": marks, "metadata": metadata}
            made = flex_nodes(name, [spec.name for spec in specs], where, own, child)
            addresses = [node.address for node in made]
            ends = [node.ends for node in made]
        else:
            child = pulumi.ResourceOptions(parent=self, delete_before_replace=True, aliases=[pulumi.Alias(type_=FLEX)])
            made = [
                # A spot node that was preempted is started by `pulumi up --refresh` (desired_status).
                compute.InstanceFromTemplate(
                    spec.name,
                    name=spec.name,
                    zone=zone,
                    source_instance_template=source,
                    metadata=metadata,
                    labels=marks,
                    desired_status="RUNNING",
                    opts=child,
                )
                for spec in specs
            ]
            addresses = [node.network_interfaces.apply(lambda nics: nics[0].network_ip or "") for node in made]
            ends = [_ends(asked.ends)] * len(made)
        return [
            Machine(
                spec=spec,
                address=address,
                instance_id=node.instance_id,
                boot_id=node.instance_id,
                resource=node,
                host_key=host_key,
                ends=end,
            )
            for spec, node, address, end in zip(specs, made, addresses, ends, strict=True)
        ]

    def _elastic(self, spec: MachineSpec, nodeset: str) -> None:
        args, marks = self._args, elastic_labels(self._args.config, nodeset)
        metadata = pulumi.Output.from_input(dict(args.metadata(spec)))
        ways, made, rows = self._section.ways, {}, []
        for index, way in enumerate(ways):
            before = sum(other.way == way.way for other in ways[:index])
            # A name of its own: the loop keeps by it which ways have no machines at the time.
            name = way.way + (f"-{before + 1}" if before else "")
            called, bound = f"{self._name}-{name.replace('_', '-')}", spec.machine_type.family.reservation_bound
            asked = of_nodes(way, migrates=spec.gpu is None, elastic=True, bound=bound)
            template = made[name] = self._template(called, spec, asked, marks, metadata)
            row: dict[str, pulumi.Input[Any]] = {"way": name, "template": template.self_link}
            if asked.seconds:
                row["run_seconds"] = asked.seconds
                if spec.machine_type.family.flex_placement:
                    row["policy"] = self._workload_policy(called)
            rows.append(row)
        self.templates = rows
        where = {"project": place(args.config).project, "zone": place(args.config).zone, "cluster": args.config.name}
        self.instances = ElasticInstances(
            f"{self._name}-elastic",
            **where,
            nodeset=nodeset,
            endpoint=endpoint(),
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(made.values())),
        )

    def _template(
        self,
        name: str,
        spec: MachineSpec,
        scheduling: Scheduling,
        marks: Mapping[str, str],
        metadata: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None,
    ) -> compute.InstanceTemplate:
        args, config = self._args, self._args.config
        disk_type, size = boot_disk(config, spec)
        disk = compute.InstanceTemplateDiskArgs(
            boot=True, auto_delete=True, source_image=args.image, disk_type=disk_type, disk_size_gb=size, labels=marks
        )
        accelerators = None
        if gpus := self._section.gpus:
            kind = ACCELERATORS[gpus.type].name
            accelerators = [compute.InstanceTemplateGuestAcceleratorArgs(type=kind, count=gpus.count)]
        # No name: a template can't change, so the next one needs another name beside the old one's.
        return compute.InstanceTemplate(
            name,
            description=f"hpc: nodeset {spec.nodeset} of {config.name}",
            machine_type=spec.machine_type.name,
            disks=[disk],
            # Local SSDs come with the machine types that have some, and are not listed.
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
            reservation_affinity=affinity(scheduling),
            resource_policies=self._placement(scheduling),
            shielded_instance_config=compute.InstanceTemplateShieldedInstanceConfigArgs(
                enable_secure_boot=secure_boot(config, spec), enable_vtpm=True, enable_integrity_monitoring=True
            ),
            metadata=metadata,
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

    def _placement(self, asked: Scheduling) -> pulumi.Input[str] | None:
        """A policy that keeps the nodes close to each other: the reservation's, or one of the stack's own."""
        distance = asked.max_distance
        if distance is None:
            return policy_path(self._args.config, asked.policy) if asked.policy else None
        # One for all ways with the same distance: static and elastic nodes are to be close to each other as well.
        if distance not in self._policies:
            # No name, as with the template: one that is in use can't change.
            self._policies[distance] = compute.ResourcePolicy(
                f"{self._name}-placement" + (f"-{distance}" if self._policies else ""),
                region=place(self._args.config).region,
                group_placement_policy=compute.ResourcePolicyGroupPlacementPolicyArgs(
                    collocation="COLLOCATED", max_distance=distance
                ),
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(self._args.after)),
            ).self_link
        return self._policies[distance]

    def _workload_policy(self, name: str) -> pulumi.Input[str]:
        """A policy of the groups of flex start: the machines of each are close to each other."""
        return compute.ResourcePolicy(
            f"{name}-placement",
            region=place(self._args.config).region,
            workload_policy=compute.ResourcePolicyWorkloadPolicyArgs(
                type="HIGH_THROUGHPUT", max_topology_distance="CLUSTER"
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(self._args.after)),
        ).self_link


def endpoint() -> str:
    """The endpoint of the Compute Engine API that the stack names; empty for Google's own."""
    return pulumi.Config("gcp").get("computeCustomEndpoint") or ""


def _ends(text: str | None) -> pulumi.Output[int] | None:
    if text is None:
        return None
    return pulumi.Output.from_input(int(datetime.strptime(f"{text}+0000", "%Y%m%dT%H%M%SZ%z").timestamp()))


def policy_path(config: ClusterConfig, policy: str) -> str:
    """A placement policy as a template takes it; one that is only named is in the stack's project and region."""
    where = place(config)
    return policy if "/" in policy else f"projects/{where.project}/regions/{where.region}/resourcePolicies/{policy}"


def _scheduling(scheduling: Scheduling) -> dict[str, Any]:
    return {
        "provisioning_model": scheduling.model,
        "preemptible": scheduling.model == "SPOT",
        "on_host_maintenance": scheduling.on_host_maintenance,
        "automatic_restart": scheduling.automatic_restart,
        "instance_termination_action": scheduling.end,
    }
