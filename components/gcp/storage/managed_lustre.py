"""Google Cloud Managed Lustre: a file system whose servers Google runs."""

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_gcp import lustre

from cluster.platforms.gcp.names import labels, place
from components.gcp.storage.lustre import LustreArgs, facts


class ManagedLustre(pulumi.ComponentResource):
    """One instance of Managed Lustre, in the peered network."""

    source: pulumi.Output[str]
    address: pulumi.Output[str]
    facts: Mapping[str, Any]
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: LustreArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:ManagedLustre", name, {}, opts)
        config, given, network = args.config, args.lustre, args.network
        instance = lustre.Instance(
            f"{name}-instance",
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
                depends_on=[network.services] if network.services else network.ready,
            ),
        )
        self.source = instance.mount_point
        self.address = self.source.apply(lambda at: at.partition("@")[0])
        self.facts = facts(given, self.address, self.source)
        self.ready = [instance]
        self.register_outputs({"source": self.source, "address": self.address})
