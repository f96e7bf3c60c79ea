"""The platform `local`: systemd-nspawn machines on this host, the rehearsal."""

from cluster.catalog.bounds import BRIDGE_PORTS
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Login
from cluster.config.image import Image
from cluster.config.monitoring import Monitoring
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.slurm import SlurmSettings
from cluster.config.storage import Storage
from cluster.platforms.base import ON_MACHINES, Capability, Limit, Platform, SlurmDifferences, later
from cluster.platforms.local.address_plan import keep

PLATFORM = Platform(
    name="local",
    title="local machines",
    defaults={
        "network": {"cidr": "10.77.0.0/20"},
        "storage": {"shared": ["/home", "/opt/apps", "/var/mail"]},
        "image": {"base": "debian-12"},
        "deletion_protection": False,
    },
    machine_types={"controller": "local-1c", "login": "local-1c", "monitoring": "local-1c", "node": "local-2c"},
    images=("debian-12", "debian-13"),
    any_machine_type=True,
    elastic=True,
    limit=Limit(machines=BRIDGE_PORTS, of="a bridge of Linux"),
    fields={
        ClusterConfig: frozenset({"containers", "host_names", "monitoring"}),
        Image: frozenset({"packages", "presents_as"}),
        Storage: frozenset({"shared", "read_only"}),
        Login: ON_MACHINES[Login],
        Monitoring: frozenset({"machine", "web"}),
        Nodeset: frozenset({"addresses", "capacity", *ON_MACHINES[Nodeset]}),
        Partition: ON_MACHINES[Partition],
        SlurmSettings: ON_MACHINES[SlurmSettings],
    },
    capabilities=frozenset(Capability),
    slurm=SlurmDifferences(bind_tasks=False, confine_cores=False, config_overrides=True, account_gather="linux"),
    checks=later("cluster.platforms.local.checks:find_errors"),
    keep=keep,
    impacts=later("cluster.platforms.local.impact:IMPACTS"),
    on_this_host=True,
    machine_images={"pulumi-python:dynamic/local:Machine": ("image", "os_release")},
    deploy="components.local.deploy",
)
