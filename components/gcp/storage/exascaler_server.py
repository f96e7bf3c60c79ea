"""One server of an EXAScaler file system: its disks, and the machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute

from cluster.config import ClusterConfig
from cluster.platforms.gcp.filesystems.base import Server, TargetDisk
from cluster.platforms.gcp.filesystems.exascaler import TARGET_OF, http_tag
from cluster.platforms.gcp.names import labels, place

BOOT_DISK = "pd-standard"


@dataclass(frozen=True, kw_only=True)
class ExascalerServerArgs:
    config: ClusterConfig
    server: Server
    image: str
    script: str
    """What it runs at each start."""
    service_account: pulumi.Input[str]
    """Email of the account that it acts as."""
    subnetwork: pulumi.Input[str]
    address: pulumi.Input[str]
    after: Sequence[pulumi.Resource]
    """What has to be there before its disks."""
    servers_before: Sequence[pulumi.Resource]
    """Servers that it registers with."""


class ExascalerServer(pulumi.ComponentResource):
    """A server with names, labels and tags by which EXAScaler finds its parts.

    All its disks are protected, the boot disk too: what a server with a new one would do to its targets is not known.
    """

    instance: compute.Instance

    def __init__(self, name: str, args: ExascalerServerArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:ExascalerServer", name, {}, opts)
        self._name, self._args = name, args
        config, server = args.config, args.server
        boot = self._boot_disk()
        disks = [
            compute.InstanceAttachedDiskArgs(source=self._target(disk).self_link, device_name=disk.name)
            for disk in server.disks
        ]
        nic = compute.InstanceNetworkInterfaceArgs(
            subnetwork=args.subnetwork, network_ip=args.address, nic_type="GVNIC"
        )
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
            service_account=compute.InstanceServiceAccountArgs(email=args.service_account, scopes=["cloud-platform"]),
            metadata={"startup-script": args.script, "enable-oslogin": "TRUE", "block-project-ssh-keys": "TRUE"},
            tags=tags,
            labels={**self._labels(), "lustre_type": TARGET_OF[server.kind], "lustre_index": str(server.index)},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.after, *args.servers_before]),
        )
        self.register_outputs({"address": args.address})

    def _labels(self) -> Mapping[str, str]:
        return {**labels(self._args.config, "lustre"), "deployment": self._args.config.name}

    def _boot_disk(self) -> compute.Disk:
        args = self._args
        return compute.Disk(
            f"{self._name}-boot-disk",
            name=args.server.boot_disk,
            zone=place(args.config).zone,
            type=BOOT_DISK,
            image=args.image,
            labels=self._labels(),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=args.config.deletion_protection,
                depends_on=list(args.after),
                # A family's next image is not to replace a server that runs.
                ignore_changes=["image"],
            ),
        )

    def _target(self, disk: TargetDisk) -> compute.Disk:
        config = self._args.config
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
            opts=pulumi.ResourceOptions(
                parent=self, protect=config.deletion_protection, depends_on=list(self._args.after)
            ),
        )
