"""The services of Google Cloud that a stack uses, enabled in its project."""

import pulumi
from pulumi_gcp import projects

from cluster.config import ClusterConfig
from cluster.platforms.gcp.permissions import services


class Services(pulumi.ComponentResource):
    """Enabled services. They stay enabled when the stack is destroyed: others in the project may use them."""

    ready: list[pulumi.Resource]
    """What everything else depends on."""

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
