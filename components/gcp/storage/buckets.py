"""Access to buckets that are there already. None is made, and none is removed."""

import pulumi
from pulumi_gcp import storage

from cluster.platforms.gcp.filesystems.buckets import Buckets as Kind
from components.gcp.storage.base import FileSystemComponent

READ, WRITE = "roles/storage.objectViewer", "roles/storage.objectUser"


class Buckets(FileSystemComponent[Kind]):
    """The machines' access to objects: read-only where the stack file sets that."""

    TYPE = "hpc:gcp:Buckets"

    def make(self) -> None:
        buckets = self.args.config.storage.buckets
        self.ready = [
            storage.BucketIAMMember(
                f"{self.name}-{bucket.name}-{role}",
                bucket=bucket.name,
                role=READ if bucket.read_only else WRITE,
                member=pulumi.Output.concat("serviceAccount:", email),
                opts=pulumi.ResourceOptions(parent=self),
            )
            for bucket in buckets
            for role, email in self.args.accounts.items()
        ]
        self.facts = {bucket.name: bucket.mount for bucket in buckets}
        self.register_outputs({"buckets": [bucket.name for bucket in buckets]})
