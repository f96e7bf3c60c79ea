"""The rehearsal of a cloud's stack: the same Slurm cluster on local machines, and what differs there."""

from cluster.platforms.local.rehearsal.differences import COUNT, Difference, differences
from cluster.platforms.local.rehearsal.network import candidates
from cluster.platforms.local.rehearsal.stack import AT_MOST, STAND_IN, rehearsed, room, shared, stood_in

__all__ = [
    "AT_MOST",
    "COUNT",
    "STAND_IN",
    "Difference",
    "candidates",
    "differences",
    "rehearsed",
    "room",
    "shared",
    "stood_in",
]
