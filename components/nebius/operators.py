"""NVIDIA's operators, which Nebius installs as applications of the cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.nebius.cloud import Cloud

LIMITS = {"operator.resources.limits.cpu": "500m", "operator.resources.limits.memory": "1280Mi"}
"""Of the network operator: with its defaults it is killed on larger clusters (nebius-solutions-library)."""


@dataclass(frozen=True, kw_only=True)
class OperatorsArgs:
    cloud: Cloud
    cluster_id: pulumi.Input[str]
    gpus: bool
    """Whether any node has GPUs: without, there is none."""
    after: Sequence[pulumi.Resource] = field(default_factory=tuple)


class Operators(pulumi.ComponentResource):
    """The network operator and the GPU operator, which install drivers; node images with drivers need neither.

    Source: main.tf of nebius-solutions-library, soperator/installations/example (use_preinstalled_gpu_drivers).
    """

    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: OperatorsArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Operators", name, {}, opts)
        self._name, self._args = name, args
        self.ready = ()
        gpu = args.cloud.settings.gpu
        if args.gpus and gpu.driver == "operator":
            network = self._release("network-operator", LIMITS, args.after)
            settings = {
                "driver.version": gpu.driver_version,
                "dcgmExporter.enabled": "true",
                "dcgmExporter.serviceMonitor.enabled": "false",
                "mig.strategy": "none",
            }
            self.ready = (network, self._release("gpu-operator", settings, [network]))
        self.register_outputs({})

    def _release(
        self, application: str, settings: dict[str, Any], after: Sequence[pulumi.Resource]
    ) -> pulumi.CustomResource:
        args = self._args
        return args.cloud.resource(
            "K8sRelease",
            f"{self._name}-{application}",
            {
                "cluster_id": args.cluster_id,
                "product_slug": f"nebius/nvidia-{application}",
                "namespace": application,
                "application_name": application,
                "set": settings,
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
        )
