"""slurm.conf for ten thousand nodes."""

import time

from bench.case import Answer, Case
from bench.cluster import sized
from bench.environment import Environment
from bench.result import Claim, Series
from cluster.load.parse import parse
from cluster.slurm.files import render

NODES = 10_000


def _run(environment: Environment) -> Answer:
    # On Google Cloud: a bridge of this host holds a thousand machines.
    sections = {**sized(NODES), "platform": "gcp", "name": "large", "network": {"cidr": "10.0.0.0/12"}}
    settings = {"hpc:cluster": sections, "gcp:project": "my-project", "gcp:zone": "us-central1-a"}
    times: dict[str, list[float]] = {"stack file to ClusterConfig": [], "Slurm's files": []}
    for _ in environment.rounds(9):
        began = time.perf_counter()
        config = parse(settings)
        parsed = time.perf_counter()
        files = render(config, {})
        ended = time.perf_counter()
        if f"large-cpu-[0-{NODES - 1}]" not in files["slurm.conf"]:
            raise RuntimeError("slurm.conf does not have all nodes")
        for name, seconds in zip(times, (parsed - began, ended - parsed), strict=True):
            times[name].append(seconds)
    series = [Series(name=name, values=tuple(values)) for name, values in times.items()]
    whole = sum(one.median for one in series)
    return series, [Claim(what=f"slurm.conf for {NODES:,} nodes", value=whole, limit=1.0)]


CASE = Case(name="render", title="slurm.conf for 10,000 nodes", run=_run)
