"""The job that trains: one of Stable Diffusion, one of GPT-3."""

from dataclasses import dataclass

from cluster.catalog.mlperf import (
    EXTERNAL_BATCH,
    EXTERNAL_STEPS,
    GPT3,
    GPUS,
    MINUTES,
    STABLE_DIFFUSION,
    TASK_CPU_GIB,
    TASK_CPUS,
    DiffusionConfig,
    Gpt3Setting,
)
from cluster.jobs.mlperf.prepare import time_limit, variables
from cluster.jobs.mlperf.request import CantRun
from cluster.jobs.partition_facts import PartitionFacts
from cluster.jobs.place import ENV
from cluster.jobs.script import JobScript, Option, source

_SAVE_MINUTES = 15
"""Of its run time GPT-3 leaves so much for the last checkpoint, as run_gpt3.sh does."""
_SEED = 18384
"""The recipe's (start.sh, SEED_BASE): runs can be compared."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What to train, and on what."""

    data: str
    partition: PartitionFacts
    nodes: int
    image: str
    """A file, or an image of a registry as pyxis takes it."""
    minutes: int | None = None
    """Run time; None: the recipe's."""


def diffusion(wish: Training, config: DiffusionConfig) -> JobScript:
    """The job that trains Stable Diffusion."""
    values: dict[str, str | int] = {
        "DATA": wish.data,
        "ENVIRONMENT": ENV,
        "IMAGE": wish.image,
        "CONFIG": f"train_{config.name}.yaml",
        "GPUS": GPUS,
    }
    cpus = max(1, min(TASK_CPUS, wish.partition.cpus // GPUS))
    memory = min(TASK_CPU_GIB * 1024, wish.partition.memory_mib // (GPUS * cpus))
    options: dict[str, Option] = {"cpus-per-task": cpus, "mem-per-cpu": f"{memory}M"}
    title = f"Trains MLPerf's Stable Diffusion on {wish.nodes} nodes."
    name = f"train_{config.name}"
    limit = time_limit(wish.partition, wish.minutes or MINUTES[STABLE_DIFFUSION])
    body = _body(values, "stable-diffusion.sh")
    return JobScript(name=f"mlperf-{name}.sh", title=title, options=_options(wish, name, limit) | options, body=body)


def gpt3(wish: Training, setting: Gpt3Setting, checkpoint: str) -> JobScript:
    """The job that trains GPT-3. `checkpoint`: its folder."""
    limit = time_limit(wish.partition, wish.minutes or MINUTES[GPT3])
    if limit <= _SAVE_MINUTES:
        raise CantRun(f"--minutes {limit}: allowed is more than {_SAVE_MINUTES}, which GPT-3 keeps for its checkpoint")
    values: dict[str, str | int] = {
        "DATA": wish.data, "ENVIRONMENT": ENV, "IMAGE": wish.image, "CHECKPOINT": checkpoint,
        "TENSOR": setting.tensor, "PIPELINE": setting.pipeline, "MICRO": setting.micro, "BATCH": setting.batch,
        "EXTERNAL_STEPS": EXTERNAL_STEPS, "EXTERNAL_BATCH": EXTERNAL_BATCH, "SEED": _SEED,
        "EXIT_MINUTES": limit - _SAVE_MINUTES,
    }  # fmt: skip
    title = f"Trains MLPerf's GPT-3 on {wish.nodes} nodes."
    name = f"gpt3_{wish.nodes:02d}x{GPUS:02d}_tp{setting.tensor}_pp{setting.pipeline}_gbs{setting.batch}"
    options = _options(wish, name, limit) | {
        "exclusive": True,
        "mem": 0,
        "cpus-per-task": max(1, wish.partition.cpus // GPUS),
    }
    return JobScript(name=f"mlperf-{name}.sh", title=title, options=options, body=_body(values, "gpt3.sh"))


def _options(wish: Training, name: str, limit: int) -> dict[str, Option]:
    return {
        "job-name": f"mlperf-{name}",
        "partition": wish.partition.name,
        "nodes": wish.nodes,
        "ntasks-per-node": GPUS,
        "gpus-per-node": GPUS,
        "time": limit,
        "output": f"{wish.data}/logs/%j_{name}.out",
        # A run that starts again would write its log twice, and measure neither.
        "no-requeue": True,
    }


def _body(values: dict[str, str | int], path: str) -> str:
    return variables(values) + "".join(f"\n{source(f'mlperf/{one}')}" for one in ("pyxis.sh", path))
