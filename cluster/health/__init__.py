"""From what was seen on a cluster's machines to what is wrong with it, in words: pure functions."""

from cluster.health.finding import Finding
from cluster.health.findings import findings
from cluster.health.sight import Sight, Sights

__all__ = ["Finding", "Sight", "Sights", "findings"]
