"""Google Cloud Managed Lustre: a file system whose servers Google runs."""

import pulumi
from pulumi_gcp import lustre

from cluster.platforms.gcp.filesystems.managed import Managed
from cluster.platforms.gcp.names import labels, place
from components.gcp.storage.lustre import LustreComponent


class ManagedLustre(LustreComponent[Managed]):
    """One instance of Managed Lustre, in the peered network."""

    TYPE = "hpc:gcp:ManagedLustre"

    def make(self) -> None:
        config, given, network = self.args.config, self.args.kind.section, self.args.network
        instance = lustre.Instance(
            f"{self.name}-instance",
            instance_id=f"{config.name}-lustre",
            location=place(config).zone,
            filesystem=given.fsname,
            capacity_gib=str(given.size_gib),
            per_unit_storage_throughput=str(given.throughput),
            network=network.system_network,
            labels=labels(config, "lustre"),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=config.deletion_protection,
                # An existing network has its own peering, which is not in the stack.
                depends_on=[network.services or network.ready],
            ),
        )
        self.ready = [instance]
        self.finish(instance.mount_point.apply(lambda at: at.partition("@")[0]), instance.mount_point)
