"""Access to buckets that are there already. None is made, and none is removed."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_gcp import storage

from cluster.config import ClusterConfig

READ, WRITE = "roles/storage.objectViewer", "roles/storage.objectUser"


@dataclass(frozen=True, kw_only=True)
class BucketsArgs:
    """Who is to have access."""

    config: ClusterConfig
    accounts: Mapping[str, pulumi.Input[str]]
    """Email of the service account of each role: controller, login, node."""


class Buckets(pulumi.ComponentResource):
    """The machines' access to objects: reading alone, where the stack file says so."""

    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: BucketsArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Buckets", name, {}, opts)
        self.ready = [
            storage.BucketIAMMember(
                f"{name}-{bucket.name}-{role}",
                bucket=bucket.name,
                role=READ if bucket.read_only else WRITE,
                member=pulumi.Output.concat("serviceAccount:", email),
                opts=pulumi.ResourceOptions(parent=self),
            )
            for bucket in args.config.storage.buckets
            for role, email in args.accounts.items()
        ]
        self.register_outputs({"buckets": [bucket.name for bucket in args.config.storage.buckets]})
