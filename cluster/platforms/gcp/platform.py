"""The platform `gcp`: Google Cloud."""

from collections.abc import Iterator

from cluster.checks.warning import Warned
from cluster.config.cluster import ClusterConfig
from cluster.config.gcp import GoogleCloud
from cluster.config.image import Image
from cluster.config.machines import Controller, Login, Nodeset
from cluster.config.network import Network
from cluster.config.storage import Storage
from cluster.findings import Broken
from cluster.platforms.base import Capability, Platform
from cluster.platforms.defaults import PLATFORMS
from cluster.platforms.gcp.checks import capacity, disks, driver, exascaler, image, location, network, storage
from cluster.platforms.gcp.impact.table import TABLE


def _checks(config: ClusterConfig) -> Iterator[Broken]:
    for rules in (network, storage, image, disks, capacity):
        yield from rules.broken(config)


def _warnings(config: ClusterConfig) -> Iterator[Warned]:
    yield from location.warned(config)
    yield from driver.warned(config)
    yield from exascaler.warned(config)


PLATFORM = Platform(
    name="gcp",
    title="Google Cloud",
    defaults=PLATFORMS["gcp"].defaults,
    machine_types=PLATFORMS["gcp"].machine_types,
    sections={"gcp": GoogleCloud},
    fields={
        Network: frozenset({"gpu_cidr", "services_cidr", "existing", "nat", "admin_cidrs"}),
        Storage: frozenset({"lustre", "filestore", "buckets"}),
        Image: frozenset({"bake", "recipe", "snapshot", "name", "provision", "builder"}),
        Controller: frozenset({"disk", "state_disk", "capacity"}),
        Login: frozenset({"disk", "capacity", "public"}),
        Nodeset: frozenset({"disk", "capacity"}),
    },
    capabilities=frozenset(Capability),
    checks=_checks,
    warnings=_warnings,
    impacts=TABLE,
    deploy="components.gcp.deploy",
)
