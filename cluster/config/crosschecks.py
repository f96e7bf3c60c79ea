"""Rules that tie one part of the configuration to another."""

from cluster.config.cluster import ClusterConfig
from cluster.config.findings import Finding


def crosscheck(config: ClusterConfig) -> list[Finding]:
    """Every rule that is broken."""
    return []
