"""How what the embedded engine takes grows with the number of resources, which take no time themselves."""

import json
import sys
from pathlib import Path

from bench.case import Answer, Case
from bench.environment import Environment
from bench.result import Claim, Series

PROGRAM = Path(__file__).resolve().parent.parent / "programs/many"
KINDS = (("up", "up"), ("up", "up with nothing to do"), ("destroy", "destroy"))


def _run(environment: Environment) -> Answer:
    few, many = environment.pick((1000, 5000), (20, 100))
    series: list[Series] = []
    claims: list[Claim] = []
    seconds: dict[tuple[str, int], float] = {}
    memory = 0.0
    for size in (few, many):
        stack = f"many-{size}"
        file = environment.root / f"files/Pulumi.{stack}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"config": {"many:resources": size}}))
        for kind, title in KINDS:
            command = [sys.executable, "-m", "bench.programs.ran", str(PROGRAM), stack, str(file), kind]
            took, out = environment.timed(command, env={"PULUMI_CONFIG_PASSPHRASE": "bench"})
            busy, megabytes, threads = map(float, out.split())
            environment.say(
                f"{size} resources, {title}: {took:.1f} s, {busy:.1f} s of processor time, {threads:.0f} threads"
            )
            seconds[title, size] = busy
            memory = max(memory, megabytes)
            series.append(Series(name=title, values=(took,), at=size))
            if (title, size) == ("up", many):
                claims.append(Claim(what=f"up of {many} resources", value=took, limit=100.0))
    for _, title in KINDS:
        grown = seconds[title, many] / seconds[title, few]
        # Of processor time, which who else is at work on the machine changes little.
        claims.append(Claim(what=f"{title}, {many} to {few} resources", value=grown, limit=6.0, unit="x"))
    claims.append(Claim(what=f"memory for {many} resources", value=memory, limit=400.0, unit="MB"))
    return series, claims


CASE = Case(name="many", title="Thousands of resources that take no time", run=_run)
