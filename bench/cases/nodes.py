"""How `up` grows with the number of nodes."""

from itertools import pairwise

from bench.case import Answer, Case
from bench.cluster import sized
from bench.environment import Environment
from bench.result import Claim, Series

LIMIT_AT = 32
LIMIT = 60.0


def _run(environment: Environment) -> Answer:
    sizes = environment.pick((2, 8, 32, 64), (2, 4))
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for number in environment.rounds(2):
        for size in sizes:
            cluster = environment.cluster(f"n{size}", sized(size))
            times[size].append(cluster.hpc("up"))
            environment.say(f"round {number + 1}: {size} nodes in {times[size][-1]:.1f} s")
            environment.sweep(cluster.name)
    curve = [Series(name=f"{size} nodes", values=tuple(times[size]), at=size) for size in sizes]
    each = [one.median / size for one, size in zip(curve, sizes, strict=True)]
    # Above one, a larger cluster would take more for each node than the next smaller one.
    growth = max(after / before for before, after in pairwise(each))
    claims = [Claim(what="time for a node, larger to smaller", value=growth, limit=1.0, unit="x")]
    if LIMIT_AT in sizes:
        at = curve[list(sizes).index(LIMIT_AT)].median
        claims.insert(0, Claim(what=f"first up with {LIMIT_AT} nodes", value=at, limit=LIMIT))
    return curve, claims


CASE = Case(name="nodes", title="First `up` by number of nodes", run=_run)
