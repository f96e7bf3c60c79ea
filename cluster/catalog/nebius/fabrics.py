"""InfiniBand fabrics that are known: which platform's nodes can join a GPU cluster there, and in which region.

Nebius adds fabrics without notice, so the table warns and never refuses.
"""

from dataclasses import dataclass

SOURCE = "docs.nebius.com/compute/clusters/gpu#fabrics; nebius-solutions-library, pull request 1142"


@dataclass(frozen=True, kw_only=True)
class InfinibandFabric:
    """One InfiniBand fabric."""

    name: str
    platform: str
    region: str


def _fabric(name: str, platform: str, region: str) -> InfinibandFabric:
    return InfinibandFabric(name=name, platform=platform, region=region)


# Source: SOURCE.
_ROWS = (
    *(_fabric(f"fabric-{number}", "gpu-h100-sxm", "eu-north1") for number in (2, 3, 4, 6)),
    _fabric("fabric-7", "gpu-h200-sxm", "eu-north1"),
    _fabric("fabric-5", "gpu-h200-sxm", "eu-west1"),
    _fabric("eu-north2-a", "gpu-h200-sxm", "eu-north2"),
    _fabric("us-central1-a", "gpu-h200-sxm", "us-central1"),
    _fabric("us-central1-b", "gpu-b200-sxm", "us-central1"),
    _fabric("me-west1-a", "gpu-b200-sxm-a", "me-west1"),
    _fabric("uk-south1-a", "gpu-b300-sxm", "uk-south1"),
    _fabric("us-north1-a", "gpu-b300-sxm", "us-north1"),
    _fabric("eu-west2-a", "gpu-b300-sxm", "eu-west2"),
)

FABRICS: dict[str, InfinibandFabric] = {row.name: row for row in _ROWS}


def fabrics_of(platform: str, region: str) -> list[str]:
    """Names of the fabrics that a platform has in a region."""
    return [one.name for one in FABRICS.values() if (one.platform, one.region) == (platform, region)]
