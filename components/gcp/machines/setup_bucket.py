"""The bucket that machines fetch their set-up from."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pulumi
from pulumi_gcp import storage

from cluster.config import ClusterConfig
from cluster.platforms.gcp.names import labels, place
from components.slurm import payload

READER = "roles/storage.objectViewer"


@cache
def archive() -> tuple[bytes, str]:
    """The set-up, {name: [lines]} as JSON, and its SHA-256.

    Not compressed: the bytes of a gzip differ between versions of zlib, and with them every machine's metadata.
    """
    content = payload.packed_setup().encode()
    return content, hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object that a machine can fetch, and its hash."""

    url: pulumi.Output[str]
    """gs://BUCKET/NAME; the name carries the hash, so that what a URL means never changes."""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class SetupBucketArgs:
    config: ClusterConfig
    files: Mapping[str, tuple[bytes, str]]
    """Content (text) and SHA-256 of each file, by its name: setup.json."""
    members: Mapping[str, pulumi.Input[str]]
    """IAM member (serviceAccount:...) of each role that fetches them."""
    after: Sequence[pulumi.Resource] = ()
    """What everything waits for: the services of Google Cloud that it uses."""


class SetupBucket(pulumi.ComponentResource):
    """A private bucket with the set-up; nothing in it is secret, and nothing in it is data."""

    objects: Mapping[str, StoredObject]
    """The stored files, by the name that they were given with."""

    def __init__(self, name: str, args: SetupBucketArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:SetupBucket", name, {}, opts)
        config, child = args.config, pulumi.ResourceOptions(parent=self, depends_on=list(args.after))
        bucket = storage.Bucket(
            f"{name}-bucket",
            name=bucket_name(config),
            location=place(config).region,
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            # The next `up` creates all of it again.
            force_destroy=True,
            # Replaced versions are not needed.
            soft_delete_policy=storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=0),
            labels=labels(config, "storage"),
            opts=child,
        )
        self.objects = {
            file: _store(f"{name}-{file.partition('.')[0]}", bucket, file, *held, opts=child)
            for file, held in args.files.items()
        }
        self._readers = {
            role: storage.BucketIAMMember(f"{name}-{role}", bucket=bucket.name, role=READER, member=member, opts=child)
            for role, member in args.members.items()
        }
        self.register_outputs({"bucket": bucket.name})

    def reader(self, role: str) -> pulumi.Resource:
        """The grant that a machine of this role can't boot without."""
        return self._readers[role]


def bucket_name(config: ClusterConfig) -> str:
    """Name of the bucket: names are the whole world's, a project's id is too."""
    return f"{place(config).project}-{config.name}-setup"


def _store(
    name: str, bucket: storage.Bucket, file: str, content: bytes, sha256: str, *, opts: pulumi.ResourceOptions
) -> StoredObject:
    stem, dot, ending = file.partition(".")
    stored = storage.BucketObject(
        name,
        bucket=bucket.name,
        name=f"{stem}-{sha256[:12]}{dot}{ending}",
        source=pulumi.StringAsset(content.decode()),
        opts=opts,
    )
    return StoredObject(url=pulumi.Output.concat("gs://", stored.bucket, "/", stored.output_name), sha256=sha256)
