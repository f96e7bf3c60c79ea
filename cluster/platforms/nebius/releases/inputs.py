"""Inputs of the adapters: configuration, and facts that only the cloud has."""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Nodeset
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.releases.release import Facts
from cluster.platforms.nebius.section import Nebius
from cluster.roster import has_gpus, nodeset_gpu

DEFAULT_REGISTRY = "cr.eu-north1.nebius.cloud/soperator"
"""Where the charts' own values have Soperator's images."""
_OCI = "oci://"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A cluster's configuration, and the cloud's facts about it."""

    config: ClusterConfig
    settings: Nebius
    facts: Facts

    @property
    def name(self) -> str:
        """Name of the SlurmCluster and of its namespace: the chart demands that they are the same."""
        return self.config.name

    @property
    def version(self) -> str:
        """Soperator's version."""
        return self.settings.soperator.version

    @property
    def number(self) -> versions.Number:
        """Soperator's version in order."""
        return versions.parse(self.version)

    @property
    def nodesets(self) -> Mapping[str, Nodeset]:
        """All nodesets. Each has nodes: of 0 replicas the chart would make 1, since it takes 0 for no value."""
        return self.config.nodesets

    @property
    def workers(self) -> int:
        """Nodes of all nodesets."""
        return sum(one.count for one in self.nodesets.values())

    @property
    def gpus(self) -> bool:
        """Whether any node has GPUs."""
        return has_gpus(self.config)

    def gpus_of(self, nodeset: str) -> int:
        """GPUs of each node of a nodeset."""
        gpu = nodeset_gpu(self.config, self.config.nodesets[nodeset])
        return gpu.count if gpu else 0

    @property
    def registry(self) -> str:
        """Where images come from: the registry of the charts. Charts of a folder have images of the default one."""
        charts = self.settings.soperator.charts.rstrip("/")
        return charts.removeprefix(_OCI) if charts.startswith(_OCI) else DEFAULT_REGISTRY
