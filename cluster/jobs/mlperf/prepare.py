"""The jobs that prepare a benchmark: folders and code, data, the container image. Each can be run again at any time."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.catalog.mlperf import (
    BUCKET,
    COMMIT,
    DOWNLOAD_MINUTES,
    ENDPOINT,
    FOLDERS,
    GPT3,
    IMAGE,
    PUBLISHED,
    REPOSITORY,
)
from cluster.config.validators.settings import minutes
from cluster.jobs.mlperf.request import CantRun, source
from cluster.jobs.partition_facts import PartitionFacts
from cluster.jobs.script import JobScript, Option
from cluster.jobs.script import source as body_of

VOCABULARY = "https://huggingface.co/gpt2/resolve/main"
"""vocab.json and merges.txt (source: README.md of GPT-3 in github.com/mlcommons/training)."""
_SHORT = {"gpt3": "gpt3", "stable_diffusion": "sd"}
_NO_CHECKPOINT = """\
GPT-3 continues from a checkpoint that the recipe does not provide. Name it with --checkpoint:
  REMOTE:PATH      an rclone remote that you configured on the cluster (rclone config), and the folder or *.tar in it
  s3://BUCKET/PATH the same for the AWS CLI
  /FOLDER          a folder of the cluster that has it already: the one with metadata.json
MLCommons publishes it in BF16 as gpt3/megatron-lm/checkpoint_nemo_bf16.tar; how to get at it is in the section "S3
artifacts download" of large_language_model/megatron-lm/README.md in github.com/mlcommons/training."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What to prepare, and where from."""

    benchmark: str
    data: str
    partition: PartitionFacts
    """Where the jobs run: each is one task on one node."""
    source: str = ""
    """Of the data: REMOTE:PATH, s3://BUCKET/PATH, or `mlcommons`; empty: the recipe's bucket."""
    endpoint: str = ""
    """URL of the object storage, for s3://."""
    checkpoint: str = ""
    """Of GPT-3: where it is copied from, or a folder."""
    image: str = ""
    """Imported as a file; empty: the recipe's, for GPT-3 none."""


def scripts(wish: Preparation) -> tuple[JobScript, ...]:
    """The jobs. Those named after the first need what it makes. Raises CantRun."""
    kind = _SHORT[wish.benchmark]
    of = "stable-diffusion" if kind == "sd" else kind
    found = [
        _script(
            wish, f"{kind}-code", f"Folders and code of {of}.",
            {"REPOSITORY": REPOSITORY, "COMMIT": COMMIT, **({} if kind == "sd" else {"VOCABULARY": VOCABULARY})},
            "code.sh", f"{of}-code.sh", limit=60,
        )
    ]  # fmt: skip
    if wish.source == PUBLISHED:
        if wish.benchmark == GPT3:
            raise CantRun(f"--source {PUBLISHED} is for Stable Diffusion: GPT-3's code has no download scripts")
        title = "Datasets and checkpoints of Stable Diffusion by its own download scripts."
        found.append(_script(wish, f"{kind}-published", title, {"COMMIT": COMMIT}, "published.sh"))
    else:
        found += [_copy(wish, name, place, target) for name, place, target in _places(wish)]
    if wish.benchmark == GPT3 and not wish.checkpoint.startswith("/"):
        if not wish.checkpoint:
            raise CantRun(_NO_CHECKPOINT)
        found.append(_copy(wish, "gpt3-checkpoint", source("--checkpoint", wish.checkpoint), "checkpoint"))
    if name := image_file(wish.image or ("" if wish.benchmark == GPT3 else IMAGE)):
        values, title = {"IMAGE": wish.image or IMAGE, "FILE": name}, f"The container image of {of} as one file."
        # The NCCL test imports its image in the same way.
        bodies = ("../nccl/import-pyxis.sh", "image.sh")
        found.append(_script(wish, f"{kind}-image", title, values, *bodies, limit=240))
    return tuple(found)


def image_file(image: str) -> str:
    """Name of the file that an image of a registry is imported to; empty for one that is a file, or none."""
    if not image or image.startswith("/"):
        return ""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", image.rpartition("#")[2]) + ".sqsh"


def _places(wish: Preparation) -> list[tuple[str, str, str]]:
    """Name, source and folder below the data folder of each copy."""
    if wish.source:
        kind = _SHORT[wish.benchmark]
        # One place with all folders, as the recipe's first bucket; of GPT-3 the dataset, as the archive has it.
        return [(f"{kind}-data", source("--source", wish.source), "dataset" if wish.benchmark == GPT3 else ".")]
    return [(name.rpartition("-")[0], f"{BUCKET}/{name}", to) for name, to in FOLDERS[wish.benchmark].items()]


def _copy(wish: Preparation, name: str, place: str, target: str) -> JobScript:
    endpoint = ENDPOINT if place.startswith(f"{BUCKET}/") else wish.endpoint
    values = {"NAME": name, "SOURCE": place, "TARGET": target, "ENDPOINT": endpoint}
    return _script(wish, name, f"Copies data to {wish.data}/{target}; goes on where it was.", values, "copy.sh")


def _script(
    wish: Preparation, name: str, title: str, values: Mapping[str, str], *bodies: str, limit: int = DOWNLOAD_MINUTES
) -> JobScript:
    options: dict[str, Option] = {
        "job-name": f"mlperf-{name}",
        "comment": wish.data,
        "partition": wish.partition.name,
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": min(8, wish.partition.cpus),
        "time": time_limit(wish.partition, limit),
        "output": f"{wish.data}/.hpc/mlperf-{name}-%j.out",
        # A node that fails does not end it; and two jobs do not write the same files.
        "requeue": True,
        "open-mode": "append",
        "dependency": "singleton",
    }
    body = variables({"DATA": wish.data, **values}) + "".join(
        f"\n{body_of(f'mlperf/{one}')}" for one in ("begin.sh", *bodies)
    )
    return JobScript(name=f"mlperf-{name}.sh", title=title, options=options, body=body)


def variables(values: Mapping[str, str | int]) -> str:
    """Assignments for bash."""
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())


def time_limit(partition: PartitionFacts, wanted: int) -> int:
    """Minutes that a job may ask for in a partition."""
    return max(1, int(min(wanted, minutes(partition.max_time))))
