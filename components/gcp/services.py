"""Services of Google Cloud that a stack uses, and a resource that waits for others."""

from collections.abc import Sequence

import pulumi
from pulumi_gcp import projects

from cluster.config import ClusterConfig
from cluster.platforms.gcp.permissions import services
from components.dynamic import ActionProvider, DynamicResource


class Services(pulumi.ComponentResource):
    """Enabled services. They stay enabled when the stack is destroyed: others in the project may use them."""

    ready: list[pulumi.Resource]
    """Dependencies of everything else."""

    def __init__(self, name: str, config: ClusterConfig, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Services", name, {}, opts)
        self.ready = [
            projects.Service(
                f"{name}-{service.partition('.')[0]}",
                service=service,
                disable_on_destroy=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for service in services(config)
        ]
        self.register_outputs({"services": list(services(config))})


class BarrierProvider(ActionProvider):
    """Creates nothing: it is there once all that it depends on is."""

    ID = "barrier"


class Barrier(DynamicResource, module="gcp", name="Barrier"):
    """A hundred machines that depend on a hundred addresses are 200 dependencies with it, and 10,000 without."""

    def __init__(self, name: str, after: Sequence[pulumi.Resource], *, parent: pulumi.Resource) -> None:
        super().__init__(BarrierProvider(), name, {}, pulumi.ResourceOptions(parent=parent, depends_on=list(after)))
