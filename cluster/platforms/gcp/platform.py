"""The platform `gcp`: Google Cloud."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.catalog.bounds import GOOGLE_INSTANCES
from cluster.config.cluster import ClusterConfig
from cluster.config.gcp import GoogleCloud
from cluster.config.image import Image
from cluster.config.machines import Controller, Login, Nodeset
from cluster.config.network import Network
from cluster.config.partitions import Partition
from cluster.config.slurm import SlurmSettings
from cluster.config.storage import Storage
from cluster.findings import Finding, show
from cluster.platforms.base import ON_MACHINES, Capability, Credentials, Limit, Platform, Provider, later
from cluster.platforms.gcp import credentials
from cluster.platforms.gcp.defaults import BASE_IMAGES, DEFAULTS, MACHINE_TYPES


def _region(settings: Mapping[str, Any]) -> Iterator[Finding]:
    region, zone = settings.get("region"), settings.get("zone")
    if region is not None and zone is not None and str(zone).rpartition("-")[0] != region:
        yield Finding(
            id="gcp-region",
            at="gcp:region",
            given=show(region),
            allowed=f"the region of gcp:zone, {str(zone).rpartition('-')[0]}",
            todo="remove it: the zone says the region",
        )


PLATFORM = Platform(
    name="gcp",
    title="Google Cloud",
    defaults=DEFAULTS,
    machine_types=MACHINE_TYPES,
    images=BASE_IMAGES,
    limit=Limit(machines=GOOGLE_INSTANCES, of="a network of Google Cloud"),
    sections={"gcp": GoogleCloud},
    provider=Provider(
        namespace="gcp", more={"region": "On gcp: the zone's region; it need not be said."}, check=_region
    ),
    fields={
        ClusterConfig: frozenset({"containers", "customize"}),
        Network: frozenset({"gpu_cidr", "second_cidr", "services_cidr", "existing", "nat", "admin_cidrs"}),
        Storage: frozenset({"lustre", "filestore", "nfs", "buckets"}),
        Image: frozenset({"bake", "recipe", "snapshot", "name", "provision", "packages", "builder"}),
        Controller: frozenset({"disk", "state_disk", "capacity"}),
        Login: frozenset({"disk", "capacity", "public", *ON_MACHINES[Login]}),
        Nodeset: frozenset({"disk", "capacity", *ON_MACHINES[Nodeset]}),
        Partition: ON_MACHINES[Partition],
        SlurmSettings: ON_MACHINES[SlurmSettings],
    },
    capabilities=frozenset(Capability),
    checks=later("cluster.platforms.gcp.checks.run:find_errors"),
    warnings=later("cluster.platforms.gcp.checks.run:find_warnings"),
    rxdm=later("cluster.platforms.gcp.image.rxdm:of_driver"),
    impacts=later("cluster.platforms.gcp.impact.table:TABLE"),
    summary=later("cluster.platforms.gcp.request:describe_request"),
    job_programs=later("cluster.platforms.gcp.image.programs:job_programs"),
    credentials=Credentials(
        title="Google", found=credentials.credentials, todo="gcloud auth application-default login"
    ),
    deploy="components.gcp.deploy",
    rehearsal="components.local.rehearsal",
    environment="components.gcp.environment",
)
