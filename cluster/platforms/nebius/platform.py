"""The platform `nebius`: managed Kubernetes with Soperator, which runs Slurm in pods."""

from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Controller, Login, Nodeset
from cluster.platforms.base import Capability, Credentials, Limit, Platform
from cluster.platforms.nebius import credentials
from cluster.platforms.nebius.defaults import DEFAULTS, MACHINE_TYPES
from cluster.platforms.nebius.section import Nebius

NODES = 10_000
"""Nodes of one managed Kubernetes cluster: 100 groups of 100 nodes are what this program makes at most."""

PLATFORM = Platform(
    name="nebius",
    title="Nebius",
    defaults=DEFAULTS,
    machine_types=MACHINE_TYPES,
    images=("soperator",),
    limit=Limit(machines=NODES, of="a managed Kubernetes cluster"),
    sections={"nebius": Nebius},
    fields={
        ClusterConfig: frozenset({"host_names"}),
        Controller: frozenset({"disk"}),
        Login: frozenset({"disk"}),
        Nodeset: frozenset({"disk", "capacity"}),
    },
    capabilities=frozenset(
        {
            Capability.RUN,
            Capability.SSH,
            Capability.STATUS,
            Capability.NODES,
            Capability.DRIFT,
            Capability.LOGS,
            Capability.USAGE,
            Capability.REHEARSE,
        }
    ),
    credentials=Credentials(title="Nebius", found=credentials.credentials, todo="nebius profile create"),
    deploy="components.nebius.deploy",
    environment="components.nebius.environment",
)
