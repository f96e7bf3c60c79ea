"""Our preview against one of a bare program with as many resources, on the same engine."""

import json
import sys
from pathlib import Path

from bench.case import Answer, Case
from bench.cluster import sized
from bench.environment import ROOT, Environment
from bench.result import Claim, Series, ratio

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"


def _run(environment: Environment) -> Answer:
    (size,) = environment.pick((32,), (2,))
    cluster = environment.cluster("look", sized(size))
    _, (machines, commands) = _preview(environment, ROOT, cluster.name, cluster.file)
    bare = environment.root / "files/Pulumi.bare.yaml"
    bare.write_text(json.dumps({"config": {"bare:machines": machines, "bare:commands": commands}}))
    ours: list[float] = []
    theirs: list[float] = []
    for _ in environment.rounds(7):
        took, there = _preview(environment, PROGRAMS / "bare", "bare", bare)
        if there != (machines, commands):
            raise RuntimeError(f"the bare program has {there} resources, ours {machines} and {commands}")
        theirs.append(took)
        ours.append(_preview(environment, ROOT, cluster.name, cluster.file)[0])
    environment.say(f"{machines + commands} resources: ours {ours[-1]:.1f} s, bare {theirs[-1]:.1f} s")
    mine, other = Series(name="our program", values=tuple(ours)), Series(name="bare program", values=tuple(theirs))
    return [mine, other], [Claim(what="preview, ours to a bare program", value=ratio(mine, other), limit=1.5, unit="x")]


def _preview(environment: Environment, project: Path, stack: str, file: Path) -> tuple[float, tuple[int, int]]:
    """Seconds of a whole process that previews a stack; how many dynamic resources that has, and how many others."""
    command = [sys.executable, "-m", "bench.programs.previewed", str(project), stack, str(file)]
    took, out = environment.timed(command, env={"PULUMI_CONFIG_PASSPHRASE": "bench"})
    dynamic, others = map(int, out.split())
    return took, (dynamic, others)


CASE = Case(name="preview", title="Preview of 32 nodes against a bare program with as many resources", run=_run)
