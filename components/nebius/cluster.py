"""The managed Kubernetes cluster, and how its API server is reached."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from cluster.platforms.nebius.kubectl import PORTABLE_COMMAND, kubeconfig, server_url
from components.nebius.cloud import Cloud
from components.nebius.resource import NebiusResource


@dataclass(frozen=True, kw_only=True)
class KubernetesClusterArgs:
    cloud: Cloud
    subnet_id: pulumi.Input[str]


class KubernetesCluster(pulumi.ComponentResource):
    """The control plane."""

    resource: NebiusResource
    access: pulumi.Output[dict[str, Any]]
    """`server`, `certificate_authority`, `command`, `context`, `namespace`: the stack's output `kubernetes`.

    The command prints a credential when kubectl or Helm asks for one; there is no token in it. None is this program."""
    kubeconfig: pulumi.Output[str]

    def __init__(self, name: str, args: KubernetesClusterArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:KubernetesCluster", name, {}, opts)
        cloud, settings = args.cloud, args.cloud.settings
        self.resource = cloud.resource(
            "Cluster",
            f"{name}-mk8s",
            {
                "control_plane": {
                    "subnet_id": args.subnet_id,
                    "version": settings.kubernetes.version,
                    "etcd_cluster_size": settings.kubernetes.etcd_size,
                    "endpoints": {"public_endpoint": {}},
                }
            },
            called=cloud.config.name,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.access = self.resource.status.apply(
            lambda status: access(status, cloud.config.name, list(settings.token_command))
        )
        self.kubeconfig = self.access.apply(
            lambda found: kubeconfig(**{**found, "command": found["command"] or PORTABLE_COMMAND})
        )
        self.register_outputs({"id": self.resource.id})


def access(status: Mapping[str, Any], name: str, command: list[str]) -> dict[str, Any]:
    """How a cluster is reached, from the status of its resource."""
    plane = status["control_plane"]
    return {
        "server": server_url(plane["endpoints"]["public_endpoint"]),
        "certificate_authority": plane["auth"]["cluster_ca_certificate"],
        "command": command,
        "context": f"nebius-{name}",
        "namespace": name,
    }
