"""The platform `gcp`: Google Cloud."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster.catalog.bounds import GOOGLE_INSTANCES
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Controller, Login
from cluster.config.image import Image
from cluster.config.monitoring import Monitoring, MonitoringMachine, Web
from cluster.config.network import Network
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.slurm import SlurmSettings
from cluster.config.storage import Storage
from cluster.findings import Finding, show
from cluster.platforms.base import (
    ON_MACHINES,
    Capability,
    Credentials,
    Limit,
    Platform,
    Provider,
    SlurmDifferences,
    later,
)

NETWORK: Mapping[str, str] = {
    "cidr": "172.16.0.0/20",
    "gpu_cidr": "10.0.0.0/17",
    "second_cidr": "10.1.0.0/20",
    "services_cidr": "10.128.0.0/20",
}
DEFAULTS: Mapping[str, Any] = {
    "gcp": {},
    "network": NETWORK,
    "storage": {},
    "image": {"base": "ubuntu-2204"},
    "deletion_protection": True,
}
BASE_IMAGES = ("ubuntu-2204", "ubuntu-2404")
"""Operating systems of the catalog that machines can have, the default first."""
MACHINE_TYPES: Mapping[str, str] = {
    "controller": "c2-standard-8",
    "login": "c2-standard-4",
    "monitoring": "n2-standard-2",
    "node": "n2-standard-2",
}
"""Default machine types by role."""


# Variables of pulumi-gcp's settings credentials and accessToken (its installation page), and those that
# google.auth.default reads (google.auth.environment_vars).
_VARIABLES = (
    "GOOGLE_CREDENTIALS",
    "GOOGLE_CLOUD_KEYFILE_JSON",
    "GCLOUD_KEYFILE_JSON",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GCE_METADATA_HOST",
)
_SETTINGS = ("gcp:credentials", "gcp:accessToken")
_PRODUCT = Path("/sys/class/dmi/id/product_name")
"""Begins with Google on a machine of Google Cloud. Its metadata server has credentials (google.auth.compute_engine)."""


def has_credentials(settings: Mapping[str, Any]) -> bool:
    """Return whether a stack's settings, the environment, `gcloud` or the machine itself has credentials."""
    if any(settings.get(key) for key in _SETTINGS) or any(os.environ.get(name) for name in _VARIABLES):
        return True
    folder = os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config/gcloud"
    if (Path(folder) / "application_default_credentials.json").exists():
        return True
    try:
        return _PRODUCT.read_text(encoding="utf-8").startswith("Google")
    except OSError:
        return False


def _region_errors(settings: Mapping[str, Any]) -> Iterator[Finding]:
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
    elastic=True,
    title="Google Cloud",
    defaults=DEFAULTS,
    machine_types=MACHINE_TYPES,
    images=BASE_IMAGES,
    ops_agent=("google-cloud-ops-agent", "/etc/google-cloud-ops-agent/config.yaml"),
    limit=Limit(machines=GOOGLE_INSTANCES, of="a network of Google Cloud"),
    sections={"gcp": "cluster.platforms.gcp.names:GoogleCloud"},
    provider=Provider(
        namespace="gcp", more={"region": "On gcp: the zone's region; it need not be said."}, check=_region_errors
    ),
    fields={
        ClusterConfig: frozenset({"containers", "customize", "monitoring"}),
        Network: frozenset({"gpu_cidr", "second_cidr", "services_cidr", "existing", "nat", "admin_cidrs"}),
        Web: frozenset({"cidrs"}),
        Storage: frozenset({"lustre", "filestore", "nfs", "buckets"}),
        Image: frozenset({"bake", "recipe", "snapshot", "name", "provision", "packages", "builder"}),
        Controller: frozenset({"disk", "state_disk", "capacity"}),
        Login: frozenset({"disk", "capacity", "public", *ON_MACHINES[Login]}),
        Monitoring: frozenset({"ops_agent", "machine", "web"}),
        MonitoringMachine: frozenset({"disk"}),
        Nodeset: frozenset({"disk", "capacity", *ON_MACHINES[Nodeset]}),
        Partition: ON_MACHINES[Partition],
        SlurmSettings: ON_MACHINES[SlurmSettings],
    },
    capabilities=frozenset(Capability),
    slurm=SlurmDifferences(places=True),
    checks=later("cluster.platforms.gcp.checks:find_errors"),
    warnings=later("cluster.platforms.gcp.checks:find_warnings"),
    rxdm=later("cluster.platforms.gcp.image:rxdm_of_driver"),
    impacts=later("cluster.platforms.gcp.impact:TABLE"),
    summary=later("cluster.platforms.gcp.request:describe_request"),
    job_programs=later("cluster.platforms.gcp.image:job_programs"),
    credentials=Credentials(title="Google", found=has_credentials, todo="gcloud auth application-default login"),
    machine_images={
        "gcp:compute/instance:Instance": ("bootDisk.initializeParams.image",),
        # Both: a template can't change, and a new template recreates the machines even if its image is the same.
        "gcp:compute/instanceTemplate:InstanceTemplate": ("disks[0].sourceImage",),
        "gcp:compute/instanceFromTemplate:InstanceFromTemplate": ("sourceInstanceTemplate",),
        "pulumi-python:dynamic/gcp:FlexNode": ("template",),
    },
    deploy="components.gcp.deploy",
    environment="components.gcp.environment",
    state_bucket=("gcs", "components.gcp.state"),
)
