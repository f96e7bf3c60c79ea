"""GPU clusters: nodes of one InfiniBand fabric."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components.nebius.cloud import Cloud, shortened


@dataclass(frozen=True, kw_only=True)
class GpuClustersArgs:
    cloud: Cloud


class GpuClusters(pulumi.ComponentResource):
    """One GPU cluster for each fabric that nodesets name, and those that were there before."""

    of: Mapping[str, pulumi.Output[str]]
    """Id of the GPU cluster of each nodeset that has one."""

    def __init__(self, name: str, args: GpuClustersArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:GpuClusters", name, {}, opts)
        cloud = args.cloud
        wanted = {
            nodeset: workers.infiniband
            for nodeset, workers in cloud.settings.workers.items()
            if workers.infiniband is not None and nodeset in cloud.config.nodesets
        }
        made = {
            fabric: cloud.resource(
                "GpuCluster",
                f"{name}-{fabric}",
                {"infiniband_fabric": fabric},
                called=shortened(cloud.config.name, fabric),
                opts=pulumi.ResourceOptions(parent=self),
            ).id
            for fabric in dict.fromkeys(one.fabric for one in wanted.values() if one.fabric)
        }
        self.of = {
            nodeset: made[one.fabric] if one.fabric else pulumi.Output.from_input(one.existing or "")
            for nodeset, one in wanted.items()
        }
        self.register_outputs({"ids": self.of})
