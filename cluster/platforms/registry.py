"""The platforms: one row for each. Import this, or what imports it, before a platform is asked for."""

from cluster.platform_interface import Platform, all_platforms, get, names, register
from cluster.platforms.gcp.platform import GoogleCloudPlatform
from cluster.platforms.local.platform import RehearsalPlatform
from cluster.platforms.nebius.platform import SoperatorPlatform

__all__ = ["PLATFORMS", "all_platforms", "get", "names"]

PLATFORMS: tuple[Platform, ...] = (
    RehearsalPlatform(),
    GoogleCloudPlatform(),
    SoperatorPlatform(),
)

for platform in PLATFORMS:
    register(platform)
