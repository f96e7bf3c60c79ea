"""Jobs that wait for a person."""

from collections.abc import Iterator

from cluster.observe.health.finding import Finding
from cluster.observe.observation import ClusterObservation

TOLD = 5
"""Jobs named one by one."""


def held(seen: ClusterObservation) -> Iterator[Finding]:
    """Jobs that Slurm or an operator holds, and why; those that their own users hold are as they are meant to be."""
    found = (seen.slurm("jobs") or {}).get("held", [])
    if not found:
        return
    told = [f"{job['id']} of {job['user']} ({job['reason']})" for job in found[:TOLD]]
    more = [f"{len(found) - TOLD} more"] if len(found) > TOLD else []
    is_, it = ("jobs are", "they start") if len(found) > 1 else ("job is", "it starts")
    yield Finding(
        id="jobs-held", where=(seen.controller.name,),
        what=f"{len(found)} {is_} held, and {it} only when released: {', '.join([*told, *more])}",
        todo=f"./hpc ssh {seen.stack} controller -- scontrol release {','.join(job['id'] for job in found)}",
        note="Once the reason is gone; slurmctld.log on that machine names the node and what failed there.",
    )  # fmt: skip
