"""An `up` that finds nothing to do."""

from bench.case import Answer, Case
from bench.cluster import DEV
from bench.environment import Environment
from bench.result import Claim, Series


def _run(environment: Environment) -> Answer:
    cluster = environment.cluster("still", DEV)
    cluster.hpc("up")
    times = Series(name="second up", values=tuple(cluster.hpc("up") for _ in environment.rounds(7)))
    environment.sweep(cluster.name)
    return [times], [Claim(what="up with nothing to do", value=times.median, limit=3.0)]


CASE = Case(name="noop", title="`up` with nothing to do, five machines", run=_run)
