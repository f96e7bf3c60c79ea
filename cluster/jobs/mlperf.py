"""Jobs of MLPerf benchmarks: checks of options, findings about the data folder, jobs that prepare and train."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.catalog import mlperf as catalog
from cluster.catalog.mlperf import GPT3, GPUS, STABLE_DIFFUSION, DiffusionConfig, Gpt3Setting
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, listing, suggest
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.jobs.script import ENV, JobScript, Option, read_body

_FOLDER = re.compile(r"(/[A-Za-z0-9._-]+)+")
_IMAGE = re.compile(r"[A-Za-z0-9._:/#@+-]+")
_SOURCE = re.compile(r"[ -~]{1,1000}")
_KEY = re.compile(
    r"secret|access_key|password|((^|[,_])(pass|token|key|key_pem|sas_url|account_key|client_id)=)", re.IGNORECASE
)
"""Names of rclone's options for credentials, of all backends (rclone.org/overview, `rclone help backends`)."""
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._/-]*)?")
_GIB = 1024**3
_ROOM = 0.9
"""Share of a disk's size that its file system has at least."""
NEEDED_FILES = {
    STABLE_DIFFUSION: (
        "training/stable_diffusion/run_and_time.sh",
        "training/stable_diffusion/configs/train_02x08x08.yaml",
        "checkpoints/sd/512-base-ema.ckpt",
        "checkpoints/clip/open_clip_pytorch_model.bin",
        "checkpoints/inception/pt_inception-2015-12-05-6726825d.pth",
        "datasets/laion-400m/webdataset-moments-filtered/00000.tar",
        "datasets/laion-400m/webdataset-moments-filtered/00831.tar",
        "datasets/coco2014/val2014_30k.tsv",
        "datasets/coco2014/val2014_30k_stats.npz",
    ),
    GPT3: (
        "training/large_language_model/megatron-lm/pretrain_gpt.py",
        "dataset/bpe/vocab.json",
        "dataset/bpe/merges.txt",
        *(
            f"dataset/preprocessed_c4_spm/c4_en_{part}_c4_spm_text_document.{ending}"
            for part in ("6", "7", "validation_subset")
            for ending in ("bin", "idx")
        ),
    ),
}
"""Files below the data folder that a run requires (sources: the configurations of Stable Diffusion, run_gpt3.sh and
gpt3_blend.sh of GPT-3 in github.com/mlcommons/training)."""
_SHORT = {"gpt3": "gpt3", "stable_diffusion": "sd"}
_NO_CHECKPOINT = """\
GPT-3 continues from a checkpoint that the recipe does not provide. Name it with --checkpoint:
  REMOTE:PATH      an rclone remote that you configured on the cluster (rclone config), and the folder or *.tar in it
  s3://BUCKET/PATH the same for the AWS CLI
  /FOLDER          a folder of the cluster that has it already: the one with metadata.json
MLCommons publishes it in BF16 as gpt3/megatron-lm/checkpoint_nemo_bf16.tar; how to get at it is in the section "S3
artifacts download" of large_language_model/megatron-lm/README.md in github.com/mlcommons/training."""
_SAVE_MINUTES = 15
"""Minutes of the run time that are kept for GPT-3's last checkpoint, as in run_gpt3.sh."""
_SEED = 18384
"""The seed of the recipe (start.sh, SEED_BASE), so that runs can be compared."""


class RequestError(ValueError):
    """A request does not fit the cluster or the benchmark. The message says what is allowed and what to do."""


def check_folder(given: str, benchmark: str) -> str:
    """Return the data folder, by default the mount point of the guide. Raises RequestError."""
    folder = given or catalog.STORAGE[benchmark].path
    if not _FOLDER.fullmatch(folder) or {"..", "."} & set(folder.split("/")):
        raise RequestError(
            f"--data {folder!r}: allowed is an absolute path of letters, digits, dots, dashes and underscores, which "
            "containers can mount, e.g. /lustre/mlperf"
        )
    return folder


def check_image(given: str) -> str:
    """Return a container image, a file or one of a registry. Raises RequestError."""
    if not _IMAGE.fullmatch(given):
        raise RequestError(f"--image {given!r}: allowed is a file (*.sqsh), or REGISTRY#NAME:TAG as enroot takes it")
    return given


def check_source(option: str, given: str) -> str:
    """Return the source of data. Raises RequestError if it is neither an rclone remote nor s3://."""
    if not _SOURCE.fullmatch(given) or given.startswith("-") or ":" not in given:
        raise RequestError(
            f"{option} {given!r}: allowed is an rclone remote and a path, REMOTE:PATH, or s3://BUCKET/PATH"
        )
    if _KEY.search(given):
        raise RequestError(
            f"{option} has a key in it: keep keys in ~/.config/rclone/rclone.conf or ~/.aws on the cluster"
        )
    return given


def check_endpoint(given: str) -> str:
    """Return the URL of an object storage; empty if none is given. Raises RequestError."""
    if given and not _ENDPOINT.fullmatch(given):
        raise RequestError(
            "--endpoint: allowed is the URL of an object storage without a user and a key, https://HOST[:PORT]"
        )
    return given


def gpu_partition(config: ClusterConfig, name: str, nodes: int) -> PartitionFacts:
    """Return the partition for a run: `name`, or the first one that is large enough. Raises RequestError."""
    rows = partition_facts(config)
    _check_name(rows, name)
    fitting = [row for row in rows if row.gpu and row.gpu.count == GPUS and name in ("", row.name)]
    if not fitting:
        listed = listing(f"{row.name} ({row.gpu.count if row.gpu else 0} GPUs a node)" for row in rows)
        raise RequestError(
            f"{name or config.name} has no nodes with {GPUS} GPUs, which the benchmark needs. There: {listed}"
        )
    for row in fitting:
        if len(row.nodes) >= nodes:
            return row
    most = max(len(row.nodes) for row in fitting)
    raise RequestError(
        f"--nodes {nodes}: allowed is at most {most}, the nodes with {GPUS} GPUs. Raise the nodeset's count"
    )


def any_partition(config: ClusterConfig, name: str) -> PartitionFacts:
    """Return the partition for preparing: `name`, else the first one without GPUs, else the default one. Raises
    RequestError."""
    rows = [row for row in partition_facts(config) if row.nodes]
    _check_name(rows, name)
    chosen = [row for row in rows if row.name == name] if name else [row for row in rows if not row.gpu] or rows
    if not chosen:
        raise RequestError(f"{config.name} has no partition with nodes")
    return chosen[0]


def _check_name(rows: Sequence[PartitionFacts], name: str) -> None:
    """Raise RequestError if there is no partition of that name."""
    names = list(dict.fromkeys(row.name for row in rows))
    if name and name not in names:
        todo = suggest(name, names, "leave --partition out")
        raise RequestError(f"there is no partition {name!r}. There are: {', '.join(names)}. To do: {todo}")


def diffusion_config(given: str, nodes: int) -> DiffusionConfig:
    """Return the configuration of a run of Stable Diffusion: by name, else by the number of nodes, else the one for two
    nodes, as in the recipe. Raises RequestError."""
    by_name = {config.name: config for config in catalog.DIFFUSION_CONFIGS}
    if given and given not in by_name:
        todo = suggest(given, by_name, "leave --config out")
        raise RequestError(f"there is no configuration {given!r}. There are: {', '.join(by_name)}. To do: {todo}")
    fitting = [config for config in catalog.DIFFUSION_CONFIGS if config.nodes == nodes and config.batch == 8]
    return by_name[given] if given else fitting[0] if fitting else by_name["02x08x08"]


def gpt3_setting(
    row: PartitionFacts,
    nodes: int,
    *,
    tensor: int | None = None,
    pipeline: int | None = None,
    batch: int | None = None,
    micro: int | None = None,
) -> Gpt3Setting:
    """Return the sizes of a run of GPT-3, where they are not given the catalog's. Raises RequestError if they do not
    fit each other, or the GPUs."""
    # Slurm's type may be the whole name of nvidia-smi: nvidia_h100_80gb_hbm3.
    kind = next((name for name in catalog.GPU_GB if row.gpu and name in row.gpu.type.lower()), "")
    other = Gpt3Setting(gpu=kind, nodes=nodes, batch=catalog.GPT3_SETTINGS[0].batch)
    base = next((row for row in catalog.GPT3_SETTINGS if (row.gpu, row.nodes) == (kind, nodes)), other)
    setting = replace(
        base,
        batch=batch or base.batch,
        tensor=tensor or base.tensor,
        pipeline=pipeline or base.pipeline,
        micro=micro or base.micro,
    )
    if problems := "\n".join(_misfits(setting, nodes * GPUS)):
        raise RequestError(problems)
    return setting


def _misfits(row: Gpt3Setting, gpus: int) -> Iterator[str]:
    """Yield a message for each size that does not fit."""
    parts = row.tensor * row.pipeline
    if catalog.HEADS % row.tensor or row.tensor > GPUS:
        yield f"--tensor {row.tensor}: allowed is a divisor of {catalog.HEADS} up to {GPUS}, the GPUs of a node"
    if catalog.LAYERS % row.pipeline:
        yield f"--pipeline {row.pipeline}: allowed is a divisor of {catalog.LAYERS}, the layers"
    if gpus % parts:
        yield (
            f"--nodes {row.nodes}: allowed is a multiple of {-(-parts // GPUS)}, so that {GPUS} GPUs each make groups "
            f"of {parts} (tensor {row.tensor} x pipeline {row.pipeline})"
        )
    elif row.batch % (each := gpus // parts * row.micro):
        groups = f"{gpus // parts} groups of GPUs x {row.micro} samples"
        yield f"--batch {row.batch}: allowed is a multiple of {each} ({groups})"
    need, have = catalog.PARAMETERS * catalog.PARAMETER_BYTES / parts / 1e9, catalog.GPU_GB.get(row.gpu)
    if have and need > 0.9 * have:
        yield (
            f"--tensor {row.tensor} --pipeline {row.pipeline}: each GPU would need {need:.0f} GB for its parameters, "
            f"and has {have} GB. Allowed is a division into more parts: with 8 and 8 it needs "
            f"{catalog.PARAMETERS * catalog.PARAMETER_BYTES / 64e9:.0f} GB"
        )


@dataclass(frozen=True, kw_only=True)
class DataFolder:
    """The state of a data folder on the cluster."""

    folder: bool
    """True if it exists."""
    writable: bool
    mount: str
    """The mount point of its file system."""
    size: int
    """The size of that file system, in bytes."""
    missing: tuple[str, ...]
    """Required files that are missing."""


def inspect_command(data: str, files: Iterable[str]) -> str:
    """Return a shell command that inspects the data folder. Paths in `files` are below `data`, or absolute."""
    paths = " ".join(shlex.quote(file) for file in files)
    return (
        f'd={shlex.quote(data)}; [ -d "$d" ] || {{ echo none; exit 0; }}; echo folder; [ ! -w "$d" ] || echo writable; '
        'df -B1 --output=size,target -- "$d" | tail -n 1 | sed "s/^/df /"; '
        f'for f in {paths}; do case $f in /*) p=$f ;; *) p=$d/$f ;; esac; [ -e "$p" ] || echo "missing $f"; done'
    )


def parse_data_folder(text: str) -> DataFolder:
    """Parse the output of `inspect_command`."""
    rows = [(word, rest) for word, _, rest in (row.partition(" ") for row in text.splitlines())]
    found = dict(rows)
    size, _, mount = found.get("df", "").strip().partition(" ")
    return DataFolder(
        folder="folder" in found,
        writable="writable" in found,
        mount=mount.strip(),
        size=int(size) if size.isdigit() else 0,
        missing=tuple(rest for word, rest in rows if word == "missing"),
    )


def data_findings(benchmark: str, stack: str, user: str, data: str, folder: DataFolder) -> Iterator[Finding]:
    """Yield findings about the data folder."""
    at, storage = f"--data {data}", catalog.STORAGE[benchmark]
    if not folder.folder:
        given = "no such folder on the cluster"
        allowed = f"a folder on shared storage of {storage.size_gib} GiB; the guide mounts it at {storage.path}"
        todo = f"create it: ./hpc run {stack} --as root -- install -d -o {user} {data}"
        yield Finding(id="mlperf-data-missing", at=at, given=given, allowed=allowed, todo=todo)
        return
    if not folder.writable:
        given, allowed = f"a folder that {user} can't write to", "one that the user of the jobs can write to"
        todo = f"give it to them: ./hpc run {stack} --as root -- chown {user} {data}"
        yield Finding(id="mlperf-data-owner", at=at, given=given, allowed=allowed, todo=todo)
    if folder.mount == "/":
        what = "the folder is on the file system of /, and not on one that was mounted for it"
        todo = f"mount storage of {storage.size_gib} GiB there, or name a folder on it with --data"
        yield Finding(id="mlperf-data-root", level=Level.WARNING, at=at, what=what, todo=todo)
    if folder.size < _ROOM * storage.size_gib * _GIB:
        what = f"its file system has {folder.size / _GIB:.0f} GiB, and the guide plans {storage.size_gib} GiB"
        todo = "choose a larger one, if the data does not fit"
        yield Finding(id="mlperf-storage-size", level=Level.WARNING, at=at, what=what, todo=todo)


def not_prepared(stack: str, name: str, data: str, missing: Sequence[str]) -> Finding:
    """Return the finding about missing files of a run. `name` is the benchmark's name in commands."""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    given, allowed = f"without {missing[0]}{more}", "a folder with code, data, checkpoint and image"
    todo = f"prepare it: ./hpc mlperf prepare {stack} {name} --data {data}"
    return Finding(id="mlperf-not-prepared", at=f"--data {data}", given=given, allowed=allowed, todo=todo)


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The files of a benchmark to prepare, and their sources."""

    benchmark: str
    data: str
    partition: PartitionFacts
    """The partition for the jobs: each is one task on one node."""
    source: str = ""
    """The data's source: REMOTE:PATH, s3://BUCKET/PATH, or `mlcommons`; empty: the recipe's bucket."""
    endpoint: str = ""
    """URL of the object storage, for s3://."""
    checkpoint: str = ""
    """Source of GPT-3's checkpoint, or its folder."""
    image: str = ""
    """Container image to import as a file; empty: the recipe's, for GPT-3 none."""


def _sums(files: Mapping[str, str]) -> str:
    """Return SHA-256 and name of each file, as `sha256sum --check` reads them."""
    return "\n".join(f"{sha256}  {name}" for name, sha256 in files.items())


def prepare_scripts(wanted: Preparation) -> tuple[JobScript, ...]:
    """Return the jobs. The first one creates the folders for the others. Raises RequestError."""
    kind = _SHORT[wanted.benchmark]
    of = "stable-diffusion" if kind == "sd" else kind
    values = {
        "REPOSITORY": catalog.REPOSITORY,
        "COMMIT": catalog.COMMIT,
        **(
            {}
            if kind == "sd"
            else {"VOCABULARY": catalog.VOCABULARY, "VOCABULARY_SHA256": _sums(catalog.VOCABULARY_SHA256)}
        ),
    }
    title = f"Folders and code of {of}."
    found = [_script(wanted, f"{kind}-code", title, values, "code.sh", f"{of}-code.sh", limit=60)]
    if wanted.source == catalog.PUBLISHED:
        if wanted.benchmark == GPT3:
            raise RequestError(
                f"--source {catalog.PUBLISHED} is for Stable Diffusion: GPT-3's code has no download scripts"
            )
        title = "Datasets and checkpoints of Stable Diffusion by its own download scripts."
        found.append(_script(wanted, f"{kind}-published", title, {"COMMIT": catalog.COMMIT}, "published.sh"))
    else:
        found += [_copy(wanted, name, place, target) for name, place, target in _places(wanted)]
    if wanted.benchmark == GPT3 and not wanted.checkpoint.startswith("/"):
        if not wanted.checkpoint:
            raise RequestError(_NO_CHECKPOINT)
        found.append(_copy(wanted, "gpt3-checkpoint", check_source("--checkpoint", wanted.checkpoint), "checkpoint"))
    if name := image_file(wanted.image or ("" if wanted.benchmark == GPT3 else catalog.IMAGE)):
        values = {"IMAGE": wanted.image or catalog.IMAGE, "FILE": name}
        title = f"The container image of {of} as one file."
        # The body that imports an image is that of the NCCL test.
        bodies = ("../nccl/import-pyxis.sh", "image.sh")
        found.append(_script(wanted, f"{kind}-image", title, values, *bodies, limit=240))
    return tuple(found)


def image_file(image: str) -> str:
    """Return the name of the file that an image of a registry is imported to; empty for a file or without an image."""
    if not image or image.startswith("/"):
        return ""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", image.rpartition("#")[2]) + ".sqsh"


def _places(wanted: Preparation) -> list[tuple[str, str, str]]:
    """Return name, source and target folder of each copy."""
    if wanted.source:
        # The source has all folders, as the recipe's first bucket; of GPT-3 only the dataset, as its archive.
        target = "dataset" if wanted.benchmark == GPT3 else "."
        return [(f"{_SHORT[wanted.benchmark]}-data", check_source("--source", wanted.source), target)]
    return [
        (name.rpartition("-")[0], f"{catalog.BUCKET}/{name}", to)
        for name, to in catalog.FOLDERS[wanted.benchmark].items()
    ]


def _copy(wanted: Preparation, name: str, place: str, target: str) -> JobScript:
    endpoint = catalog.ENDPOINT if place.startswith(f"{catalog.BUCKET}/") else wanted.endpoint
    values = {"NAME": name, "SOURCE": place, "TARGET": target, "ENDPOINT": endpoint}
    return _script(wanted, name, f"Copies data to {wanted.data}/{target}; goes on where it was.", values, "copy.sh")


def _script(
    wanted: Preparation,
    name: str,
    title: str,
    values: Mapping[str, str],
    *bodies: str,
    limit: int = catalog.DOWNLOAD_MINUTES,
) -> JobScript:
    options: dict[str, Option] = {
        "job-name": f"mlperf-{name}",
        "comment": wanted.data,
        "partition": wanted.partition.name,
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": min(8, wanted.partition.cpus),
        "time": wanted.partition.time_limit(limit),
        "output": f"{wanted.data}/.hpc/mlperf-{name}-%j.out",
        # The job survives a failure of its node, and no second one writes the same files.
        "requeue": True,
        "open-mode": "append",
        "dependency": "singleton",
    }
    body = _body({"DATA": wanted.data, **values}, "begin.sh", *bodies)
    return JobScript(name=f"mlperf-{name}.sh", title=title, options=options, body=body)


def _body(values: Mapping[str, str | int], *bodies: str) -> str:
    """Return assignments for bash, and the bodies after them."""
    assigned = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())
    return assigned + "".join(f"\n{read_body(f'mlperf/{body}')}" for body in bodies)


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training job to run."""

    data: str
    partition: PartitionFacts
    nodes: int
    image: str
    """A file, or an image of a registry in pyxis' format."""
    minutes: int | None = None
    """Time limit; None: the recipe's."""


def diffusion_script(wanted: Training, config: DiffusionConfig) -> JobScript:
    """Return the job that trains Stable Diffusion."""
    values: dict[str, str | int] = {
        "DATA": wanted.data,
        "ENVIRONMENT": ENV,
        "IMAGE": wanted.image,
        "CONFIG": f"train_{config.name}.yaml",
        "GPUS": GPUS,
    }
    cpus = max(1, min(catalog.TASK_CPUS, wanted.partition.cpus // GPUS))
    memory = min(catalog.TASK_CPU_GIB * 1024, wanted.partition.memory_mib // (GPUS * cpus))
    options: dict[str, Option] = {"cpus-per-task": cpus, "mem-per-cpu": f"{memory}M"}
    title = f"Trains MLPerf's Stable Diffusion on {wanted.nodes} nodes."
    name = f"train_{config.name}"
    limit = wanted.partition.time_limit(wanted.minutes or catalog.MINUTES[STABLE_DIFFUSION])
    body = _body(values, "pyxis.sh", "stable-diffusion.sh")
    return JobScript(name=f"mlperf-{name}.sh", title=title, options=_options(wanted, name, limit) | options, body=body)


def gpt3_script(wanted: Training, setting: Gpt3Setting, checkpoint: str) -> JobScript:
    """Return the job that trains GPT-3 from a checkpoint's folder."""
    limit = wanted.partition.time_limit(wanted.minutes or catalog.MINUTES[GPT3])
    if limit <= _SAVE_MINUTES:
        raise RequestError(
            f"--minutes {limit}: allowed is more than {_SAVE_MINUTES}, which GPT-3 keeps for its checkpoint"
        )
    values: dict[str, str | int] = {
        "DATA": wanted.data,
        "ENVIRONMENT": ENV,
        "IMAGE": wanted.image,
        "CHECKPOINT": checkpoint,
        "TENSOR": setting.tensor,
        "PIPELINE": setting.pipeline,
        "MICRO": setting.micro,
        "BATCH": setting.batch,
        "EXTERNAL_STEPS": catalog.EXTERNAL_STEPS,
        "EXTERNAL_BATCH": catalog.EXTERNAL_BATCH,
        "SEED": _SEED,
        "EXIT_MINUTES": limit - _SAVE_MINUTES,
    }
    title = f"Trains MLPerf's GPT-3 on {wanted.nodes} nodes."
    name = f"gpt3_{wanted.nodes:02d}x{GPUS:02d}_tp{setting.tensor}_pp{setting.pipeline}_gbs{setting.batch}"
    options = _options(wanted, name, limit) | {
        "exclusive": True,
        "mem": 0,
        "cpus-per-task": max(1, wanted.partition.cpus // GPUS),
    }
    body = _body(values, "pyxis.sh", "gpt3.sh")
    return JobScript(name=f"mlperf-{name}.sh", title=title, options=options, body=body)


def _options(wanted: Training, name: str, limit: int) -> dict[str, Option]:
    return {
        "job-name": f"mlperf-{name}",
        "partition": wanted.partition.name,
        "nodes": wanted.nodes,
        "ntasks-per-node": GPUS,
        "gpus-per-node": GPUS,
        "time": limit,
        "output": f"{wanted.data}/logs/%j_{name}.out",
        # A requeued run would write to the log of the first one, and neither could be measured.
        "no-requeue": True,
    }
