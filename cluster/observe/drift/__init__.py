"""What differs between a cluster as its stack says it is and as it was found: pure functions."""

from cluster.observe.drift.difference import Difference, Wanted
from cluster.observe.drift.differences import differences

__all__ = ["Difference", "Wanted", "differences"]
