"""The rehearsal of a cloud's stack: from the command to a job through every partition."""

from bench.case import Answer, Case
from bench.cluster import HPC, free_network
from bench.environment import Environment
from bench.result import Claim, Series

STACK = "a3mega"


def _run(environment: Environment) -> Answer:
    (nodes,) = environment.pick((16,), (2,))
    times: list[float] = []
    for number in environment.rounds(2):
        command = [HPC, "rehearse", STACK, "--nodes", str(nodes), "--cidr", free_network(STACK)]
        times.append(environment.timed(command)[0])
        environment.say(f"round {number + 1}: {nodes} nodes of each nodeset in {times[-1]:.1f} s")
        environment.call([HPC, "rehearse", STACK, "--destroy"])
    series = Series(name=f"./hpc rehearse {STACK} --nodes {nodes}", values=tuple(times))
    return [series], [Claim(what="rehearsal with 16 nodes of each kind", value=series.median, limit=60.0)]


CASE = Case(name="rehearse", title="`rehearse` of Pulumi.a3mega.yaml with 16 nodes of each nodeset", run=_run)
