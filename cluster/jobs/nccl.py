"""The NCCL test as job scripts: one that builds it, one that runs it, for the machines of a partition.

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
from cluster.config.validators import minutes
from cluster.jobs.partition_facts import PartitionFacts
from cluster.jobs.script import ENV, JobScript, Option, read_body
from cluster.slurm.paths import SPOOL

FOLDER = "nccl"
"""Below the user's home: image, programs and logs."""
LOGS = f"{FOLDER}/logs"
"""Logs by job: JOB.log of a run, JOB-warm-up.log, JOB-build.log."""
BUILD_NAME = "hpc-nccl-build"
RUN_NAME = "hpc-nccl"
BUILD_MINUTES, RUN_MINUTES = 60, 30
"""Longest run times that the jobs ask for; a build takes 15 minutes, a run of all sizes on A3 Mega 3."""
Transport = Literal["nvlink", "fabric"]
Launcher = Literal["pyxis", "apptainer", "installed"]
_ENDINGS: Mapping[Launcher, str] = {"pyxis": "sqsh", "apptainer": "sif"}
_MPI: Mapping[Launcher, str] = {"pyxis": "pmi2", "apptainer": "pmix", "installed": "pmix"}
_FORCED = "export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_ALGO=Ring\n"
"""Settings by which the NICs carry what NVLink and shared memory would."""
SLOW = 0.9
"""Share of the fastest pair below which a pair is slow: one of eight NICs is more, and sound pairs differ by less."""
ROUNDS = 8
ROUNDS_WITHOUT_FAST = 3
"""The number of rounds after which no single node is to blame if no pair was fast."""
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class NcclRun:
    """A measurement to run, and its nodes."""

    partition: PartitionFacts
    nodes: int
    nodelist: str = ""
    """Host list of the nodes to use; empty: any."""
    collective: str
    smallest: str | None = None
    """Smallest message as nccl-tests takes it: 8M. Default: 512M on InfiniBand, else 8M, as the references have it."""
    largest: str = "8G"
    iterations: int | None = None
    """Timed iterations for each size. Default: 200 on the references of A3 Mega, else nccl-tests' own."""
    check: bool = False
    """True if results are checked."""
    over: Transport | None = None
    """On one node: `fabric` forces what NVLink would carry through the NICs. Default: NCCL decides."""
    binaries: str = ""
    """Folder with programs of nccl-tests on the nodes, used instead of the built or installed ones."""


def launcher(config: ClusterConfig, binaries: str = "") -> Launcher:
    """Return how the programs are run: installed ones as they are, others in the container they were built in. An image
    of which nothing is known is taken for one with pyxis, as it stands for production's in a rehearsal."""
    image = IMAGES[config.image.base]
    if binaries or image.nccl_tests:
        return "installed"
    return image.containers[0] if image.containers else "pyxis"


def tests_folder(image: ContainerImage) -> str:
    """Return where the build leaves nccl-tests, below the user's home; the programs are in `build` there."""
    return f"{FOLDER}/nccl-tests-{NCCL_TESTS.version}-{image.tag}"


def image_file(kind: Launcher, image: ContainerImage) -> str:
    """Return where the build leaves the image, below the user's home."""
    return f"{FOLDER}/{image.file_name}.{_ENDINGS[kind]}"


def build_script(config: ClusterConfig, partition: PartitionFacts) -> JobScript:
    """The job that imports the image and builds nccl-tests. Raises ValueError where they are installed."""
    kind, image = launcher(config), partition.fabric.container
    if kind == "installed":
        raise ValueError(f"nccl-tests is installed on images {config.image.base}")
    options = {
        "job-name": BUILD_NAME,
        "output": f"{LOGS}/%j-build.log",
        "dependency": "singleton",
        **_gpus(partition, 1),
        "time": _limit(partition, BUILD_MINUTES),
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
    """The job that measures one collective."""
    kind, gpu, image = launcher(config, run.binaries), run.partition.gpu, run.partition.fabric.container
    if gpu is None:
        raise ValueError(f"partition {run.partition.name} has no GPUs")
    # One process has all GPUs of a node: installed programs need no MPI then, and a node may have fewer CPUs than GPUs.
    without_mpi = kind == "installed" and run.nodes == 1
    single = without_mpi or run.partition.cpus < gpu.count
    tasks = 1 if single else gpu.count
    suffix = "_mpi" if kind == "installed" and not without_mpi and not run.binaries else ""
    folder = (
        f"{run.binaries}/" if run.binaries else "" if kind == "installed" else f"$HOME/{tests_folder(image)}/build/"
    )
    common = f"-f 2 -g {gpu.count if single else 1}".split()
    fabric = run.partition.fabric
    smallest = run.smallest or fabric.smallest
    iterations = run.iterations or fabric.iterations
    sizes = ["-b", smallest, "-e", run.largest, *common]
    timed = ["-w", "5", "-n", str(iterations)] if iterations else []
    options = {
        "job-name": RUN_NAME,
        "output": f"{LOGS}/%j.log",
        **_gpus(run.partition, run.nodes),
        "nodelist": run.nodelist or False,
        "ntasks-per-node": tasks,
        "time": _limit(run.partition, RUN_MINUTES),
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
        "arguments": [*sizes, *timed, "-c", "1" if run.check else "0"],
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


def _limit(partition: PartitionFacts, wanted: int) -> int:
    """Minutes: what is wanted, or what the partition allows."""
    return max(1, int(min(wanted, minutes(partition.max_time))))


def _container(kind: Launcher, image: ContainerImage) -> dict[str, object]:
    """Return the variables that pyxis.sh and apptainer.sh run a container with."""
    found: dict[str, object] = {"folder": f"$HOME/{FOLDER}", "image": f"$HOME/{image_file(kind, image)}"}
    return found | ({"spool": SPOOL} if kind == "apptainer" else {})


def _assigned(values: Mapping[str, object]) -> str:
    """Variables of bash; a value that begins with $HOME is in double quotes, so that it is expanded."""
    return "".join(f"{name}={_value(value)}\n" for name, value in values.items())


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"({shlex.join(map(str, value))})"
    return f'"{value}"' if str(value).startswith("$HOME/") else shlex.quote(str(value))


def _bodies(*names: str) -> str:
    return "\n".join([f"\n. {ENV}\n", *(read_body(f"nccl/{name}.sh") for name in names)])


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """The result of a pair of nodes."""

    round: int
    nodes: Pair
    job: str
    busbw: float
    """Average at large sizes, GB/s; 0 where nothing was measured."""
    failure: str = ""
    """The reason why the pair is slow whatever others reach: below its reference, or the job failed."""


@dataclass
class PairSearch:
    """The measurements of some nodes, and what they say."""

    nodes: Sequence[str]
    measured: list[PairResult] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The fastest pair, GB/s."""
        return max((pair.busbw for pair in self.measured), default=0.0)

    @property
    def rounds(self) -> int:
        return max((pair.round for pair in self.measured), default=0)

    def is_slow(self, pair: PairResult) -> bool:
        return bool(pair.failure) or pair.busbw < SLOW * self.best

    @property
    def sound(self) -> list[str]:
        """Nodes that were fast with somebody, so that nothing is wrong with them."""
        fast = {node for pair in self.measured if not self.is_slow(pair) for node in pair.nodes}
        return [node for node in self.nodes if node in fast]

    @property
    def slow(self) -> list[str]:
        """Nodes that were slow with a sound one, and fast with none."""
        sound = set(self.sound)
        met = {node for pair in self.measured if self.is_slow(pair) and sound & set(pair.nodes) for node in pair.nodes}
        return [node for node in self.nodes if node in met - sound]

    @property
    def open(self) -> list[str]:
        """Nodes of which nothing is known yet."""
        known = {*self.sound, *self.slow}
        return [node for node in self.nodes if node not in known]

    @property
    def odd(self) -> list[PairResult]:
        """Slow pairs of two sound nodes: the way between them."""
        sound = set(self.sound)
        return [pair for pair in self.measured if self.is_slow(pair) and sound.issuperset(pair.nodes)]

    @property
    def passed(self) -> bool:
        """True if every node is sound, and every pair was fast."""
        return not (self.slow or self.open or self.odd)

    def of(self, node: str) -> list[PairResult]:
        """Return what was measured with a node."""
        return [pair for pair in self.measured if node in pair.nodes]

    def next(self) -> list[Pair]:
        """Pairs to measure side by side; empty where all is known, or more pairs would show no more."""
        sound = self.sound
        if self.rounds >= (ROUNDS if sound else ROUNDS_WITHOUT_FAST):
            return []
        tried = {frozenset(pair.nodes) for pair in self.measured}
        found: list[Pair] = []
        used: set[str] = set()
        for node in (unknown := self.open):
            others = sound or unknown
            free = (name for name in others if name not in {node, *used} and frozenset((node, name)) not in tried)
            if node not in used and (partner := next(free, "")):
                found.append((node, partner))
                used |= {node, partner}
        return found
