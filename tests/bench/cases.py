"""The cases of the bench in the order of the report, each a question about speed; their clusters and commands."""

import copy
import ipaddress
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster.catalog.nccl import reference
from components.local.host import bridge, network
from components.local.host.paths import HostError, images_root
from tests.bench import placement
from tests.bench.machines import BASE
from tests.bench.report import Claim, Report, Result, Series, description, ratio

ROOT = Path(__file__).resolve().parents[2]
DEV: Mapping[str, Any] = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]["hpc:cluster"]
PLACE = Path("/var/tmp/hpc-bench")  # noqa: S108 - root's own folder on a disk, which overlay mounts need
_STREAMS = ("stdin", "stdout", "stderr")
_GRACE = 30.0
"""Seconds that an interrupted command has to end by itself."""


class CommandError(Exception):
    """A command of a case failed; the text has the end of what it printed."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The place, the commands and the progress that the cases of one run share."""

    root: Path
    quick: bool
    """Fewer rounds and smaller clusters: a test that the cases work, without useful figures."""
    say: Callable[[str], None]
    running: set["subprocess.Popen[str]"] = field(default_factory=set)
    """Commands that have not ended."""

    def rounds(self, full: int) -> range:
        """Return the rounds of a case; one of them if `quick`."""
        return range(1 if self.quick else full)

    def pick(self, full: Sequence[int], quick: Sequence[int]) -> Sequence[int]:
        """Return the sizes of a case."""
        return quick if self.quick else full

    @property
    def env(self) -> dict[str, str]:
        """Return the environment variables of `./hpc`, without the user's own settings.

        Python stores what it compiles, as it does by default: else each command would compile this program's modules.
        """
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "HPC_"))}
        return {
            **inherited,
            "PYTHONDONTWRITEBYTECODE": "",
            "HPC_HOME": str(self.root / "home"),
            "HPC_ENGINE": "embedded",
            "HPC_LOCAL_ROOT": str(self.root),
            "HPC_LOCAL_IMAGES": str(images_root()),
        }

    def sweep(self, name: str) -> None:
        """Remove everything of a cluster, its state included. No measured time includes this."""
        network.sweep(self.root, name)
        for file in (self.root / "home/.pulumi").rglob(f"{name}.json*"):
            file.unlink()

    def call(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, stdin: str = "") -> str:
        """Run a command, and return its standard output. Raises CommandError if it fails."""
        return self.timed(command, env=env, stdin=stdin)[1]

    def timed(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> tuple[float, str]:
        """Run a command as `call` does; return the seconds that it took, and its output."""
        began = time.perf_counter()
        # In a session of its own, so that Ctrl-C in the terminal reaches it through `_end`. --pdeathsig ends it if this
        # process is killed.
        guarded = ["setpriv", "--pdeathsig", "TERM", *command]
        pipes: dict[str, Any] = dict.fromkeys(_STREAMS, subprocess.PIPE)
        variables = {**self.env, **(env or {})}
        with subprocess.Popen(guarded, cwd=ROOT, env=variables, text=True, start_new_session=True, **pipes) as process:
            self.running.add(process)
            try:
                out, err = process.communicate(stdin)
            except BaseException:
                _end(process)
                raise
            finally:
                self.running.discard(process)
        took = time.perf_counter() - began
        if process.returncode:
            tail = "\n".join((out + err).strip().splitlines()[-15:])
            raise CommandError(f"{' '.join(command)} failed ({process.returncode}):\n{tail}")
        return took, out


def _end(process: "subprocess.Popen[str]") -> None:
    """Interrupt a command, and kill it if it does not end."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=_GRACE)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def environment(*, quick: bool, say: Callable[[str], None]) -> Iterator[Environment]:
    """Yield an environment whose clusters are removed at the end; first remove those of killed runs."""
    with network.own_root(PLACE, "bench") as root:
        here = Environment(root=root, quick=quick, say=say)
        try:
            yield here
        finally:
            for process in tuple(here.running):
                _end(process)


def sized(nodes: int) -> dict[str, Any]:
    """Return the sections of a cluster with a login machine and one partition of so many nodes."""
    return {
        "nodesets": {"cpu": {"count": nodes}},
        "partitions": {"every": {"nodesets": ["cpu"], "default": True}},
        "users": [{"name": "alice", "uid": 2001}],
    }


class Cluster:
    """A stack of the bench."""

    def __init__(self, name: str, environment: "Environment", sections: Mapping[str, object]) -> None:
        self.name, self._environment = name, environment
        self.file = environment.root / f"files/Pulumi.{name}.yaml"
        self.config: dict[str, Any] = copy.deepcopy({"platform": "local", **sections, "name": name})
        self.config["image"] = {"base": BASE}
        self.config["network"] = {"cidr": free_network(name)}
        self.write()

    def write(self) -> None:
        """Write the configuration to the stack file."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(yaml.safe_dump({"config": {"hpc:cluster": self.config}}))

    def up(self) -> float:
        """Run `./hpc up`; return the seconds that it took."""
        return self.hpc("up", "--config-file", str(self.file))

    def hpc(self, command: str, *arguments: str) -> float:
        """Run `./hpc COMMAND` for this stack; return the seconds that it took."""
        return self._environment.timed([str(ROOT / "hpc"), command, self.name, *arguments])[0]

    def shell(self, machine: str, script: str) -> str:
        """Run a shell script as root on a machine; return its output."""
        command = [str(ROOT / "hpc"), "ssh", self.name, machine, "--", "sh", "-s"]
        return self._environment.call(command, stdin=script).strip()


class ManualCluster:
    """A cluster like `dev` that by-hand.sh sets up. `down` also removes an incomplete one."""

    def __init__(self, environment: "Environment") -> None:
        self._environment = environment
        self._arguments = [str(environment.root), "hand", free_network("hand")]

    def up(self) -> float:
        """Create it; return the seconds that it took."""
        return self._call("up")

    def down(self) -> None:
        self._call("down")

    def _call(self, action: str) -> float:
        script = str(Path(__file__).with_name("by-hand.sh"))
        return self._environment.timed([script, action, *self._arguments], env={"PYTHON": sys.executable})[0]


def free_network(name: str) -> str:
    """Return a network that nothing on this host uses, a different one for each name."""
    blocks = list(ipaddress.IPv4Network("172.16.0.0/12").subnets(new_prefix=20))
    start = os.getpid() + sum(name.encode())
    free = (
        block for n in range(len(blocks)) if not bridge.taken_by(block := blocks[(start + n) % len(blocks)], but="")
    )
    return str(next(free))


Answer = tuple[list[Series], list[Claim]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question of the bench."""

    name: str
    title: str
    run: Callable[[Environment], Answer]
    """Measures. The environment removes what it leaves."""


def _first_up(here: Environment) -> Answer:
    """Compare a first `up` with the manual set-up of the same cluster, both with the base image in the cache."""
    up_seconds: list[float] = []
    manual_seconds: list[float] = []
    for number in here.rounds(5):
        cluster, manual = Cluster("ours", here, DEV), ManualCluster(here)
        # In turns, each first as often as second, because the page cache is warmer for the second.
        for is_up in (True, False) if number % 2 else (False, True):
            if is_up:
                up_seconds.append(cluster.up())
                here.sweep(cluster.name)
            else:
                manual_seconds.append(manual.up())
                manual.down()
        here.say(f"round {number + 1}: up {up_seconds[-1]:.1f} s, manually {manual_seconds[-1]:.1f} s")
    up = Series(name="./hpc up dev", values=tuple(up_seconds))
    by_hand = Series(name="manually", values=tuple(manual_seconds))
    return [up, by_hand], [Claim(what="first up, ours to manual", value=ratio(up, by_hand), limit=0.45, unit="x")]


def _second_up(here: Environment) -> Answer:
    """Measure an `up` that changes nothing."""
    cluster = Cluster("still", here, DEV)
    cluster.up()
    times = Series(name="second up", values=tuple(cluster.up() for _ in here.rounds(7)))
    here.sweep(cluster.name)
    return [times], [Claim(what="up with nothing to do", value=times.median, limit=3.0)]


def _nodes(here: Environment) -> Answer:
    """Measure `up` by the number of nodes, and the report on the largest cluster."""
    sizes = here.pick((2, 32, 64), (2, 4))
    times: dict[int, list[float]] = {size: [] for size in sizes}
    reports: list[float] = []
    for number in here.rounds(2):
        for size in sizes:
            cluster = Cluster(f"n{size}", here, sized(size))
            times[size].append(cluster.up())
            here.say(f"round {number + 1}: {size} nodes in {times[size][-1]:.1f} s")
            if size == sizes[-1]:
                reports.append(cluster.hpc("report", "--output", str(here.root / "report.html")))
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
    cluster.up()
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
    """Return the seconds from the start of `up` until slurmctld has the limit, and until `up` ends."""
    in_effect: list[float] = []

    def watch() -> None:
        with suppress(CommandError):
            cluster.shell("controller", _WATCH.format(limit=limit))
            in_effect.append(time.perf_counter())

    cluster.config["partitions"]["every"]["max_time"] = limit
    cluster.write()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    time.sleep(2)  # until the watcher has logged in
    began = time.perf_counter()
    took = cluster.up()
    watcher.join()
    if not in_effect:
        raise RuntimeError(f"slurmctld did not have the limit {limit} within a minute")
    return in_effect[0] - began, took


def _preview(here: Environment) -> Answer:
    """Compare our preview with that of a minimal program with as many resources, on the same engine."""
    (size,) = here.pick((32,), (2,))
    cluster = Cluster("look", here, sized(size))
    _, (machines, commands) = _previewed(here, ROOT, cluster.name, cluster.file)
    bare = here.root / "files/Pulumi.bare.yaml"
    bare.write_text(json.dumps({"config": {"bare:machines": machines, "bare:commands": commands}}))
    our_seconds: list[float] = []
    bare_seconds: list[float] = []
    for _ in here.rounds(7):
        seconds, counts = _previewed(here, Path(__file__).with_name("bare"), "bare", bare)
        if counts != (machines, commands):
            raise RuntimeError(f"the bare program has {counts} resources, ours {machines} and {commands}")
        bare_seconds.append(seconds)
        our_seconds.append(_previewed(here, ROOT, cluster.name, cluster.file)[0])
    here.say(f"{machines + commands} resources: ours {our_seconds[-1]:.1f} s, bare {bare_seconds[-1]:.1f} s")
    ours = Series(name="our program", values=tuple(our_seconds))
    minimal = Series(name="bare program", values=tuple(bare_seconds))
    claim = Claim(what="preview, ours to a bare program", value=ratio(ours, minimal), limit=1.5, unit="x")
    return [ours, minimal], [claim]


def _previewed(here: Environment, project: Path, stack: str, file: Path) -> tuple[float, tuple[int, int]]:
    """Preview a stack in a process; return its seconds, and the numbers of dynamic and of other resources."""
    command = [sys.executable, "-m", "tests.bench.previewed", str(project), stack, str(file)]
    took, out = here.timed(command, env={"PULUMI_CONFIG_PASSPHRASE": "bench"})
    dynamic, others = map(int, out.split())
    return took, (dynamic, others)


def _report(here: Environment) -> Answer:
    """Measure the report on a folder with logs of NCCL tests."""
    (count,) = here.pick((1000,), (20,))
    folder = here.root / "files/nccl"
    folder.mkdir(parents=True)
    generator = random.Random(1)  # noqa: S311 - the same logs each time
    for number in range(count):
        first, second = generator.sample(range(64), 2)
        text = "".join(_nccl_log((f"a3-{first}", f"a3-{second}"), generator.uniform(0.97, 1.0)))
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
    """Yield the lines of a log of all_gather on two A3 Mega machines, with a share of the reference bandwidth."""
    expected = reference("a3-megagpu-8g", "all_gather", 2)
    curve: Mapping[int, float] = expected.busbw if expected else {}
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
    """Measure jobs on nodes that have no machine yet: one node, then many."""
    most = 8 if here.quick else 64
    nodesets = {"cpu": {"count": {"min": 1, "max": most + 2}, "idle": "1h"}}
    partitions = {"cpu": {"nodesets": ["cpu"], "default": True}}
    cluster = Cluster("cold", here, {"login": {"on": "controller"}, "nodesets": nodesets, "partitions": partitions})
    cluster.up()
    resume_seconds: list[float] = []
    took: list[float] = []
    for nodes in (2, most + 2):
        submitted, began, resumed = map(float, cluster.shell("controller", _COLD.format(nodes=nodes)).split())
        resume_seconds.append(resumed - submitted)
        took.append(began - submitted)
        here.say(f"{nodes - 1} elastic nodes: {took[-1]:.1f} s until the job ran")
    here.sweep(cluster.name)
    one, many = (
        Series(name=f"sbatch on {text}", values=(value,))
        for text, value in zip(("one cold node", f"{most} cold nodes"), took, strict=True)
    )
    return [one, many, Series(name="sbatch to ResumeProgram", values=tuple(resume_seconds))], [
        Claim(what="sbatch to ResumeProgram", value=max(resume_seconds), limit=2.0),
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
    """Measure the page of the dashboards in a browser, over SSH."""
    cluster = Cluster("seen", here, {**sized(2), "monitoring": {"interval_seconds": 5}})
    cluster.up()
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
    """Count the blocks in which the nodes of a job are, on a slurmctld with hundreds of nodes."""
    (nodes,) = here.pick((512,), (64,))
    alone = {"nodesets": {"cpu": {"on": "controller"}}, "login": {"on": "controller"}}
    cluster = Cluster("place", here, {**alone, "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}}})
    cluster.up()
    program = Path(placement.__file__).read_text()
    found = json.loads(cluster.shell("controller", f"python3 - {nodes} <<'END'\n{program}\nEND"))
    here.sweep(cluster.name)
    series = {
        kind: Series(name=title, values=tuple(float(blocks) for blocks, _ in found[kind]), unit="blocks")
        for kind, title in (("nodesets", "one switch for all nodes"), ("places", "switches by the nodes' places"))
    }
    before, after = (sum(series[kind].values) / len(found[kind]) for kind in ("nodesets", "places"))
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
    """Measure the time until a job whose node loses a GPU runs on another node. A script replaces nvidia-smi."""
    nodesets = {"gpu": {"count": 2, "machine_type": "local-2c-2gpu"}}
    partitions = {"gpu": {"nodesets": ["gpu"], "default": True}}
    health = {"slurm": {"health": {"requeue": True}}}
    cluster = Cluster(
        "lost", here, {"login": {"on": "controller"}, "nodesets": nodesets, "partitions": partitions, **health}
    )
    cluster.up()
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
    Case(
        name="up", title="First `up` of Pulumi.dev.yaml, five machines, against tests/bench/by-hand.sh", run=_first_up
    ),
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
    """Run the cases, and report failures without stopping. Everything is below a root that is removed at the end."""
    results: list[Result] = []
    with environment(quick=quick, say=say) as here:
        for case in cases:
            say(f"{case.name}: {case.title} ...")
            began = time.monotonic()
            problem, series, claims = "", [], []
            try:
                series, claims = case.run(here)
            except Exception as error:  # noqa: BLE001 - the other cases run whatever went wrong
                problem = str(error) or type(error).__name__
                with suppress(CommandError, HostError, OSError):
                    for name in network.stacks(here.root):
                        here.sweep(name)
            seconds, answer = time.monotonic() - began, {"series": tuple(series), "claims": tuple(claims)}
            results.append(Result(case=case.name, title=case.title, **answer, seconds=seconds, problem=problem))
            say(f"{case.name}: {problem or 'done'}, {seconds:.0f} s")
    return Report(machine=description(), date=time.strftime("%Y-%m-%d"), results=tuple(results))
