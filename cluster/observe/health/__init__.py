"""From what was seen on a cluster's machines to what is wrong with it, in words: pure functions."""

from cluster.observe.health.finding import Finding
from cluster.observe.health.findings import findings
from cluster.observe.observation import ClusterObservation, MachineObservation

__all__ = ["ClusterObservation", "Finding", "MachineObservation", "findings"]
