"""DDN EXAScaler: a Lustre file system on machines of the stack."""

from collections.abc import Mapping, Sequence
from itertools import chain

import pulumi
from pulumi_gcp import compute, projects, runtimeconfig, serviceaccount

from cluster.platforms.gcp.filesystems.base import FileServer, TargetDisk
from cluster.platforms.gcp.filesystems.exascaler import PERMISSIONS, TARGET_OF, Exascaler, http_tag, startup_script
from cluster.platforms.gcp.names import account_id, host_project, labels, place
from components.gcp.barrier import Barrier
from components.gcp.filesystems import LustreComponent
from components.gcp.identity import role_id
from components.gcp.network import LNET_PORT, GoogleNetwork, allow

BOOT_DISK = "pd-standard"


class ExascalerServer(pulumi.ComponentResource):
    """A server, with the names, labels and tags by which EXAScaler finds its parts.

    All its disks are protected, the boot disk too: it is not known what a server with a new boot disk does to its
    targets.
    """

    instance: compute.Instance

    def __init__(
        self,
        name: str,
        kind: Exascaler,
        server: FileServer,
        *,
        script: str,
        account: pulumi.Input[str],
        network: GoogleNetwork,
        after: Sequence[pulumi.Resource],
        servers: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions,
    ) -> None:
        """The server runs `script` at each start, as the service account with the email `account`. Its disks are
        created after `after`, the server itself after the `servers` that it registers with.
        """
        super().__init__("hpc:gcp:ExascalerServer", name, {}, opts)
        config, address = kind.config, network.addresses[server.name]
        self._name, self._config, self._after = name, config, list(after)
        boot = self._boot_disk(server.boot_disk, kind.section.image)
        disks = [
            compute.InstanceAttachedDiskArgs(source=self._target(disk).self_link, device_name=disk.name)
            for disk in server.disks
        ]
        nic = compute.InstanceNetworkInterfaceArgs(subnetwork=network.system, network_ip=address, nic_type="GVNIC")
        tags = [config.name, http_tag(config.name)] if server.kind == "mgs" else [config.name]
        self.instance = compute.Instance(
            f"{name}-server",
            name=server.name,
            zone=place(config).zone,
            machine_type=server.machine_type.name,
            allow_stopping_for_update=True,
            boot_disk=compute.InstanceBootDiskArgs(
                source=boot.self_link, device_name=server.boot_disk, auto_delete=False
            ),
            attached_disks=disks,
            network_interfaces=[nic],
            scheduling=compute.InstanceSchedulingArgs(on_host_maintenance="MIGRATE", automatic_restart=True),
            service_account=compute.InstanceServiceAccountArgs(email=account, scopes=["cloud-platform"]),
            metadata={"startup-script": script, "enable-oslogin": "TRUE", "block-project-ssh-keys": "TRUE"},
            tags=tags,
            labels={**self._labels(), "lustre_type": TARGET_OF[server.kind], "lustre_index": str(server.index)},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*after, *servers]),
        )
        self.register_outputs({"address": address})

    def _labels(self) -> Mapping[str, str]:
        return {**labels(self._config, "lustre"), "deployment": self._config.name}

    def _boot_disk(self, disk: str, image: str) -> compute.Disk:
        return compute.Disk(
            f"{self._name}-boot-disk",
            name=disk,
            zone=place(self._config).zone,
            type=BOOT_DISK,
            image=image,
            labels=self._labels(),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=self._config.deletion_protection,
                depends_on=self._after,
                # A running server is not replaced when a new image of its family appears.
                ignore_changes=["image"],
            ),
        )

    def _target(self, disk: TargetDisk) -> compute.Disk:
        config = self._config
        return compute.Disk(
            f"{self._name}-{disk.name.removeprefix(disk.host + '-')}",
            name=disk.name,
            zone=place(config).zone,
            type=disk.targets.type,
            size=disk.targets.size_gb,
            provisioned_iops=disk.targets.iops,
            provisioned_throughput=disk.targets.mbps,
            labels={
                **self._labels(),
                "name": disk.name,
                "lustre_target_host": disk.host,
                "lustre_target_role": disk.role,
                "lustre_target_index": str(disk.index),
            },
            opts=pulumi.ResourceOptions(parent=self, protect=config.deletion_protection, depends_on=self._after),
        )


TABLES = ("fs-config", "startup-config")
"""Configs of the Runtime Configurator in which the servers exchange their names and states."""


class ExascalerLustre(LustreComponent[Exascaler]):
    """Management, metadata and object storage servers, each created after those that it registers with.

    Created servers are not yet a file system that is up: a command on the controller waits for that (`probe`).
    """

    TYPE = "hpc:gcp:ExascalerLustre"

    def create(self) -> None:
        name, args, config = self.name, self.args, self.args.config
        email, grant = self._account()
        before = [*args.network.built, *args.after, grant, *self._tables(), *self._firewalls()]
        script = startup_script(args.kind)
        instances: dict[str, list[pulumi.Resource]] = {"mgs": [], "mds": [], "oss": []}
        registered_with = {"mgs": [], "mds": instances["mgs"], "oss": instances["mds"]}
        for server in args.kind.servers():
            component = ExascalerServer(
                f"{name}-{server.kind}{server.index}",
                args.kind,
                server,
                script=script,
                account=email,
                network=args.network,
                after=before,
                servers=registered_with[server.kind],
                opts=pulumi.ResourceOptions(parent=self),
            )
            instances[server.kind].append(component.instance)
        self.ready = [Barrier(f"{name}-servers", list(chain(*instances.values())), parent=self)]
        address = args.network.addresses[f"{config.name}-mgs0"]
        self.finish(address, pulumi.Output.format("{0}@tcp:/{1}", address, args.kind.section.fsname))

    def more_facts(self) -> dict[str, object]:
        return {
            "servers": {server.name: self.args.network.addresses[server.name] for server in self.args.kind.servers()}
        }

    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=self.args.network.built)

    def _account(self) -> tuple[pulumi.Output[str], pulumi.Resource]:
        """Create the servers' service account with the permissions that loci needs: to find disks and servers, and to
        use the two configs. Returns its email and the grant."""
        config = self.args.config
        child = self._child()
        account = serviceaccount.Account(
            f"{self.name}-account",
            account_id=account_id(config, "lustre"),
            display_name=f"Lustre servers of the cluster {config.name}",
            opts=child,
        )
        role = projects.IAMCustomRole(
            f"{self.name}-role",
            role_id=role_id(f"{self.name}-role-id", config, "lustre", parent=self),
            title=f"Lustre servers of the cluster {config.name}",
            description="What DDN EXAScaler's servers need to find their disks and each other",
            permissions=list(PERMISSIONS),
            opts=child,
        )
        member = projects.IAMMember(
            f"{self.name}-member",
            project=place(config).project,
            role=role.name,
            member=pulumi.Output.concat("serviceAccount:", account.email),
            opts=child,
        )
        return account.email, member

    def _tables(self) -> list[pulumi.Resource]:
        name = self.args.config.name
        return [
            runtimeconfig.Config(
                f"{self.name}-{table}",
                name=f"{name}-{table}",
                description=f"hpc: kept by the Lustre servers of {name}",
                opts=self._child(),
            )
            for table in TABLES
        ]

    def _firewalls(self) -> list[pulumi.Resource]:
        """Create the rules for Lustre between all machines, since servers connect back to clients, and for the
        clients' packages on MGS."""
        config, network = self.args.config, self.args.network
        rules = (("lnet", str(LNET_PORT), network.tag), ("repo", "80", http_tag(config.name)))
        return [
            allow(
                f"{self.name}-{part}",
                f"{config.name}-{part}",
                network.system_network,
                [config.network.cidr],
                allows={"tcp": [port]},
                tags=[tag],
                project=host_project(config),
                opts=self._child(),
            )
            for part, port, tag in rules
        ]
