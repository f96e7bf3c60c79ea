"""Preview of a stack on Google Cloud, and how it grows with the number of nodes."""

from pathlib import Path

import yaml

from bench.case import Answer, Case
from bench.cluster import HPC
from bench.environment import ROOT, Environment
from bench.result import Claim, Series, ratio

STACK = "a3mega"


def _run(environment: Environment) -> Answer:
    small, large = environment.pick((2, 256), (2, 8))
    files = {size: _sized(environment, size) for size in (small, large)}
    times: dict[int, list[float]] = {size: [] for size in files}
    for number in environment.rounds(5):
        for size in files if number % 2 else reversed(files):
            times[size].append(environment.timed([HPC, "preview", STACK, "--config-file", str(files[size])])[0])
        environment.say(
            f"round {number + 1}: {small} nodes {times[small][-1]:.1f} s, {large} nodes {times[large][-1]:.1f} s"
        )
    few, many = (Series(name=f"{size} nodes", values=tuple(times[size])) for size in (small, large))
    return [few, many], [
        Claim(what="preview of a cloud's stack", value=few.median, limit=6.0),
        Claim(what=f"preview with {large} nodes to {small}", value=ratio(many, few), limit=1.5, unit="x"),
    ]


def _sized(environment: Environment, nodes: int) -> Path:
    """The stack's file with so many nodes."""
    document = yaml.safe_load((ROOT / f"Pulumi.{STACK}.yaml").read_text())
    document["config"]["hpc:cluster"]["nodesets"]["a3mega"]["count"] = nodes
    file = environment.root / f"files/Pulumi.{STACK}-{nodes}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


CASE = Case(name="cloud", title="`preview` of Pulumi.a3mega.yaml with 2 and with 256 nodes", run=_run)
