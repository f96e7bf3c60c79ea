"""A first `up` against the same cluster set up by hand, both from a base image that is there."""

from bench.case import Answer, Case
from bench.cluster import DEV
from bench.environment import Environment
from bench.manual_cluster import ManualCluster
from bench.result import Claim, Series, ratio


def _run(environment: Environment) -> Answer:
    ours: list[float] = []
    theirs: list[float] = []
    for number in environment.rounds(5):
        cluster, hand = environment.cluster("ours", DEV), ManualCluster(environment)
        # In turns, each first as often as second: the page cache is warmer for the second.
        for mine in (True, False) if number % 2 else (False, True):
            if mine:
                ours.append(cluster.hpc("up"))
                environment.sweep(cluster.name)
            else:
                theirs.append(hand.up())
                hand.down()
        environment.say(f"round {number + 1}: up {ours[-1]:.1f} s, by hand {theirs[-1]:.1f} s")
    mine, by_hand = Series(name="./hpc up dev", values=tuple(ours)), Series(name="by hand", values=tuple(theirs))
    return [mine, by_hand], [Claim(what="first up, ours to by hand", value=ratio(mine, by_hand), limit=1.0, unit="x")]


CASE = Case(name="up", title="First `up` of Pulumi.dev.yaml, five machines, against bench/by-hand.sh", run=_run)
