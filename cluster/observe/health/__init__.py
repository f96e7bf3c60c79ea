"""From what was seen on a cluster's machines to what is wrong with it, in words: pure functions."""

from cluster.observe.health.finding import Finding
from cluster.observe.health.findings import findings
from cluster.observe.observation import Sight, Sights

__all__ = ["Finding", "Sight", "Sights", "findings"]
