"""The NCCL test: job scripts that build and run it, and the search for a slow node by pairs of nodes.

Sources: cluster-toolkit, examples/machine-learning/a3-megagpu-8g/nccl-tests (containers, pmi2, sizes, iterations);
nebius-solutions-library, soperator/test/quickcheck/nccl_{single,multi}_node.sh (installed programs, pmix, and the
variables that force the fabric); github.com/NVIDIA/nccl-tests, README.md (arguments).
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cluster.catalog import IMAGES
from cluster.catalog.nccl import NCCL_TESTS, ContainerImage
from cluster.config.cluster import ClusterConfig
from cluster.jobs.partition_facts import PartitionFacts
from cluster.jobs.script import ENV, JobScript, Option, read_body
from scripts.node.interface import SPOOLS

FOLDER = "nccl"
"""Below the user's home: image, programs and logs."""
LOGS = f"{FOLDER}/logs"
"""Logs by job: JOB.log of a run, JOB-warm-up.log, JOB-build.log."""
BUILD_NAME = "hpc-nccl-build"
RUN_NAME = "hpc-nccl"
BUILD_MINUTES, RUN_MINUTES = 60, 30
"""Time limits of the jobs. A build takes 15 minutes, a run of all sizes on A3 Mega 3."""
Transport = Literal["nvlink", "fabric"]
Launcher = Literal["pyxis", "apptainer", "installed"]
_ENDINGS: Mapping[Launcher, str] = {"pyxis": "sqsh", "apptainer": "sif"}
_MPI: Mapping[Launcher, str] = {"pyxis": "pmi2", "apptainer": "pmix", "installed": "pmix"}
_FORCED = "export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_ALGO=Ring\n"
"""Settings that make NCCL use the NICs in place of NVLink and shared memory."""
SLOW = 0.9
"""Share of the fastest pair below which a pair is slow: one of eight NICs is more, and sound pairs differ by less."""
ROUNDS = 8
ROUNDS_WITHOUT_FAST = 3
"""Rounds without a fast pair after which the search ends, as no single node can be the cause."""
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class NcclRun:
    """A run of the NCCL test on nodes of a partition."""

    partition: PartitionFacts
    nodes: int
    nodelist: str = ""
    """Host list of the nodes to use; empty: any."""
    collective: str
    smallest: str | None = None
    """Smallest message size, such as 8M. Default: that of the fabric's references."""
    largest: str = "8G"
    iterations: int | None = None
    """Timed iterations for each size. Default: those of the fabric's references, else nccl-tests' own."""
    check: bool = False
    """True if results are checked."""
    over: Transport | None = None
    """On one node: `fabric` forces the use of the NICs in place of NVLink. Default: NCCL decides."""
    binaries: str = ""
    """Folder with programs of nccl-tests on the nodes, in place of the built or installed ones."""


def launcher(config: ClusterConfig, binaries: str = "") -> Launcher:
    """Return how the programs are started: installed ones directly, others in the container they were built in. For an
    image that the catalog has no container runtime of it is pyxis, as a rehearsal's image stands for production's."""
    image = IMAGES[config.image.base]
    if binaries or image.nccl_tests:
        return "installed"
    return image.containers[0] if image.containers else "pyxis"


def tests_folder(image: ContainerImage) -> str:
    """Return the folder of the built nccl-tests, below the user's home; the programs are in `build` there."""
    return f"{FOLDER}/nccl-tests-{NCCL_TESTS.version}-{image.tag}"


def image_file(kind: Launcher, image: ContainerImage) -> str:
    """Return the path of the imported image, below the user's home."""
    return f"{FOLDER}/{image.file_name}.{_ENDINGS[kind]}"


def build_script(config: ClusterConfig, partition: PartitionFacts) -> JobScript:
    """Return the job that imports the image and builds nccl-tests. Raises ValueError if nccl-tests is installed."""
    kind, image = launcher(config), partition.fabric.container
    if kind == "installed":
        raise ValueError(f"nccl-tests is installed on images {config.image.base}")
    options = {
        "job-name": BUILD_NAME,
        "output": f"{LOGS}/%j-build.log",
        "dependency": "singleton",
        **_gpus(partition, 1),
        "time": partition.time_limit(BUILD_MINUTES),
    }
    values = {
        **_container(kind, image),
        "from": image.enroot if kind == "pyxis" else image.docker,
        "tests": f"$HOME/{tests_folder(image)}",
        "url": NCCL_TESTS.url,
        "commit": NCCL_TESTS.commit,
        "programs": len(NCCL_TESTS.collectives),
    }
    body = _assigned(values) + _bodies(kind, f"import-{kind}", "build")
    title = f"Imports {image.name}:{image.tag} and builds nccl-tests {NCCL_TESTS.version} in it."
    return JobScript(name="nccl-build.sh", title=title, options=options, body=body)


def run_script(config: ClusterConfig, run: NcclRun) -> JobScript:
    """Return the job that measures one collective."""
    kind, gpu, image = launcher(config, run.binaries), run.partition.gpu, run.partition.fabric.container
    if gpu is None:
        raise ValueError(f"partition {run.partition.name} has no GPUs")
    # One process can use all GPUs of a node: installed programs need no MPI then, and few CPUs are enough.
    without_mpi = kind == "installed" and run.nodes == 1
    single = without_mpi or run.partition.cpus < gpu.count
    tasks = 1 if single else gpu.count
    suffix = "_mpi" if kind == "installed" and not without_mpi and not run.binaries else ""
    folder = (
        f"{run.binaries}/" if run.binaries else "" if kind == "installed" else f"$HOME/{tests_folder(image)}/build/"
    )
    common = f"-f 2 -g {gpu.count if single else 1}".split()
    smallest = run.smallest or run.partition.fabric.smallest
    iterations = run.iterations or run.partition.fabric.iterations
    timed = ["-w", "5", "-n", str(iterations)] if iterations else []
    options = {
        "job-name": RUN_NAME,
        "output": f"{LOGS}/%j.log",
        **_gpus(run.partition, run.nodes),
        "nodelist": run.nodelist or False,
        "ntasks-per-node": tasks,
        "time": run.partition.time_limit(RUN_MINUTES),
    }
    context = {
        "cluster": config.name,
        "machine_type": run.partition.machine_type.name,
        "nodes": run.nodes,
        "collective": run.collective,
        **({"over": run.over} if run.over else {}),
    }
    values = {
        **(_container(kind, image) if kind != "installed" else {}),
        "gpus": gpu.count,
        "program": f"{folder}{run.collective}_perf{suffix}",
        "context": " ".join(f"{key}={value}" for key, value in context.items()),
        "warm_up": f"$HOME/{LOGS}/$SLURM_JOB_ID-warm-up.log",
        "options": [f"--mpi={'none' if without_mpi else _MPI[kind]}", f"--ntasks-per-node={tasks}", "--cpu-bind=none"],
        "first": ["-b", smallest, "-e", smallest, *common, "-w", "2", "-n", "5", "-c", "0"],
        "arguments": ["-b", smallest, "-e", run.largest, *common, *timed, "-c", "1" if run.check else "0"],
    }
    forced = _FORCED if run.over == "fabric" else ""
    title = f"Measures {run.collective} of NCCL on {run.nodes} {run.partition.machine_type.name}."
    body = _assigned(values) + forced + _bodies(kind, "run")
    return JobScript(name=f"nccl-{run.collective}.sh", title=title, options=options, body=body)


def _gpus(partition: PartitionFacts, nodes: int) -> dict[str, Option]:
    gpu = partition.gpu
    if gpu is None:
        raise ValueError(f"partition {partition.name} has no GPUs")
    return {
        "partition": partition.name,
        "nodes": nodes,
        "gpus-per-node": f"{gpu.type}:{gpu.count}",
        "exclusive": True,
        "mem": "0",
    }


def _container(kind: Launcher, image: ContainerImage) -> dict[str, object]:
    """Return the variables for pyxis.sh and apptainer.sh."""
    values: dict[str, object] = {"folder": f"$HOME/{FOLDER}", "image": f"$HOME/{image_file(kind, image)}"}
    return values | ({"spool": SPOOLS["node"]} if kind == "apptainer" else {})


def _assigned(values: Mapping[str, object]) -> str:
    """Return assignments for bash. A value that begins with $HOME/ is in double quotes, so that bash expands it."""
    return "".join(f"{name}={_value(value)}\n" for name, value in values.items())


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"({shlex.join(map(str, value))})"
    return f'"{value}"' if str(value).startswith("$HOME/") else shlex.quote(str(value))


def _bodies(*names: str) -> str:
    return "\n".join([f"\n. {ENV}\n", *(read_body(f"nccl/{name}.sh") for name in names)])


# -- the search for slow nodes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """The measurement of a pair of nodes."""

    round: int
    nodes: Pair
    job: str
    busbw: float
    """Average at large sizes, GB/s; 0 where nothing was measured."""
    failure: str = ""
    """The reason why the pair is slow in any case: the job failed, or it is below its reference."""
    compared: bool = False
    """True if it met a reference or the line rate, and not only other pairs."""


@dataclass
class PairSearch:
    """A search for the slow ones of some nodes, by measuring pairs of them in rounds."""

    nodes: Sequence[str]
    measured: list[PairResult] = field(default_factory=list)

    @property
    def best(self) -> float:
        """Bandwidth of the fastest pair, GB/s."""
        return max((pair.busbw for pair in self.measured), default=0.0)

    @property
    def rounds(self) -> int:
        return max((pair.round for pair in self.measured), default=0)

    def is_slow(self, pair: PairResult) -> bool:
        return bool(pair.failure) or pair.busbw < SLOW * self.best

    @property
    def sound(self) -> list[str]:
        """Nodes that were fast with one of the others, so that nothing is wrong with them. A single pair is the fastest
        one whatever it has, so that it needs a reference."""
        proven = [pair for pair in self.measured if pair.compared or len(self.measured) > 1]
        fast = {node for pair in proven if not self.is_slow(pair) for node in pair.nodes}
        return [node for node in self.nodes if node in fast]

    @property
    def slow(self) -> list[str]:
        """Nodes that were slow with a sound one, and fast with none."""
        sound = set(self.sound)
        met = {node for pair in self.measured if self.is_slow(pair) and sound & set(pair.nodes) for node in pair.nodes}
        return [node for node in self.nodes if node in met - sound]

    @property
    def open(self) -> list[str]:
        """Nodes that are not known to be sound or slow."""
        decided = {*self.sound, *self.slow}
        return [node for node in self.nodes if node not in decided]

    @property
    def odd(self) -> list[PairResult]:
        """Slow pairs of two sound nodes: the network between them is slow."""
        sound = set(self.sound)
        return [pair for pair in self.measured if self.is_slow(pair) and sound.issuperset(pair.nodes)]

    @property
    def passed(self) -> bool:
        """True if every node is sound, and every pair was fast."""
        return not (self.slow or self.open or self.odd)

    def of(self, node: str) -> list[PairResult]:
        """Return the measurements with a node."""
        return [pair for pair in self.measured if node in pair.nodes]

    def next(self) -> list[Pair]:
        """Return the pairs of the next round; empty if every node is decided, or more rounds would not help."""
        sound = self.sound
        if self.rounds >= (ROUNDS if sound else ROUNDS_WITHOUT_FAST):
            return []
        tried = {frozenset(pair.nodes) for pair in self.measured}
        pairs: list[Pair] = []
        used: set[str] = set()
        for node in (undecided := self.open):
            others = sound or undecided
            free = (name for name in others if name not in {node, *used} and frozenset((node, name)) not in tried)
            if node not in used and (partner := next(free, "")):
                pairs.append((node, partner))
                used |= {node, partner}
        return pairs
