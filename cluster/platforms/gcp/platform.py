"""The platform `gcp`: Google Cloud."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from cluster.capability import Capability
from cluster.catalog.bounds import GOOGLE_INSTANCES
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Controller, Login
from cluster.config.image import Image
from cluster.config.impact_annotations import Impact
from cluster.config.monitoring import Monitoring, MonitoringMachine, Web
from cluster.config.network import Network
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.pricing import Budget
from cluster.config.section import Section
from cluster.config.slurm import SlurmSettings
from cluster.config.storage import Storage
from cluster.cost_parts import Part
from cluster.edits import ImpactRule
from cluster.findings import Finding
from cluster.platform_interface import ON_MACHINES, MachineLimit, Platform, ProviderLogin, SlurmDifferences
from cluster.platforms.gcp.defaults import BASE_IMAGES, DEFAULTS, MACHINE_TYPES
from cluster.platforms.gcp.names import GoogleCloud, place

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


class GoogleLogin(ProviderLogin):
    """Credentials of a stack's settings, the environment, `gcloud` or the machine itself."""

    title = "Google"
    todo = "gcloud auth application-default login"

    def found(self, settings: Mapping[str, Any]) -> bool:
        if any(settings.get(key) for key in _SETTINGS) or any(os.environ.get(name) for name in _VARIABLES):
            return True
        folder = os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config/gcloud"
        if (Path(folder) / "application_default_credentials.json").exists():
            return True
        try:
            return _PRODUCT.read_text(encoding="utf-8").startswith("Google")
        except OSError:
            return False


class GoogleCloudPlatform(Platform):
    """Google Cloud."""

    name = "gcp"
    title = "Google Cloud"
    defaults = DEFAULTS
    machine_types = MACHINE_TYPES
    images = BASE_IMAGES
    ops_agent = ("google-cloud-ops-agent", "/etc/google-cloud-ops-agent/config.yaml")
    limit = MachineLimit(machines=GOOGLE_INSTANCES, of="a network of Google Cloud")
    fields: ClassVar[Mapping[type[Section], frozenset[str]]] = {
        ClusterConfig: frozenset({"containers", "customize", "monitoring", "pricing", "budget"}),
        Budget: frozenset({"stop", "billing_account"}),
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
    }
    capabilities = frozenset(Capability)
    slurm = SlurmDifferences(places=True)
    login = GoogleLogin()

    def provider(self) -> type[GoogleCloud]:
        return GoogleCloud

    def find_errors(self, config: ClusterConfig) -> Iterator[Finding]:
        from cluster.platforms.gcp import checks

        return checks.find_errors(config)

    def find_warnings(self, config: ClusterConfig) -> Iterator[Finding]:
        from cluster.platforms.gcp import checks

        return checks.find_warnings(config)

    def impacts(self) -> Mapping[str, Impact | ImpactRule]:
        from cluster.platforms.gcp.impact import TABLE

        return TABLE

    def describe_request(self, config: ClusterConfig) -> Sequence[str]:
        from cluster.platforms.gcp import request

        return request.describe_request(config)

    def region(self, config: ClusterConfig) -> str:
        return place(config).region

    def cost_parts(self, config: ClusterConfig) -> Sequence[Part]:
        from cluster.platforms.gcp import cost

        return list(cost.parts(config))

    def job_programs(self, config: ClusterConfig) -> Collection[str]:
        from cluster.platforms.gcp import image

        return image.job_programs(config)
