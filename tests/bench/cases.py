"""The cases of the bench in the order of the page, each a question about speed."""

import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from cluster.catalog.nccl import reference
from tests.bench import placement
from tests.bench.clusters import ROOT, Bench, Cluster, Goal, free_network, ratio, sized

HERE = Path(__file__).parent
DEV = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]["hpc:cluster"]
Answer = tuple[dict[str, list[float]], list[Goal]]
"""Measured quantities by name, and goals."""


class Case(NamedTuple):
    """A question of the bench. What it leaves is removed."""

    title: str
    run: Callable[[Bench], Answer]
    unit: str = "s"


CASES: dict[str, Case] = {}


def case(name: str, title: str, unit: str = "s") -> Callable[[Callable[[Bench], Answer]], None]:
    def add(run: Callable[[Bench], Answer]) -> None:
        CASES[name] = Case(title, run, unit)

    return add


@case("up", "First `up` of Pulumi.dev.yaml, five machines, against tests/bench/by-hand.sh")
def _(bench: Bench) -> Answer:
    """Both have the base image in the cache."""
    ours: list[float] = []
    manual: list[float] = []
    words = [str(bench.root), "hand", free_network("hand")]
    for number in bench.rounds(5):
        # In turns, each first as often as second, because the page cache is warmer for the second.
        for is_up in (True, False) if number % 2 else (False, True):
            if is_up:
                cluster = Cluster("ours", bench, **DEV)
                ours.append(cluster.up())
                cluster.remove()
            else:
                manual.append(bench.call(str(HERE / "by-hand.sh"), "up", *words, PYTHON=sys.executable)[0])
                bench.call(str(HERE / "by-hand.sh"), "down", *words, PYTHON=sys.executable)
    return {"./hpc up dev": ours, "manually": manual}, [
        Goal("first up, ours to manual", ratio(ours, manual), 0.45, "x")
    ]


@case("noop", "`up` with nothing to do, five machines")
def _(bench: Bench) -> Answer:
    cluster = Cluster("still", bench, **DEV)
    cluster.up()
    took = [cluster.up() for _ in bench.rounds(7)]
    return {"second up": took}, [Goal("up with nothing to do", statistics.median(took), 3.0)]


@case("nodes", "First `up` by number of nodes")
def _(bench: Bench) -> Answer:
    sizes = bench.pick((2, 32, 64), (2, 4))
    last, report = f"{sizes[-1]} nodes", f"report, {sizes[-1]} nodes"
    took: dict[str, list[float]] = {f"{size} nodes": [] for size in sizes} | {report: []}
    for _ in bench.rounds(2):
        for size in sizes:
            cluster = Cluster(f"n{size}", bench, **sized(size))
            took[f"{size} nodes"].append(cluster.up())
            if size == sizes[-1]:
                took[report].append(cluster.hpc("report", "--output", str(bench.root / "report.html")))
            cluster.remove()
    goals = [Goal(f"first up with {last}", statistics.median(took[last]), 35.0)]
    return took, [*goals, Goal(f"report on {last}", statistics.median(took[report]), 5.0)]


WATCH = """
for _ in $(seq 1200); do
    scontrol show partition every | grep -q 'MaxTime={limit}' && exit 0
    sleep 0.05
done
exit 1
"""


@case("change", "A partition's limit changed on a cluster of 32 nodes")
def _(bench: Bench) -> Answer:
    cluster = Cluster("edit", bench, **sized(bench.pick(32, 2)))
    cluster.up()
    effects: list[float] = []
    ups: list[float] = []
    for number in bench.rounds(5):
        limit = f"{number + 2:02}:00:00"
        seen: list[float] = []

        def watch(limit: str = limit, seen: list[float] = seen) -> None:
            cluster.shell("controller", WATCH.format(limit=limit))
            seen.append(time.perf_counter())

        cluster.config["partitions"]["every"]["max_time"] = limit
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        time.sleep(2)  # until the watcher has logged in
        began = time.perf_counter()
        ups.append(cluster.up())
        watcher.join()
        effects.append(seen[0] - began)
    goal = Goal("edited partition, up to effect", statistics.median(effects), 1.5)
    return {"until slurmctld has it": effects, "until `up` is done": ups}, [goal]


@case("preview", "Preview of 32 nodes against a bare program with as many resources")
def _(bench: Bench) -> Answer:
    cluster = Cluster("look", bench, **sized(bench.pick(32, 2)))
    cluster.write()
    bare = bench.root / "files/Pulumi.bare.yaml"
    ours: list[float] = []
    minimal: list[float] = []

    def previewed(project: Path, stack: str, file: Path) -> tuple[float, list[int]]:
        command = [sys.executable, "-m", "tests.bench.previewed", str(project), stack, str(file)]
        took, out = bench.call(*command, PULUMI_CONFIG_PASSPHRASE="bench")
        return took, [*map(int, out.split())]

    _, counts = previewed(ROOT, cluster.name, cluster.file)
    bare.write_text(json.dumps({"config": {"bare:machines": counts[0], "bare:commands": counts[1]}}))
    for _ in bench.rounds(7):
        took, same = previewed(HERE / "bare", "bare", bare)
        if same != counts:
            raise RuntimeError(f"the bare program has {same} resources, ours {counts}")
        minimal.append(took)
        ours.append(previewed(ROOT, cluster.name, cluster.file)[0])
    goal = Goal("preview, ours to a bare program", ratio(ours, minimal), 1.5, "x")
    return {"our program": ours, "bare program": minimal}, [goal]


COLD = """
cd /tmp
date +%s.%N
sbatch --quiet --wait --exclusive --nodes={nodes} --output=/dev/null --wrap 'srun true; date +%s.%N >/home/began'
cat /home/began
python3 -c 'import json
rows = map(json.loads, open("/var/lib/hpc/controller/reconcile/journal.jsonl"))
print([row["asked"] for row in rows if row["rule"] == "asked-resume"][-1])'
"""
"""Prints when a job on so many nodes was submitted, when its script ran, and when ResumeProgram did."""
ALONE = {"login": {"on": "controller"}, "partitions": {"every": {"nodesets": ["cpu"], "default": True}}}


@case("elastic", "Jobs on elastic nodes without a machine: from sbatch until they run")
def _(bench: Bench) -> Answer:
    """One node, then many; the first job has the controller's first."""
    most = bench.pick(64, 8)
    nodesets = {"cpu": {"count": {"min": 1, "max": most + 2}, "idle": "1h"}}
    cluster = Cluster("cold", bench, **ALONE, nodesets=nodesets)
    cluster.up()
    took: list[float] = []
    resumed: list[float] = []
    for nodes in (2, most + 2):
        at, began, resume = map(float, cluster.shell("controller", COLD.format(nodes=nodes)).split())
        took.append(began - at)
        resumed.append(resume - at)
    series = {"sbatch on one cold node": took[:1], f"sbatch on {most} cold nodes": took[1:]}
    return {**series, "sbatch to ResumeProgram": resumed}, [
        Goal("sbatch to ResumeProgram", max(resumed), 2.0),
        Goal("a job on one cold node runs", took[0], 40.0),
        Goal(f"a job on {most} cold nodes runs", took[1], 75.0),
    ]


SEEN = """
exec 3< <(exec "$0" -m cli dashboard "$1" 2>/dev/null)
read -r url <&3
"$0" -m tests.pages.chromium "$url"
kill $!
"""
"""Opens the page of a cluster in a browser; prints its times."""


@case("dashboard", "The page of `./hpc dashboard` in a browser, two nodes")
def _(bench: Bench) -> Answer:
    cluster = Cluster("seen", bench, **sized(2), monitoring={"interval_seconds": 5})
    cluster.up()
    cluster.shell("controller", "until promtool query instant http://localhost:9090 up | grep -q up; do sleep 1; done")
    found = [json.loads(bench.call("bash", "-c", SEEN, sys.executable, cluster.name)[1]) for _ in bench.rounds(5)]
    first = [row["first_paint_seconds"] for row in found]
    drawn = [row["marks_seconds"]["drawn"] for row in found]
    goal = Goal("first paint of the dashboard", statistics.median(first), 1.0)
    return {"first paint": first, "all panels of the overview": drawn}, [goal]


@case("placement", "Blocks of each job, of those that fill half of 512 nodes", "blocks")
def _(bench: Bench) -> Answer:
    """On a slurmctld that places jobs on hundreds of nodes without machines."""
    nodes = bench.pick(512, 64)
    cluster = Cluster("place", bench, **ALONE, nodesets={"cpu": {"on": "controller"}})
    cluster.up()
    program = Path(placement.__file__).read_text()
    found = json.loads(cluster.shell("controller", f"python3 - {nodes} <<'END'\n{program}\nEND"))
    before, after, least = (found[key] for key in ("nodesets", "places", "least"))
    series = {"one switch for all nodes": before, "switches by the nodes' places": after}
    return {**series, "the least possible": [statistics.mean(least)]}, [
        Goal(f"blocks of a job on {nodes} nodes, mean", statistics.mean(after), 2.0, "blocks"),
        Goal("blocks of a job with places, to those without", sum(after) / sum(before), 0.5, "x"),
    ]


RUNS = """
cd /tmp
job=$(sbatch --parsable --exclusive --output=/dev/null --wrap 'sleep 600')
until squeue --noheader --states=RUNNING --jobs=$job --format=%N | grep .; do sleep 0.2; done
echo $job
"""
"""Prints the node and the number of a job, once it runs."""
LOSES = """
printf '#!/bin/sh\necho GPU is lost\nexit 15\n' >/usr/bin/nvidia-smi
chmod 755 /usr/bin/nvidia-smi
"""
ELSEWHERE = "until squeue --noheader --states=RUNNING --jobs={job} --format=%N | grep -qvx {node}; do sleep 0.2; done"
AGAIN = "scancel {job}; scontrol update NodeName={node} State=RESUME"


@case("lost-gpu", "A GPU that is lost: until its job runs on another node")
def _(bench: Bench) -> Answer:
    """A script replaces nvidia-smi."""
    nodesets = {"cpu": {"count": 2, "machine_type": "local-2c-2gpu"}}
    cluster = Cluster("lost", bench, **ALONE, nodesets=nodesets, slurm={"health": {"requeue": True}})
    cluster.up()
    took: list[float] = []
    for _ in bench.rounds(5):
        node, job = cluster.shell("controller", RUNS).split()
        began = time.perf_counter()
        cluster.shell(node, LOSES)
        cluster.shell("controller", ELSEWHERE.format(job=job, node=node))
        took.append(time.perf_counter() - began)
        cluster.shell(node, "rm /usr/bin/nvidia-smi")
        cluster.shell("controller", AGAIN.format(job=job, node=node))
    goal = Goal("the job of a lost GPU runs elsewhere, at most", max(took), 90.0)
    return {"from the fault until the job runs elsewhere": took}, [goal]


@case("reports", "The report of a thousand NCCL tests")
def _(bench: Bench) -> Answer:
    count = bench.pick(1000, 20)
    folder = bench.root / "files/nccl"
    folder.mkdir(parents=True)
    generator = random.Random(1)  # noqa: S311 - the same logs each time
    for number in range(count):
        hosts = [f"a3-{host}" for host in generator.sample(range(64), 2)]
        (folder / f"{number}.log").write_text("".join(nccl_log(hosts, generator.uniform(0.97, 1.0))))
    took: list[float] = []
    for _ in bench.rounds(5):
        seconds, out = bench.call(sys.executable, "-m", "cli", "nccl", "report", str(folder))
        if "Result: pass" not in out:
            raise RuntimeError("the report does not end with a pass")
        took.append(seconds)
    return {f"{count:,} logs": took}, [Goal(f"report of {count:,} NCCL tests", statistics.median(took), 5.0)]


def nccl_log(hosts: list[str], share: float) -> Iterator[str]:
    """Yield the lines of a log of all_gather on two A3 Mega machines, with a share of the reference bandwidth."""
    expected = reference("a3-megagpu-8g", "all_gather", 2)
    curve = expected.busbw if expected else {}
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
