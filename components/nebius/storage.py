"""Shared file systems, and the bucket that backups of the jail go to."""

from collections.abc import Mapping

import pulumi
import pulumi_random as random

from cluster.platforms.nebius.node_groups import filesystems
from components.nebius.resource import Cloud, shortened


class Filesystems(pulumi.ComponentResource):
    """File systems by their mount tag."""

    ids: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, cloud: Cloud, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Filesystems", name, {}, opts)
        ids: dict[str, pulumi.Output[str]] = {}
        for tag, section in filesystems(cloud.settings).items():
            if section.spec is None:
                ids[tag] = pulumi.Output.from_input(section.existing or "")
                continue
            made = cloud.resource(
                "Filesystem",
                f"{name}-{tag}",
                {
                    "type": "NETWORK_SSD",
                    "size_gibibytes": section.spec.size_gib,
                    "block_size_bytes": section.spec.block_kib * 1024,
                },
                called=shortened(cloud.config.name, tag),
                opts=pulumi.ResourceOptions(parent=self, retain_on_delete=cloud.config.deletion_protection),
            )
            ids[tag] = made.id
        self.ids = ids
        self.register_outputs({"ids": ids})


ROLE = "storage.object-editor"
"""The service account's role for the bucket; it has no other."""


class Backups(pulumi.ComponentResource):
    """The bucket, the service account in a group of its own, and its access key."""

    bucket: pulumi.Output[str]
    """The bucket's name, once it and the permission are there."""
    endpoint: pulumi.Output[str]
    """URL of the object storage."""
    key_id: pulumi.Output[str]
    secret: pulumi.Output[str]
    password: pulumi.Output[str]
    """The password that encrypts backups."""

    def __init__(self, name: str, cloud: Cloud, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Backups", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        kept = cloud.config.deletion_protection
        # Names of buckets are unique among all customers of a region; and a bucket that stayed after a destroy must not
        # be in the way of the next stack. A group of the project takes no right at the tenant.
        called = cloud.owner.apply(lambda owner: shortened(cloud.config.name, f"backups-{owner[:8]}"))
        bucket = cloud.resource(
            "Bucket",
            f"{name}-bucket",
            {"versioning_policy": "DISABLED"},
            called=called,
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=kept),
        )
        account = cloud.resource(
            "ServiceAccount",
            f"{name}-account",
            {"description": f"backups of {cloud.config.name}"},
            called=shortened(cloud.config.name, "backup-sa"),
            opts=child,
        )
        group = cloud.resource("Group", f"{name}-group", {}, called=called, opts=child)
        member = cloud.resource(
            "GroupMembership", f"{name}-membership", {"member_id": account.id}, parent_id=group.id, opts=child
        )
        permit = cloud.resource(
            "AccessPermit", f"{name}-permit", {"resource_id": bucket.id, "role": ROLE}, parent_id=group.id, opts=child
        )
        key = cloud.resource(
            "AccessKey",
            f"{name}-key",
            {"account": {"service_account": {"id": account.id}}, "secret_delivery_mode": "INLINE"},
            called=called,
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[member, permit])),
        )
        self.bucket = pulumi.Output.all(called, key.id).apply(lambda found: found[0])
        self.endpoint = bucket.status.apply(lambda status: f"https://{status['domain_name']}:443")
        self.key_id = key.status.apply(lambda status: status["aws_access_key_id"])
        self.secret = pulumi.Output.secret(key.secret.apply(lambda secret: secret or ""))
        self.password = random.RandomPassword(f"{name}-password", length=40, special=False, opts=child).result
        self.register_outputs({"bucket": self.bucket})
