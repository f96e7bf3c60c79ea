"""What differs between a cluster as its stack says it is and as it was found: pure functions."""

from cluster.drift.difference import Difference
from cluster.drift.differences import differences
from cluster.drift.wanted import Wanted

__all__ = ["Difference", "Wanted", "differences"]
