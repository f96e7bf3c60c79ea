"""What somebody asks of a benchmark, checked against the cluster's partitions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.catalog.mlperf import (
    DIFFUSION_CONFIGS,
    GPT3_SETTINGS,
    GPU_GB,
    GPUS,
    HEADS,
    LAYERS,
    PARAMETER_BYTES,
    PARAMETERS,
    STORAGE,
    DiffusionConfig,
    Gpt3Setting,
)
from cluster.config.cluster import ClusterConfig
from cluster.findings import listing, suggest
from cluster.jobs.partition_facts import PartitionFacts, partition_facts

_FOLDER = re.compile(r"(/[A-Za-z0-9._-]+)+")
_IMAGE = re.compile(r"[A-Za-z0-9._:/#@+-]+")
_SOURCE = re.compile(r"[ -~]{1,1000}")
_KEY = re.compile(
    r"secret|access_key|password|((^|[,_])(pass|token|key|key_pem|sas_url|account_key|client_id)=)", re.IGNORECASE
)
"""What rclone's options for keys are called, of all kinds of storage (rclone.org/overview, `rclone help backends`)."""
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._/-]*)?")


class CantRun(ValueError):  # noqa: N818 - reads as what it says
    """A request that the cluster, or the benchmark, can't satisfy: what was given, what is allowed, what to do."""


def folder(given: str, benchmark: str) -> str:
    """The data folder; without one, where the guide mounts it. Raises CantRun."""
    found = given or STORAGE[benchmark].path
    if not _FOLDER.fullmatch(found) or {"..", "."} & set(found.split("/")):
        raise CantRun(
            f"--data {found!r}: allowed is an absolute path of letters, digits, dots, dashes and underscores, which "
            "containers can mount, e.g. /lustre/mlperf"
        )
    return found


def image(given: str) -> str:
    """A container image: a file, or one of a registry. Raises CantRun."""
    if not _IMAGE.fullmatch(given):
        raise CantRun(f"--image {given!r}: allowed is a file (*.sqsh), or REGISTRY#NAME:TAG as enroot takes it")
    return given


def source(option: str, given: str) -> str:
    """Where data is copied from. Raises CantRun: neither an rclone remote nor s3://."""
    if not _SOURCE.fullmatch(given) or given.startswith("-") or ":" not in given:
        raise CantRun(f"{option} {given!r}: allowed is an rclone remote and a path, REMOTE:PATH, or s3://BUCKET/PATH")
    if _KEY.search(given):
        raise CantRun(f"{option} has a key in it: keep keys in ~/.config/rclone/rclone.conf or ~/.aws on the cluster")
    return given


def endpoint(given: str) -> str:
    """The URL of an object storage; empty without one. Raises CantRun."""
    if given and not _ENDPOINT.fullmatch(given):
        raise CantRun(
            "--endpoint: allowed is the URL of an object storage without a user and a key, https://HOST[:PORT]"
        )
    return given


def gpu_partition(config: ClusterConfig, name: str, nodes: int) -> PartitionFacts:
    """The partition for a run: `name`, or the first one that is large enough. Raises CantRun: none is."""
    rows = partition_facts(config)
    _known(rows, name)
    fitting = [row for row in rows if row.gpu and row.gpu.count == GPUS and name in ("", row.name)]
    if not fitting:
        there = listing(f"{row.name} ({row.gpu.count if row.gpu else 0} GPUs a node)" for row in rows)
        raise CantRun(f"{name or config.name} has no nodes with {GPUS} GPUs, which the benchmark needs. There: {there}")
    for row in fitting:
        if len(row.nodes) >= nodes:
            return row
    most = max(len(row.nodes) for row in fitting)
    raise CantRun(f"--nodes {nodes}: allowed is at most {most}, the nodes with {GPUS} GPUs. Raise the nodeset's count")


def any_partition(config: ClusterConfig, name: str) -> PartitionFacts:
    """The partition for preparing: `name`, or the first one without GPUs, or the default one. Raises CantRun."""
    rows = [row for row in partition_facts(config) if row.nodes]
    _known(rows, name)
    chosen = [row for row in rows if row.name == name] if name else [row for row in rows if not row.gpu] or rows
    if not chosen:
        raise CantRun(f"{config.name} has no partition with nodes")
    return chosen[0]


def _known(rows: Sequence[PartitionFacts], name: str) -> None:
    names = list(dict.fromkeys(row.name for row in rows))
    if name and name not in names:
        todo = suggest(name, names, "leave --partition out")
        raise CantRun(f"there is no partition {name!r}. There are: {', '.join(names)}. To do: {todo}")


def diffusion_config(given: str, nodes: int) -> DiffusionConfig:
    """The configuration of a run of Stable Diffusion. Without a name, that of the number of nodes; another number is
    given to the one of two nodes, as the recipe does. Raises CantRun."""
    by_name = {one.name: one for one in DIFFUSION_CONFIGS}
    if given and given not in by_name:
        todo = suggest(given, by_name, "leave --config out")
        raise CantRun(f"there is no configuration {given!r}. There are: {', '.join(by_name)}. To do: {todo}")
    fitting = [one for one in DIFFUSION_CONFIGS if one.nodes == nodes and one.batch == 8]
    return by_name[given] if given else fitting[0] if fitting else by_name["02x08x08"]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a run of GPT-3 that somebody chose; None: as the catalog has them."""

    tensor: int | None = None
    pipeline: int | None = None
    batch: int | None = None
    micro: int | None = None


def gpt3_setting(row: PartitionFacts, nodes: int, sizes: Sizes) -> Gpt3Setting:
    """The sizes of a run of GPT-3. Raises CantRun: they do not fit each other, or the GPUs."""
    # Slurm's type may be all that nvidia-smi prints: nvidia_h100_80gb_hbm3.
    kind = next((one for one in GPU_GB if row.gpu and one in row.gpu.type.lower()), "")
    usual = [one for one in GPT3_SETTINGS if one.gpu == kind and one.nodes == nodes]
    base = usual[0] if usual else Gpt3Setting(gpu=kind, nodes=nodes, batch=GPT3_SETTINGS[0].batch)
    found = Gpt3Setting(
        gpu=kind,
        nodes=nodes,
        batch=sizes.batch or base.batch,
        tensor=sizes.tensor or base.tensor,
        pipeline=sizes.pipeline or base.pipeline,
        micro=sizes.micro or base.micro,
    )
    if wrong := [*_misfits(found, nodes * GPUS)]:
        raise CantRun("\n".join(wrong))
    return found


def _misfits(one: Gpt3Setting, gpus: int) -> list[str]:
    found: list[str] = []
    parts = one.tensor * one.pipeline
    if HEADS % one.tensor or one.tensor > GPUS:
        found.append(f"--tensor {one.tensor}: allowed is a divisor of {HEADS} up to {GPUS}, the GPUs of a node")
    if LAYERS % one.pipeline:
        found.append(f"--pipeline {one.pipeline}: allowed is a divisor of {LAYERS}, the layers")
    if gpus % parts:
        found.append(
            f"--nodes {one.nodes}: allowed is a multiple of {-(-parts // GPUS)}, so that {GPUS} GPUs each make groups "
            f"of {parts} (tensor {one.tensor} x pipeline {one.pipeline})"
        )
    elif one.batch % (each := gpus // parts * one.micro):
        groups = f"{gpus // parts} groups of GPUs x {one.micro} samples"
        found.append(f"--batch {one.batch}: allowed is a multiple of {each} ({groups})")
    need, have = PARAMETERS * PARAMETER_BYTES / parts / 1e9, GPU_GB.get(one.gpu)
    if have and need > 0.9 * have:
        found.append(
            f"--tensor {one.tensor} --pipeline {one.pipeline}: each GPU would need {need:.0f} GB for its parameters, "
            f"and has {have} GB. Allowed is a division into more parts: with 8 and 8 it needs "
            f"{PARAMETERS * PARAMETER_BYTES / 64e9:.0f} GB"
        )
    return found
