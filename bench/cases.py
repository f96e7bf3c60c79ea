"""The cases, which are questions about speed, in the order of the report; and how they are asked."""

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench import placement
from bench.environment import DEV, ROOT, Cluster, CommandError, Environment, ManualCluster, environment, sized
from bench.report import Claim, Report, Result, Series, description, ratio
from cluster.catalog.nccl import reference
from components.local.host import network
from components.local.host.paths import HostError

Answer = tuple[list[Series], list[Claim]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question of the bench."""

    name: str
    title: str
    run: Callable[[Environment], Answer]
    """Measures; what it makes it removes, or leaves to the environment's end."""


def _first_up(here: Environment) -> Answer:
    """A first `up` against the same cluster set up manually, both from a base image that is there."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in here.rounds(5):
        cluster, hand = Cluster("ours", here, DEV), ManualCluster(here)
        # In turns, each first as often as second: the page cache is warmer for the second.
        for mine in (True, False) if number % 2 else (False, True):
            if mine:
                ours.append(cluster.hpc("up"))
                here.sweep(cluster.name)
            else:
                theirs.append(hand.up())
                hand.down()
        here.say(f"round {number + 1}: up {ours[-1]:.1f} s, manually {theirs[-1]:.1f} s")
    mine, manual = Series(name="./hpc up dev", values=tuple(ours)), Series(name="manually", values=tuple(theirs))
    return [mine, manual], [Claim(what="first up, ours to manual", value=ratio(mine, manual), limit=0.45, unit="x")]


def _second_up(here: Environment) -> Answer:
    cluster = Cluster("still", here, DEV)
    cluster.hpc("up")
    times = Series(name="second up", values=tuple(cluster.hpc("up") for _ in here.rounds(7)))
    here.sweep(cluster.name)
    return [times], [Claim(what="up with nothing to do", value=times.median, limit=3.0)]


def _nodes(here: Environment) -> Answer:
    """The time of `up` by the number of nodes, and of the report on the largest cluster."""
    sizes = here.pick((2, 32, 64), (2, 4))
    times: dict[int, list[float]] = {size: [] for size in sizes}
    reports: list[float] = []
    for number in here.rounds(2):
        for size in sizes:
            cluster = Cluster(f"n{size}", here, sized(size))
            times[size].append(cluster.hpc("up"))
            here.say(f"round {number + 1}: {size} nodes in {times[size][-1]:.1f} s")
            if size == sizes[-1]:
                reports.append(cluster.asked("report", "--output", str(here.root / "report.html")))
            here.sweep(cluster.name)
    series = [Series(name=f"{size} nodes", values=tuple(times[size])) for size in sizes]
    report = Series(name=f"report, {sizes[-1]} nodes", values=tuple(reports))
    return [*series, report], [
        Claim(what=f"first up with {sizes[-1]} nodes", value=series[-1].median, limit=35.0),
        Claim(what=f"report on {sizes[-1]} nodes", value=report.median, limit=5.0),
    ]


_WATCH = """
for _ in $(seq 1200); do
    scontrol show partition every | grep -q 'MaxTime={limit}' && exit 0
    sleep 0.05
done
exit 1
"""


def _partition_edit(here: Environment) -> Answer:
    """Measure the change of a partition on a running cluster: from `up` to its effect."""
    (size,) = here.pick((32,), (2,))
    cluster = Cluster("edit", here, sized(size))
    cluster.hpc("up")
    effects: list[float] = []
    ups: list[float] = []
    for number in here.rounds(5):
        effect, took = _edit(cluster, f"{number + 2:02}:00:00")
        effects.append(effect)
        ups.append(took)
        here.say(f"round {number + 1}: in effect after {effect:.1f} s, up done after {took:.1f} s")
    here.sweep(cluster.name)
    effect = Series(name="until slurmctld has it", values=tuple(effects))
    return (
        [effect, Series(name="until `up` is done", values=tuple(ups))],
        [Claim(what="edited partition, up to effect", value=effect.median, limit=1.5)],
    )


def _edit(cluster: Cluster, limit: str) -> tuple[float, float]:
    """Seconds from the start of `up` until slurmctld has the limit, and until `up` is done."""
    seen: list[float] = []

    def watch() -> None:
        with suppress(CommandError):
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


def _preview(here: Environment) -> Answer:
    """Our preview against one of a bare program with as many resources, on the same engine."""
    (size,) = here.pick((32,), (2,))
    cluster = Cluster("look", here, sized(size))
    _, (machines, commands) = _previewed(here, ROOT, cluster.name, cluster.file)
    bare = here.root / "files/Pulumi.bare.yaml"
    bare.write_text(json.dumps({"config": {"bare:machines": machines, "bare:commands": commands}}))
    ours: list[float] = []
    theirs: list[float] = []
    for _ in here.rounds(7):
        took, there = _previewed(here, Path(__file__).with_name("bare"), "bare", bare)
        if there != (machines, commands):
            raise RuntimeError(f"the bare program has {there} resources, ours {machines} and {commands}")
        theirs.append(took)
        ours.append(_previewed(here, ROOT, cluster.name, cluster.file)[0])
    here.say(f"{machines + commands} resources: ours {ours[-1]:.1f} s, bare {theirs[-1]:.1f} s")
    mine, other = Series(name="our program", values=tuple(ours)), Series(name="bare program", values=tuple(theirs))
    return [mine, other], [Claim(what="preview, ours to a bare program", value=ratio(mine, other), limit=1.5, unit="x")]


def _previewed(here: Environment, project: Path, stack: str, file: Path) -> tuple[float, tuple[int, int]]:
    """Seconds of a whole process that previews a stack; how many dynamic resources that has, and how many others."""
    command = [sys.executable, "-m", "bench.previewed", str(project), stack, str(file)]
    took, out = here.timed(command, env={"PULUMI_CONFIG_PASSPHRASE": "bench"})
    dynamic, others = map(int, out.split())
    return took, (dynamic, others)


def _report(here: Environment) -> Answer:
    """The report of a folder of logs of NCCL tests."""
    (count,) = here.pick((1000,), (20,))
    folder = here.root / "files/nccl"
    folder.mkdir(parents=True)
    drawn = random.Random(1)  # noqa: S311 - the same logs each time
    for number in range(count):
        first, second = drawn.sample(range(64), 2)
        text = "".join(_nccl_log((f"a3-{first}", f"a3-{second}"), drawn.uniform(0.97, 1.0)))
        (folder / f"{number}.log").write_text(text)
    times: list[float] = []
    for _ in here.rounds(5):
        took, out = here.timed([sys.executable, "-m", "cli", "nccl", "report", str(folder)])
        if "Result: pass" not in out:
            raise RuntimeError("the report does not end with a pass")
        times.append(took)
    series = Series(name=f"{count:,} logs", values=tuple(times))
    return [series], [Claim(what=f"report of {count:,} NCCL tests", value=series.median, limit=5.0)]


def _nccl_log(hosts: tuple[str, str], share: float) -> Iterator[str]:
    """A log of all_gather on two A3 Mega machines, with that share of the reference."""
    known = reference("a3-megagpu-8g", "all_gather", 2)
    curve: Mapping[int, float] = known.busbw if known else {}
    yield "# hpc: machine_type=a3-megagpu-8g nodes=2 collective=all_gather\n# Using devices\n"
    for rank in range(16):
        device = f"on {hosts[rank // 8]:>10} device {rank % 8:2} [0x{rank:02x}] NVIDIA H100 80GB HBM3"
        yield f"#  Rank {rank:2} Group  0 Pid {4000 + rank:6} {device}\n"
    half = "   time   algbw   busbw #wrong"
    yield f"#       size         count      type   redop    root  {half}  {half}\n"
    for size, busbw in curve.items():
        algbw = share * busbw * 16 / 15
        cell = f"  {size / algbw / 1e3:7.1f}  {algbw:6.2f}  {share * busbw:6.2f}      0"
        yield f"{size:12}  {size // 64:12}     float    none      -1{cell}{cell}\n"
    average = share * sum(curve.values()) / len(curve)
    yield f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {average:g} \n"


_COLD = """
cd /tmp
date +%s.%N
sbatch --quiet --wait --exclusive --nodes={nodes} --output=/dev/null --wrap 'srun true; date +%s.%N >/home/began'
cat /home/began
python3 -c 'import json
rows = map(json.loads, open("/var/lib/hpc/controller/reconcile/journal.jsonl"))
print([row["asked"] for row in rows if row["rule"] == "asked-resume"][-1])'
"""
"""Prints when a job on so many nodes was submitted, when its script ran, and when ResumeProgram did."""


def _elastic(here: Environment) -> Answer:
    """Jobs on nodes that have no machine yet: one node, then many."""
    most = 8 if here.quick else 64
    nodesets = {"cpu": {"count": {"min": 1, "max": most + 2}, "idle": "1h"}}
    partitions = {"cpu": {"nodesets": ["cpu"], "default": True}}
    cluster = Cluster("cold", here, {"login": {"on": "controller"}, "nodesets": nodesets, "partitions": partitions})
    cluster.hpc("up")
    asked: list[float] = []
    took: list[float] = []
    for nodes in (2, most + 2):
        submitted, began, resumed = map(float, cluster.shell("controller", _COLD.format(nodes=nodes)).split())
        asked.append(resumed - submitted)
        took.append(began - submitted)
        here.say(f"{nodes - 1} elastic nodes: {took[-1]:.1f} s until the job ran")
    here.sweep(cluster.name)
    one, many = (
        Series(name=f"sbatch on {text}", values=(value,))
        for text, value in zip(("one cold node", f"{most} cold nodes"), took, strict=True)
    )
    return [one, many, Series(name="sbatch to ResumeProgram", values=tuple(asked))], [
        Claim(what="sbatch to ResumeProgram", value=max(asked), limit=2.0),
        Claim(what="a job on one cold node runs", value=took[0], limit=40.0),
        Claim(what=f"a job on {most} cold nodes runs", value=took[1], limit=75.0),
    ]


_SEEN = """
exec 3< <(exec "$0" -m cli dashboard "$1" 2>/dev/null)
read -r url <&3
"$0" -m tests.pages.chromium "$url"
kill $!
"""
"""Opens the page of a cluster in a browser; prints its times."""


def _dashboard(here: Environment) -> Answer:
    """The page of the dashboards in a browser, over SSH: what a reader waits for."""
    cluster = Cluster("seen", here, {**sized(2), "monitoring": {"interval_seconds": 5}})
    cluster.hpc("up")
    cluster.shell("controller", "until promtool query instant http://localhost:9090 up | grep -q up; do sleep 1; done")
    paints: list[float] = []
    drawn: list[float] = []
    for number in here.rounds(5):
        found = json.loads(here.call(["bash", "-c", _SEEN, sys.executable, cluster.name]))
        paints.append(found["first_paint_seconds"])
        drawn.append(found["marks_seconds"]["drawn"])
        here.say(f"round {number + 1}: first paint after {paints[-1]:.2f} s, all panels after {drawn[-1]:.2f} s")
    here.sweep(cluster.name)
    first = Series(name="first paint", values=tuple(paints))
    return (
        [first, Series(name="all panels of the overview", values=tuple(drawn))],
        [Claim(what="first paint of the dashboard", value=first.median, limit=1.0)],
    )


def _placement(here: Environment) -> Answer:
    """Blocks that the nodes of a job are in, on a slurmctld with hundreds of nodes."""
    (nodes,) = here.pick((512,), (64,))
    alone = {"nodesets": {"cpu": {"on": "controller"}}, "login": {"on": "controller"}}
    cluster = Cluster("place", here, {**alone, "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}}})
    cluster.hpc("up")
    program = Path(placement.__file__).read_text()
    found = json.loads(cluster.shell("controller", f"python3 - {nodes} <<'END'\n{program}\nEND"))
    here.sweep(cluster.name)
    series = {
        way: Series(name=title, values=tuple(float(blocks) for blocks, _ in found[way]), unit="blocks")
        for way, title in (("nodesets", "one switch for all nodes"), ("places", "switches by the nodes' places"))
    }
    before, after = (sum(series[way].values) / len(found[way]) for way in ("nodesets", "places"))
    least = sum(fewest for _, fewest in found["places"]) / len(found["places"])
    return [*series.values(), Series(name="the least possible", values=(least,), unit="blocks")], [
        Claim(what=f"blocks of a job on {nodes} nodes, mean", value=after, limit=2.0, unit="blocks"),
        Claim(what="blocks of a job with places, to those without", value=after / before, limit=0.5, unit="x"),
    ]


_RUNS = """
cd /tmp
job=$(sbatch --parsable --exclusive --output=/dev/null --wrap 'sleep 600')
until squeue --noheader --states=RUNNING --jobs=$job --format=%N | grep .; do sleep 0.2; done
echo $job
"""
"""Prints the node and the number of a job, once it runs."""
_LOSES = """
printf '#!/bin/sh\necho GPU is lost\nexit 15\n' >/usr/bin/nvidia-smi
chmod 755 /usr/bin/nvidia-smi
"""
_ELSEWHERE = "until squeue --noheader --states=RUNNING --jobs={job} --format=%N | grep -qvx {node}; do sleep 0.2; done"
_AGAIN = "scancel {job}; scontrol update NodeName={node} State=RESUME"


def _lost_gpu(here: Environment) -> Answer:
    """A job whose node loses a GPU, until it runs on another one; nvidia-smi is a script that says so."""
    nodesets = {"gpu": {"count": 2, "machine_type": "local-2c-2gpu"}}
    partitions = {"gpu": {"nodesets": ["gpu"], "default": True}}
    health = {"slurm": {"health": {"requeue": True}}}
    cluster = Cluster(
        "lost", here, {"login": {"on": "controller"}, "nodesets": nodesets, "partitions": partitions, **health}
    )
    cluster.hpc("up")
    took: list[float] = []
    for number in here.rounds(5):
        node, job = cluster.shell("controller", _RUNS).split()
        began = time.perf_counter()
        cluster.shell(node, _LOSES)
        cluster.shell("controller", _ELSEWHERE.format(job=job, node=node))
        took.append(time.perf_counter() - began)
        here.say(f"round {number + 1}: the job runs elsewhere after {took[-1]:.1f} s")
        cluster.shell(node, "rm /usr/bin/nvidia-smi")
        cluster.shell("controller", _AGAIN.format(job=job, node=node))
    here.sweep(cluster.name)
    series = Series(name="from the fault until the job runs elsewhere", values=tuple(took))
    return [series], [Claim(what="the job of a lost GPU runs elsewhere, at most", value=max(took), limit=90.0)]


CASES = (
    Case(name="up", title="First `up` of Pulumi.dev.yaml, five machines, against bench/by-hand.sh", run=_first_up),
    Case(name="noop", title="`up` with nothing to do, five machines", run=_second_up),
    Case(name="nodes", title="First `up` by number of nodes", run=_nodes),
    Case(name="change", title="A partition's limit changed on a cluster of 32 nodes", run=_partition_edit),
    Case(name="preview", title="Preview of 32 nodes against a bare program with as many resources", run=_preview),
    Case(name="elastic", title="Jobs on elastic nodes without a machine: from sbatch until they run", run=_elastic),
    Case(name="dashboard", title="The page of `./hpc dashboard` in a browser, two nodes", run=_dashboard),
    Case(name="placement", title="Blocks of each job, of those that fill half of 512 nodes", run=_placement),
    Case(name="lost-gpu", title="A GPU that is lost: until its job runs on another node", run=_lost_gpu),
    Case(name="reports", title="The report of a thousand NCCL tests", run=_report),
)


def run(cases: Sequence[Case], *, quick: bool, say: Callable[[str], None]) -> Report:
    """Run the cases; one that fails is reported as such, and the others go on.

    All they make is under a root of this process's own, which is swept at the end, however that comes.
    """
    results: list[Result] = []
    with environment(quick=quick, say=say) as here:
        for case in cases:
            say(f"{case.name}: {case.title} ...")
            began = time.monotonic()
            problem, series, claims = "", [], []
            try:
                series, claims = case.run(here)
            except Exception as error:  # noqa: BLE001 - whatever went wrong, the other cases are still asked
                problem = str(error) or type(error).__name__
                with suppress(CommandError, HostError, OSError):
                    for name in network.stacks(here.root):
                        here.sweep(name)
            seconds, answer = time.monotonic() - began, {"series": tuple(series), "claims": tuple(claims)}
            results.append(Result(case=case.name, title=case.title, **answer, seconds=seconds, problem=problem))
            say(f"{case.name}: {problem or 'done'}, {seconds:.0f} s")
    return Report(machine=description(), date=time.strftime("%Y-%m-%d"), results=tuple(results))
