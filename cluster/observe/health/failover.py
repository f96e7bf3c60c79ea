"""A controller in two zones: whether the machine that brings it back in the other one still looks after it."""

from collections.abc import Iterator

from cluster.findings import ClusterFinding
from cluster.observe.observation import ClusterObservation

LATE = 120
"""Seconds since its last pass: it makes one every few seconds, and one of them may wait for Compute Engine."""


def failover(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """A watch that does not answer, or has stopped."""
    found = seen.controller.part("failover")
    if not found:
        return
    late = seen.controller.time - found.get("time", 0)
    if found["why"] or late > LATE:
        why = found["why"] or f"its last pass was {late / 60:.0f} min ago"
        yield ClusterFinding(
            id="failover-watch",
            where=(seen.controller.name,),
            what=f"nothing watches the controller, which would not come back in its other zone: {why}",
            todo=f"./hpc up {seen.stack}",
            note=f"After ./hpc refresh {seen.stack} it starts what watches, or creates it again. The serial console of "
            "that machine has the reason.",
        )
