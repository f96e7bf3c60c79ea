"""MLPerf training benchmarks: what they run on, what they need, and published times to compare with."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_RECIPE = "github.com/nebius/nebius-solutions-library soperator/test"
_TRAINING = "github.com/mlcommons/training at the pinned commit"

REPOSITORY = "https://github.com/mlcommons/training"
COMMIT = "00f04c57d589721aabce4618922780d29f73cf4e"
"""The commit of REPOSITORY that both recipes use (source: _RECIPE at soperator-v1.15.4-1, */init.sh)."""

STABLE_DIFFUSION, GPT3 = "stable_diffusion", "gpt3"
"""Source: as of TITLES."""
TITLES: Mapping[str, str] = MappingProxyType({STABLE_DIFFUSION: "Stable Diffusion", GPT3: "GPT-3"})
"""Benchmarks by the value of `submission_benchmark` in their logs (source: github.com/mlcommons/logging at 7bbf792,
mlperf_logging/mllog/constants.py)."""


@dataclass(frozen=True)
class QualityTarget:
    """A quality that an evaluation must measure before a model counts as trained."""

    metric: str
    limit: float
    at_most: bool = True
    """False if the measured value must be at least the limit."""

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{self.metric} {'<=' if self.at_most else '>='} {self.limit:g}"


QUALITY: Mapping[str, tuple[QualityTarget, ...]] = MappingProxyType(
    {
        STABLE_DIFFUSION: (QualityTarget("FID", 90), QualityTarget("CLIP", 0.15, at_most=False)),
        GPT3: (QualityTarget("log perplexity", 2.69),),
    }
)
"""Quality that a run must reach, by benchmark (source: github.com/mlcommons/training_policies at d73e20f,
training_rules.adoc, retired benchmarks: Stable Diffusion of v5.0, GPT3 of v4.1)."""

LOG_STEPS = 100
"""Training steps between two lines of a log of Stable Diffusion that targets are for (source: _RECIPE, parselog)."""


@dataclass(frozen=True, kw_only=True)
class TrainingTarget:
    """The time that a set-up of Stable Diffusion should not exceed."""

    setup: str
    """Number of machines, and their GPU: `2xH100`. Each machine has `gpus` of them."""
    nodes: int
    gpus: int = 8
    batch: int = 8
    """Samples of one step on each GPU."""
    seconds: float
    """Seconds for LOG_STEPS training steps, on average over a run."""
    source: str = f"{_RECIPE}/mlperf-sd, parselog at soperator-v1.15.4-1"


TARGETS: tuple[TrainingTarget, ...] = (
    TrainingTarget(setup="1xH100", nodes=1, seconds=18.16),
    TrainingTarget(setup="2xH100", nodes=2, seconds=21.38),
    TrainingTarget(setup="8xH100", nodes=8, seconds=20.50),
)
"""Published targets of Stable Diffusion. None is published for GPT-3."""


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig:
    """A configuration file of Stable Diffusion, `configs/train_NAME.yaml`."""

    name: str
    """Nodes, GPUs of each, samples of a step on each GPU: `02x08x08`."""
    nodes: int
    batch: int
    gpus: int = 8
    base: str = ""
    """The file of the commit that it is made from by a change of `num_nodes`; empty if the commit has it."""
    source: str = f"{_TRAINING}, stable_diffusion/configs"


DIFFUSION_CONFIGS: tuple[DiffusionConfig, ...] = (
    DiffusionConfig(name="01x08x08", nodes=1, batch=8),
    # The recipe's own file differs from 01x08x08 in num_nodes (and in where it logs); main.py is given it anyway.
    DiffusionConfig(name="02x08x08", nodes=2, batch=8, base="01x08x08", source=f"{_RECIPE}/mlperf-sd"),
    DiffusionConfig(name="32x08x02", nodes=32, batch=2),
    DiffusionConfig(name="32x08x04", nodes=32, batch=4),
    DiffusionConfig(name="32x08x08", nodes=32, batch=8),
)


@dataclass(frozen=True, kw_only=True)
class BenchmarkStorage:
    """The file system that a benchmark's data is on."""

    path: str
    """The mount point that the guide names."""
    size_gib: int
    source: str = "guide of the recipe, sections on storage for the benchmarks"


STORAGE: Mapping[str, BenchmarkStorage] = MappingProxyType(
    {
        STABLE_DIFFUSION: BenchmarkStorage(path="/mlperf-sd", size_gib=2048),
        GPT3: BenchmarkStorage(path="/gpt3", size_gib=8192),
    }
)

ENDPOINT, BUCKET = "https://storage.eu-north1.nebius.cloud", "recipe:slurm-mlperf-training"
"""The recipe's public bucket, which takes no keys, as rclone has it below the remote of copy.sh (source: _RECIPE at
0616445b19d4aac05e628351441f6242b663e7fe, common/env.sh and common/rclone.sh)."""
FOLDERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        STABLE_DIFFUSION: {"sd-dataset-3.0": "datasets", "sd-checkpoint-3.0": "checkpoints"},
        GPT3: {"gpt3-dataset-4.0": "dataset"},
    }
)
"""Folders of BUCKET, and where each goes below the data folder (source: the same, mlperf-*/init.sh)."""
PUBLISHED = "mlcommons"
"""A source of its own: the download scripts of Stable Diffusion in REPOSITORY, without a mirror between."""

IMAGE = "cr.eu-north1.nebius.cloud#slurm-mlperf-training/sd-3.0-mlcommons:0.1.5"
"""The recipe's container image of Stable Diffusion as enroot takes it (source: _RECIPE at the same commit,
common/env.sh and mlperf-sd/sd-impl-3.0-mlcommons/scripts/docker/VERSION). None exists for the GPT-3 of REPOSITORY."""

VOCABULARY = "https://huggingface.co/gpt2/resolve/607a30d783dfa663caf39e06633721c8d4cfcd7e"
"""Folder of vocab.json and merges.txt at a commit (source: README.md of GPT-3 in _TRAINING, which has no commit)."""
VOCABULARY_SHA256: Mapping[str, str] = MappingProxyType(
    {
        "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
        "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    }
)
"""SHA-256 of the files (source: tiktoken 0.12.0 of PyPI, tiktoken_ext/openai_public.py, encoder_json_hash and
vocab_bpe_hash: the same content under OpenAI's names)."""

MINUTES: Mapping[str, int] = MappingProxyType({STABLE_DIFFUSION: 4 * 60, GPT3: 20 * 60})
"""Run time of a job (source: _RECIPE, scripts/slurm/sbatch.sh and config_H100x8_*.sh)."""
DOWNLOAD_MINUTES = 2 * 24 * 60
"""Run time of a job that copies data: a terabyte takes 12 hours at 25 MB/s (source: GPT-3's README.md in
_TRAINING)."""
GPUS = 8
"""GPUs of each node, in every configuration (source: _RECIPE and _TRAINING)."""
TASK_CPUS, TASK_CPU_GIB = 8, 4
"""CPUs of each task of Stable Diffusion, and memory of each of these (source: _RECIPE, scripts/slurm/sbatch.sh)."""

LAYERS, HEADS, PARAMETERS = 96, 96, 175 * 10**9
"""Size of GPT-3 (source: _TRAINING, large_language_model/megatron-lm/run_gpt3.sh)."""
PARAMETER_BYTES = 18
"""Bytes of GPU memory for each parameter: weight and gradient (2 + 4), master weight (4), both moments of Adam (8).
Each group of tensor x pipeline GPUs holds all of it: with an external checkpoint there is no distributed optimizer
(source: _TRAINING, megatron/checkpointing.py, load_external_checkpoint)."""
GPU_GB: Mapping[str, int] = MappingProxyType({"h100": 80, "h200": 141, "b200": 180, "b300": 270})
"""Memory of GPUs in 10^9 bytes (source: NVIDIA's data sheets)."""


@dataclass(frozen=True, kw_only=True)
class Gpt3Setting:
    """Sizes of a run of GPT-3.

    The recipe's settings for 64 nodes divide the model into fewer parts (tensor 4 on H100, 2 on H200, with interleaved
    pipelines). They are for NVIDIA's own implementation: Megatron-LM of REPOSITORY would need more memory than a GPU
    has, see PARAMETER_BYTES, and loads no external checkpoint into interleaved pipelines. So `tensor` and `pipeline`
    are those of its run_gpt3.sh, and what is taken from the recipe is the batch size: MINIBS for each of its groups.
    """

    gpu: str
    nodes: int
    batch: int
    """Samples of one training step, on all GPUs."""
    tensor: int = 8
    pipeline: int = 8
    micro: int = 1
    """Samples that one group of GPUs trains at a time."""
    source: str = f"{_RECIPE}/mlperf-gpt3/gpt3-impl-4.0-nvidia, config_*.sh"


GPT3_SETTINGS: tuple[Gpt3Setting, ...] = (
    Gpt3Setting(gpu="h100", nodes=8, batch=1536),
    Gpt3Setting(gpu="h200", nodes=8, batch=3072),
    Gpt3Setting(gpu="h100", nodes=64, batch=128 * 16),
    Gpt3Setting(gpu="h200", nodes=64, batch=128 * 32),
)
EXTERNAL_STEPS, EXTERNAL_BATCH = 4000, 1536
"""Training steps of the checkpoint that a run begins with, and their batch (source: run_gpt3.sh)."""
