"""State buckets: what all kinds have in common, URLs of S3-compatible storage, and variables of clouds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Environment variables that programs need to work with a stack's cloud."""

    variables: Mapping[str, str] = field(default_factory=dict)
    secret: frozenset[str] = frozenset()
    """Names of those whose value is a secret."""
    notes: Sequence[str] = ()
    """Lines for the person who runs the command: where a value comes from, what is missing."""


class StateBucketError(RuntimeError):
    """The refusal, why, and what to do."""


Version = tuple[int, int]
"""Major and minor version of the Pulumi CLI."""

_CHECKSUMS = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
_SDK_V2: Version = (3, 245)
"""From here on the CLI uses the AWS SDK v2, which adds checksum trailers to every write; S3-compatible stores
answer 403 (pulumi/pulumi #23421, #23764), and it warns at each read. From 3.256 on the CLI sets the first parameter
itself for a URL with an endpoint (#24109), and still warns. Before, both are unknown and refused (gocloud.dev before
0.46)."""
_DEFECT: tuple[Version, Version] = ((3, 256), (3, 258))
"""First version that may not write to stores that compare the checksum of unsigned payloads, and the first after them
(pulumi/pulumi #24219, corrected by the gocloud.dev of #24292)."""


def parse_version(text: str) -> Version:
    """The version that `pulumi version` prints, such as v3.272.0. Raises ValueError: it is none."""
    major, _, rest = text.strip().removeprefix("v").partition(".")
    return int(major), int(rest.partition(".")[0])


def backend_url(bucket: str, region: str, endpoint: str, cli: Version) -> str:
    """The URL for PULUMI_BACKEND_URL. `endpoint` has its scheme: https://storage.eu-north1.nebius.cloud:443.

    s3ForcePathStyle is read by all versions: the AWS SDK v1 has no other spelling, and v2 accepts it.
    """
    query = {"region": region, "endpoint": endpoint, "s3ForcePathStyle": "true"}
    return f"s3://{bucket}?{urlencode({**query, **(_CHECKSUMS if _needs_checksums(cli) else {})})}"


def variables(cli: Version) -> Mapping[str, str]:
    """The settings as the AWS SDK takes them from the environment; empty where the CLI does not need them."""
    return {f"AWS_{name.upper()}": value for name, value in _CHECKSUMS.items()} if _needs_checksums(cli) else {}


VARIABLES = tuple(f"AWS_{name.upper()}" for name in _CHECKSUMS)
"""Names of all that `variables` may return."""


def defect(cli: Version) -> str:
    """Return what to do about a version that may fail to write to S3-compatible storage; empty for any other."""
    if not _DEFECT[0] <= cli < _DEFECT[1]:
        return ""
    return (
        f"Pulumi CLI {cli[0]}.{cli[1]} may fail to write to S3-compatible storage (InvalidDigest, pulumi/pulumi "
        "#24219). If it does: ./hpc install-pulumi"
    )


def _needs_checksums(cli: Version) -> bool:
    return cli >= _SDK_V2


_RENEW_BEFORE = 10
"""A key is renewed in the last tenth of its time, so that it does not expire during a run."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """An access key of S3-compatible storage."""

    name: str
    """Chosen before it is created: a run that was killed in between finds it again by this name."""
    created: datetime
    expires: datetime
    id: str = ""
    """The cloud's id of it; empty until it was created."""
    access_key_id: str = ""
    secret: str = field(default="", repr=False)

    @property
    def complete(self) -> bool:
        """True if it was created and its secret is known."""
        return bool(self.id and self.access_key_id and self.secret)

    def usable(self, now: datetime) -> bool:
        """Return whether it is complete, and not in the last tenth of its time."""
        return self.complete and now < self.expires - (self.expires - self.created) / _RENEW_BEFORE


@dataclass(frozen=True, kw_only=True)
class BucketRecord:
    """The record of a bucket that `./hpc backend init` created."""

    kind: str
    bucket: str
    project: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """More of what its kind needs."""
    key: Key | None = None

    def with_key(self, key: Key | None) -> "BucketRecord":
        """Return a copy with another key."""
        return replace(self, key=key)

    def with_settings(self, **settings: str) -> "BucketRecord":
        """Return a copy with some settings replaced."""
        return replace(self, settings={**self.settings, **settings})


def now() -> datetime:
    """The time, in seconds: records and APIs have no more."""
    return datetime.now(timezone.utc).replace(microsecond=0)


class Done(str, Enum):
    """The outcome of a step: what it did, or would do."""

    FOUND = "found"
    CREATED = "created"
    DELETED = "deleted"
    TO_CREATE = "to create"
    TO_DELETE = "to delete"


@dataclass(frozen=True, kw_only=True)
class BucketStep:
    """A step of `./hpc backend init`, as it is reported."""

    what: str
    """Kind and name, such as `bucket pulumi-slurm-...`."""
    done: Done
    detail: str = ""

    @property
    def changes(self) -> bool:
        """True if the step changed something, or would."""
        return self.done is not Done.FOUND


class Backend(ABC):
    """A bucket for state. Errors, those of the cloud's API among them, say what was refused, why and what to do."""

    kind: ClassVar[str]
    """The argument of `./hpc backend init KIND`."""
    title: ClassVar[str]
    """The name for users."""

    def __init__(self, record: BucketRecord, save: Callable[[BucketRecord], None], folder: Path) -> None:
        """`save` keeps the record on this machine, in `folder`."""
        self.record, self.save, self.folder = record, save, folder

    @abstractmethod
    def prepare(self, *, dry_run: bool) -> Iterator[BucketStep]:
        """Find or create all that the bucket needs, step by step, and keep the record. With `dry_run` nothing is
        written anywhere. A second run changes nothing, and one that follows an interrupted run completes it."""

    @abstractmethod
    def renew(self) -> str:
        """Renew credentials that have expired, or will soon; says so in one line. Empty: nothing had to be done."""

    @abstractmethod
    def environment(self, cli: Version) -> Environment:
        """Return what that version of the Pulumi CLI needs to reach the bucket, PULUMI_BACKEND_URL among it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all variables that `environment` may set."""
        return ("PULUMI_BACKEND_URL",)
