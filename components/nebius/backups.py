"""The bucket of backups, the key to it, and what is in it."""

from typing import Any

import pulumi
import pulumi_random as random

from cluster.platforms.nebius.names import shortened
from components.dynamic import ActionProvider, ActionResource, report, without_traceback
from components.nebius.api import objects
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS
from components.nebius.api.objects import state_of
from components.nebius.object_storage import BucketWithKey, url_of
from components.nebius.poll import PACE
from components.nebius.resource import NebiusPlace


class ContentsProvider(ActionProvider):
    """Creates nothing; its deletion empties the bucket, which Nebius would not delete otherwise."""

    ID = "{bucket_id}"
    ACTED_ON = ("key_id", "secret", "keep")
    PLACE = ("bucket_id",)
    LEAVES_NOTHING = False
    """False: the deletion is the resource's purpose, also after a creation that was interrupted."""

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete all objects in the bucket, unless they are kept; do nothing if the bucket is gone."""
        kind = KINDS["Bucket"]
        with without_traceback(NebiusError):
            message = objects.get(kind, _props["bucket_id"])
            if message is None or state_of(message) in kind.deleting:
                return
            if _props["keep"]:
                report(f"backups in bucket {message.metadata.name} are not deleted: deletion_protection is on")
                return
            BucketWithKey(
                url=url_of(message.status.domain_name),
                region=message.status.region,
                name=message.metadata.name,
                key_id=_props["key_id"],
                secret=_props["secret"],
                pace=_props["pace"],
            ).empty()


class Contents(ActionResource, module="nebius", name="BackupContents"):
    """The backups in a bucket. What may write to the bucket depends on it, and so is deleted before.

    Inputs: `bucket_id`; `key_id` and `secret` of an access key; `keep`: whether backups stay; `pace`.
    """

    PROVIDER = ContentsProvider


class NebiusBackups(pulumi.ComponentResource):
    """The bucket of backups, a service account in a group of its own, and its access key."""

    bucket: pulumi.Output[str]
    """The bucket's name, known once the account may write to it."""
    endpoint: pulumi.Output[str]
    """URL of the object storage."""
    key_id: pulumi.Output[str]
    secret: pulumi.Output[str]
    password: pulumi.Output[str]
    """The password that encrypts backups."""
    contents: Contents

    def __init__(self, name: str, cloud: NebiusPlace, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Backups", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        # Names of buckets are unique among all customers of a region, and a bucket that a destroy keeps must not have
        # the name of the next stack's. A group of the project needs no right at the tenant.
        called = cloud.owner.apply(lambda owner: shortened(cloud.name, f"backups-{owner[:8]}"))
        bucket = cloud.resource(
            "Bucket",
            f"{name}-bucket",
            {"versioning_policy": "DISABLED"},
            called=called,
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=cloud.config.deletion_protection),
        )
        account = cloud.resource(
            "ServiceAccount",
            f"{name}-account",
            {"description": f"backups of {cloud.name}"},
            called=shortened(cloud.name, "backup-sa"),
            opts=child,
        )
        group = cloud.resource("Group", f"{name}-group", {}, called=called, opts=child)
        member = cloud.resource(
            "GroupMembership", f"{name}-membership", {"member_id": account.id}, parent_id=group.id, opts=child
        )
        permit = cloud.resource(
            "AccessPermit",
            f"{name}-permit",
            {"resource_id": bucket.id, "role": "storage.object-editor"},
            parent_id=group.id,
            opts=child,
        )
        key = cloud.resource(
            "AccessKey",
            f"{name}-key",
            {"account": {"service_account": {"id": account.id}}, "secret_delivery_mode": "INLINE"},
            called=called,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[member, permit]),
        )
        self.endpoint = bucket.status.apply(lambda status: url_of(status["domain_name"]))
        self.key_id = key.status.apply(lambda status: status["aws_access_key_id"])
        self.secret = pulumi.Output.secret(key.secret.apply(lambda secret: secret or ""))
        self.contents = Contents(
            f"{name}-contents",
            bucket_id=bucket.id,
            key_id=self.key_id,
            secret=self.secret,
            keep=cloud.config.deletion_protection,
            pace=PACE,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[key, member, permit]),
        )
        self.bucket = pulumi.Output.all(called, self.contents.id).apply(lambda known: known[0])
        self.password = random.RandomPassword(f"{name}-password", length=40, special=False, opts=child).result
        self.register_outputs({"bucket": self.bucket})
