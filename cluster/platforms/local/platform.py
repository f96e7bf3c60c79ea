"""The platform `local`: systemd-nspawn machines on this host, the rehearsal."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from cluster.capability import Capability
from cluster.catalog.bounds import BRIDGE_PORTS
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Login
from cluster.config.image import Image
from cluster.config.impact_annotations import Impact
from cluster.config.monitoring import Monitoring
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.section import Section
from cluster.config.slurm import SlurmSettings
from cluster.config.storage import Storage
from cluster.edits import ImpactRule
from cluster.findings import Finding
from cluster.platform_interface import ON_MACHINES, MachineLimit, Platform, SlurmDifferences


class RehearsalPlatform(Platform):
    """Machines on this host."""

    name = "local"
    title = "local machines"
    defaults: ClassVar[Mapping[str, Any]] = {
        "network": {"cidr": "10.77.0.0/20"},
        "storage": {"shared": ["/home", "/opt/apps", "/var/mail"]},
        "image": {"base": "debian-12"},
        "deletion_protection": False,
    }
    machine_types: ClassVar[Mapping[str, str]] = {
        "controller": "local-1c",
        "login": "local-1c",
        "monitoring": "local-1c",
        "node": "local-2c",
    }
    images = ("debian-12", "debian-13")
    on_this_host = True
    limit = MachineLimit(machines=BRIDGE_PORTS, of="a bridge of Linux")
    fields: ClassVar[Mapping[type[Section], frozenset[str]]] = {
        ClusterConfig: frozenset({"containers", "host_names", "monitoring"}),
        Image: frozenset({"packages", "presents_as"}),
        Storage: frozenset({"shared", "read_only"}),
        Login: ON_MACHINES[Login],
        Monitoring: frozenset({"machine", "web"}),
        Nodeset: frozenset({"addresses", "capacity", *ON_MACHINES[Nodeset]}),
        Partition: ON_MACHINES[Partition],
        SlurmSettings: ON_MACHINES[SlurmSettings],
    }
    capabilities = frozenset(Capability)
    slurm = SlurmDifferences(bind_tasks=False, confine_cores=False, config_overrides=True, account_gather="linux")

    def find_errors(self, config: ClusterConfig) -> Iterator[Finding]:
        from cluster.platforms.local import checks

        return checks.find_errors(config)

    def keep(self, before: ClusterConfig | None, config: ClusterConfig) -> ClusterConfig:
        from cluster.platforms.local import address_plan

        return address_plan.keep(before, config)

    def impacts(self) -> Mapping[str, Impact | ImpactRule]:
        from cluster.platforms.local.impact import TABLE

        return TABLE
