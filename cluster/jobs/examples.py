"""Example job scripts for a cluster's own partitions, GPUs and programs, and a record of their files."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster import platform_interface
from cluster.catalog.nccl import default_collective
from cluster.config.cluster import ClusterConfig
from cluster.config.validators import minutes
from cluster.jobs.nccl import LOGS, NcclRun, launcher, run_script
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.jobs.script import BODIES, ENV, FOLDER, JobScript, Option, read_body, render_environment
from cluster.printable import counted

EXAMPLES = f"{FOLDER}/examples"
_LINT = re.compile(r"^# shellcheck .*\n", re.MULTILINE)
"""Comments for shellcheck."""
PYTHON = ("python.sh",)
"""Body that selects the Python for the bodies after it."""
NCCL = "nccl.sh"
PROGRAMS = {
    "pyxis": "the machines have no enroot and pyxis",
    "apptainer": "the machines have no apptainer",
    "nccl": "no partition has GPUs and containers in which `./hpc nccl build` builds nccl-tests",
    "mpi": "the machines have no Open MPI for Python (packages openmpi-bin and python3-mpi4py)",
}
"""Reasons for leaving an example out, by the program that it needs."""
RECORD = ".written"
"""Name of the record beside the examples, which has a line for each file in sha256sum's format."""
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True, kw_only=True)
class ExampleKind:
    """A kind of example."""

    name: str
    title: str
    bodies: tuple[str, ...]
    """Files of scripts/jobs/examples, joined to one script."""
    files: tuple[str, ...] = ()
    """Programs of scripts/jobs/examples/programs, which are put beside the script."""
    gpus: bool | None = None
    """True: GPUs are required. False: no GPU, and if possible nodes without GPUs. None: GPUs if there are some."""
    nodes: int = 1
    whole: bool = False
    """True if the job gets whole nodes."""
    tasks: str = "one"
    """On each node: `one`, `gpus` (one for each GPU, at least one), or `cores` (four, or one for each CPU)."""
    needs: str = ""
    """A program that not every cluster has, as in Platform.job_programs."""
    more: Mapping[str, Option] = field(default_factory=dict)
    """Further options of sbatch."""


KINDS = (
    ExampleKind(name="hello", title="Start here: where a job runs, and what it has", bodies=("hello.sh",), gpus=False),
    ExampleKind(name="single-gpu", title="One GPU of a node", bodies=("single-gpu.sh",), gpus=True),
    ExampleKind(
        name="full-node", title="PyTorch on all of one node, with Slurm's ranks", bodies=(*PYTHON, "pytorch.sh"),
        files=("train.py",), whole=True, tasks="gpus",
    ),
    ExampleKind(
        name="pytorch", title="PyTorch on two nodes, with Slurm's ranks", bodies=(*PYTHON, "pytorch.sh"),
        files=("train.py",), nodes=2, whole=True, tasks="gpus",
    ),
    ExampleKind(
        name="torchrun", title="PyTorch on two nodes, started by torchrun", bodies=(*PYTHON, "torchrun.sh"),
        files=("train.py",), nodes=2, whole=True,
    ),
    ExampleKind(
        name="pytorch-container", title="PyTorch on two nodes, in a container (pyxis)",
        bodies=("pytorch-container.sh",), files=("train.py",), nodes=2, whole=True, tasks="gpus", needs="pyxis",
    ),
    ExampleKind(
        name="requeue", title="Training that goes on from its checkpoint when a node fails or the time is up",
        bodies=(*PYTHON, "requeue.sh"), files=("train.py",), nodes=2, whole=True, tasks="gpus",
        more={"requeue": True, "open-mode": "append", "signal": "B:USR1@120"},
    ),
    ExampleKind(
        name="mpi", title="MPI on two nodes, with PMIx", bodies=("mpi.sh",), files=("pi.py",), gpus=False, nodes=2,
        tasks="cores", needs="mpi",
    ),
    ExampleKind(
        name="mpi-container", title="MPI on two nodes, compiled and run in a container (pyxis)",
        bodies=("mpi-container.sh",), files=("pi.c",), gpus=False, nodes=2, tasks="cores", needs="pyxis",
    ),
    ExampleKind(name="container", title="A container (enroot and pyxis)", bodies=("container.sh",), needs="pyxis"),
    ExampleKind(
        name="apptainer", title="A container (apptainer)", bodies=("apptainer.sh",), files=("apptainer.def",),
        needs="apptainer",
    ),
    ExampleKind(
        name="array", title="Eight tasks of one script, four at a time", bodies=("array.sh",), gpus=False,
        more={"array": "1-8%4", "output": "%x-%A_%a.out"},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Examples:
    """The examples that fit a cluster."""

    scripts: tuple[JobScript, ...]
    files: Mapping[str, str]
    """Text of every file below EXAMPLES, by name: README, scripts, programs."""
    left_out: Mapping[str, str]
    """Reason, by the script's name."""


def examples(config: ClusterConfig) -> Examples:
    """Return the examples that fit a cluster, and the reasons for those that do not."""
    rows = partition_facts(config)
    installed = platform_interface.get(config.platform).job_programs(config)
    scripts: list[JobScript] = []
    programs: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for kind in KINDS:
        row = _find_partition(kind, config, rows)
        if kind.needs and kind.needs not in installed:
            left_out[f"{kind.name}.sh"] = PROGRAMS[kind.needs]
        elif row is None:
            what = "GPUs" if kind.gpus else f"{kind.nodes} nodes" if kind.nodes > 1 else "a single node"
            left_out[f"{kind.name}.sh"] = f"no partition has {what} for a job"
        else:
            scripts.append(_script(kind, config, row, packaged="pytorch" in installed))
            folder = BODIES / "examples" / "programs"
            programs |= {name: (folder / name).read_text(encoding="utf-8") for name in kind.files}
    row = next((row for row in rows if row.gpu and row.nodes), None)
    if row and launcher(config) in {"installed", *installed}:
        scripts.append(_nccl(config, row))
    else:
        left_out[NCCL] = PROGRAMS["nccl"]
    texts = {script.name: script.text() for script in scripts}
    files = {"README": readme(config, scripts), **texts, **dict(sorted(programs.items()))}
    return Examples(tuple(scripts), files, left_out)


def _nccl(config: ClusterConfig, row: PartitionFacts) -> JobScript:
    """Return the job of `./hpc nccl run`, to be submitted from any folder."""
    most = min(len(row.nodes), config.partitions[row.name].max_nodes or len(row.nodes))
    nodes = max(min(2, most), config.partitions[row.name].min_nodes or 1)
    script = run_script(config, NcclRun(partition=row, nodes=nodes, collective=default_collective(nodes)))
    built = "" if launcher(config) == "installed" else ", after `./hpc nccl build` for the same user"
    return replace(
        script,
        name=NCCL,
        title=f"The NCCL test between the GPUs of {nodes} nodes{built}",
        options={**script.options, "output": "%x-%j.out"},
        body=f'mkdir -p "$HOME/{LOGS}"\n{script.body}',
    )


def _find_partition(
    kind: ExampleKind, config: ClusterConfig, rows: tuple[PartitionFacts, ...]
) -> PartitionFacts | None:
    """Return the best partition for an example: with or without GPUs as it asks, then the default partition."""
    by_preference = sorted(rows, key=lambda row: (row.gpu is None) == (kind.gpus is not False))
    fitting = (row for row in by_preference if row.gpu or not kind.gpus)
    return next((row for row in fitting if _nodes(kind, config, row) >= kind.nodes), None)


def _nodes(kind: ExampleKind, config: ClusterConfig, row: PartitionFacts) -> int:
    """Return the number of the job's nodes: those of the example, or the partition's minimum; 0 if it can't run."""
    section = config.partitions[row.name]
    fewest, most = section.min_nodes or 1, min(len(row.nodes), section.max_nodes or len(row.nodes))
    count = max(kind.nodes, fewest)
    return 0 if count > most or (kind.nodes == 1 and count > 1) else count


def _script(kind: ExampleKind, config: ClusterConfig, row: PartitionFacts, *, packaged: bool) -> JobScript:
    gpu = row.gpu if kind.gpus is not False else None
    count = gpu.count if gpu and (kind.whole or kind.nodes > 1) else 1
    tasks = {"one": 1, "gpus": min(count, row.cpus), "cores": min(4, row.cpus)}[kind.tasks]
    time = "00:30:00" if kind.whole else "00:10:00"
    options: dict[str, Option] = {
        "job-name": kind.name,
        "partition": row.name,
        "nodes": _nodes(kind, config, row),
        "ntasks-per-node": tasks,
        "cpus-per-task": max(1, row.cpus // tasks) if kind.whole else False,
        "gpus-per-node": f"{gpu.type}:{count}" if gpu else False,
        "exclusive": kind.whole,
        "mem": 0 if kind.whole else False,
        "time": min(time, row.max_time, key=minutes),
        "output": "%x-%j.out",
        **kind.more,
    }
    bodies = kind.bodies
    if packaged and bodies[0] in PYTHON:
        bodies = ("libuv.sh", *bodies)
    text = "\n".join(_LINT.sub("", read_body(f"examples/{body}")).strip("\n") + "\n" for body in bodies)
    options = {name: value for name, value in options.items() if value is not False}
    return JobScript(name=f"{kind.name}.sh", title=kind.title, options=options, body=text)


def installed_files(config: ClusterConfig, found: Examples) -> dict[str, str]:
    """Return the text of all files by absolute path, with env.sh, which the scripts source."""
    return {ENV: render_environment(config), **{f"{EXAMPLES}/{name}": text for name, text in found.files.items()}}


def readme(config: ClusterConfig, scripts: Sequence[JobScript]) -> str:
    """Return the README beside the scripts."""
    pyxis = "pyxis" in platform_interface.get(config.platform).job_programs(config)
    text = (BODIES / "examples" / "README.txt").read_text(encoding="utf-8")
    containers = (BODIES / "examples" / "README-containers.txt").read_text(encoding="utf-8")
    title = text.partition("\n")[0].replace("{cluster}", config.name)
    values = {
        "cluster": config.name,
        "rule": "=" * len(title),
        "folder": EXAMPLES,
        "env": ENV,
        "first": next((script.name for script in scripts), "SCRIPT"),
        "table": _columns([(script.name, describe_request(script), script.title) for script in scripts]),
        "nodes": _columns(_node_rows(config)),
        "containers": f"\n{containers}" if pyxis else "",
    }
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text.rstrip("\n") + "\n"


def describe_request(script: JobScript) -> str:
    """Return the request of a script in words: 2 nodes, 8 h100 each."""
    nodes, gpus = script.options["nodes"], script.options.get("gpus-per-node")
    kind, _, count = gpus.partition(":") if isinstance(gpus, str) else ("", "", "")
    what = f"{nodes} node{'s' if nodes != 1 else ''}"
    return f"{what}, {count} {kind}{' each' if nodes != 1 else ''}" if gpus else what


def record(files: Mapping[str, str]) -> str:
    """Return the record of files."""
    return "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in sorted(files.items()))


def parse_record(text: str) -> dict[str, str]:
    """Return the hash of each file in a record, by name. Other lines are left out."""
    return {found[2]: found[1] for line in text.splitlines() if (found := _LINE.fullmatch(line))}


def _node_rows(config: ClusterConfig) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in partition_facts(config):
        count = len(row.nodes)
        each = f"{counted(row.cpus, 'processor')}, {row.memory_mib / 1024:.0f} GiB"
        gpu = f", {counted(row.gpu.count, 'GPU')} ({row.gpu.type})" if row.gpu else ""
        partition = f"partition {row.name}{' (default)' if row.default else ''}"
        rows.append((partition, f"{counted(count, 'node')}: {each}{gpu}"))
    return rows


def _columns(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(f"    {line}" for line in lines)
