"""The backend URL of a bucket in S3-compatible storage, as each version of the Pulumi CLI reads it."""

from collections.abc import Mapping
from urllib.parse import urlencode

Version = tuple[int, int]
"""Major and minor version of the Pulumi CLI."""

_CHECKSUMS = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
_SDK_V2: Version = (3, 245)
"""From here on the CLI has the AWS SDK v2, which adds checksum trailers to every write; S3-compatible stores answer 403
(pulumi/pulumi #23421, #23764), and it warns at each read. From 3.256 on the CLI sets the first parameter itself for a
URL with an endpoint (#24109), and still warns. Before, both are unknown and refused (gocloud.dev before 0.46)."""
_DEFECT: tuple[Version, Version] = ((3, 256), (3, 258))
"""First version that may not write to stores that compare the checksum of unsigned payloads, and the first after them
(pulumi/pulumi #24219, corrected by the gocloud.dev of #24292)."""


def parse_version(text: str) -> Version:
    """The version that `pulumi version` prints, such as v3.272.0. Raises ValueError: it is none."""
    major, _, rest = text.strip().removeprefix("v").partition(".")
    return int(major), int(rest.partition(".")[0])


def backend_url(bucket: str, region: str, endpoint: str, cli: Version) -> str:
    """The URL for PULUMI_BACKEND_URL. `endpoint` has its scheme: https://storage.eu-north1.nebius.cloud:443.

    s3ForcePathStyle is read by all versions: the AWS SDK v1 knows no other spelling, and v2 accepts it.
    """
    query = {"region": region, "endpoint": endpoint, "s3ForcePathStyle": "true"}
    return f"s3://{bucket}?{urlencode({**query, **(_CHECKSUMS if _needs_checksums(cli) else {})})}"


def variables(cli: Version) -> Mapping[str, str]:
    """The same settings as the AWS SDK takes them from the environment; empty where the CLI does not need them."""
    return {f"AWS_{name.upper()}": value for name, value in _CHECKSUMS.items()} if _needs_checksums(cli) else {}


VARIABLES = tuple(f"AWS_{name.upper()}" for name in _CHECKSUMS)
"""Names of all that `variables` may return."""


def defect(cli: Version) -> str:
    """What to do about a version that may fail to write to S3-compatible storage; empty for any other."""
    if not _DEFECT[0] <= cli < _DEFECT[1]:
        return ""
    return (
        f"Pulumi CLI {cli[0]}.{cli[1]} may fail to write to S3-compatible storage (InvalidDigest, pulumi/pulumi "
        "#24219). If it does: ./hpc install-pulumi"
    )


def _needs_checksums(cli: Version) -> bool:
    return cli >= _SDK_V2
