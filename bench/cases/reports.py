"""Reports of logs: a folder of a thousand NCCL tests, and one log with all that NCCL_DEBUG=INFO prints."""

import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.case import Answer, Case
from bench.environment import Environment
from bench.result import Claim, Series
from cluster.catalog.nccl_references import reference

_RANKS, _NODES = 16, 64
_CHATTER = "a3-0:4001:4100 [0] NCCL INFO Channel 00/0 : 0[4000] -> 8[4000] [send] via NET/FasTrak/0(8)/GDRDMA\n"


def _run(environment: Environment) -> Answer:
    (count, megabytes) = environment.pick((1000, 200), (20, 5))
    folder = environment.root / "files/nccl"
    folder.mkdir(parents=True)
    drawn = random.Random(1)  # noqa: S311 - the same logs each time
    for number in range(count):
        one, other = drawn.sample(range(_NODES), 2)
        text = "".join(_log((f"a3-{one}", f"a3-{other}"), drawn.uniform(0.97, 1.0)))
        (folder / f"{number}.log").write_text(text)
    large = environment.root / "files/large.log"
    with large.open("w") as file:
        chatter = _CHATTER * (megabytes * 1_000_000 // 11 // len(_CHATTER))
        for line in _log(("a3-0", "a3-1"), 1.0):
            file.write(chatter if line.lstrip()[:1].isdigit() else "")
            file.write(line)
    times: dict[str, list[float]] = {f"{count:,} logs of NCCL tests": [], f"one of {megabytes} MB": []}
    for _ in environment.rounds(5):
        for name, what in zip(times, (folder, large), strict=True):
            times[name].append(_report(environment, what))
    series = [Series(name=name, values=tuple(values)) for name, values in times.items()]
    return series, [Claim(what=f"report of {one.name}", value=one.median, limit=5.0) for one in series]


def _report(environment: Environment, what: Path) -> float:
    """Seconds of the whole command."""
    took, out = environment.timed([sys.executable, "-m", "cli", "nccl", "report", str(what)])
    if "Result: pass" not in out:
        raise RuntimeError(f"the report of {what.name} does not end with a pass")
    return took


def _log(hosts: tuple[str, str], share: float) -> Iterator[str]:
    """A log of all_gather on two A3 Mega machines, with that share of the reference."""
    known = reference("a3-megagpu-8g", "all_gather", 2)
    curve: Mapping[int, float] = known.busbw if known else {}
    yield "# hpc: machine_type=a3-megagpu-8g nodes=2 collective=all_gather\n# Using devices\n"
    for rank in range(_RANKS):
        device = f"on {hosts[rank // 8]:>10} device {rank % 8:2} [0x{rank:02x}] NVIDIA H100 80GB HBM3"
        yield f"#  Rank {rank:2} Group  0 Pid {4000 + rank:6} {device}\n"
    half = "   time   algbw   busbw #wrong"
    yield f"#       size         count      type   redop    root  {half}  {half}\n"
    for size, busbw in curve.items():
        algbw = share * busbw * _RANKS / (_RANKS - 1)
        cell = f"  {size / algbw / 1e3:7.1f}  {algbw:6.2f}  {share * busbw:6.2f}      0"
        yield f"{size:12}  {size // 4 // _RANKS:12}     float    none      -1{cell}{cell}\n"
    average = share * sum(curve.values()) / len(curve)
    yield f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {average:g} \n"


CASE = Case(name="reports", title="Reports of a thousand NCCL tests, and of a large log", run=_run)
