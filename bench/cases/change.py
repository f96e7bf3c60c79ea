"""One change of a partition on a cluster that runs: from `up` to its effect."""

import threading
import time
from contextlib import suppress

from bench.case import Answer, Case
from bench.cluster import Cluster, sized
from bench.environment import CommandFailed, Environment
from bench.result import Claim, Series

_WATCH = """
for _ in $(seq 1200); do
    scontrol show partition every | grep -q 'MaxTime={limit}' && exit 0
    sleep 0.05
done
exit 1
"""


def _run(environment: Environment) -> Answer:
    (size,) = environment.pick((32,), (2,))
    cluster = environment.cluster("edit", sized(size))
    cluster.hpc("up")
    effects: list[float] = []
    ups: list[float] = []
    for number in environment.rounds(5):
        effect, took = _change(cluster, f"{number + 2:02}:00:00")
        effects.append(effect)
        ups.append(took)
        environment.say(f"round {number + 1}: in effect after {effect:.1f} s, up done after {took:.1f} s")
    environment.sweep(cluster.name)
    effect = Series(name="until slurmctld has it", values=tuple(effects))
    return (
        [effect, Series(name="until `up` is done", values=tuple(ups))],
        [Claim(what="edited partition, up to effect", value=effect.median, limit=5.0)],
    )


def _change(cluster: Cluster, limit: str) -> tuple[float, float]:
    """Seconds from the start of `up` until slurmctld has the limit, and until `up` is done."""
    seen: list[float] = []

    def watch() -> None:
        with suppress(CommandFailed):
            cluster.shell("controller", _WATCH.format(limit=limit))
            seen.append(time.perf_counter())

    cluster.config["partitions"]["every"]["max_time"] = limit
    cluster.write()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    time.sleep(2)  # the watcher's own login is no part of it
    began = time.perf_counter()
    took = cluster.hpc("up")
    watcher.join()
    if not seen:
        raise RuntimeError(f"slurmctld did not have the limit {limit} within a minute")
    return seen[0] - began, took


CASE = Case(name="change", title="A partition's limit changed on a cluster of 32 nodes", run=_run)
