"""MLPerf training benchmarks: what they run on, what they need, and published times to compare with."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_RECIPE = "github.com/nebius/nebius-solutions-library soperator/test"
_TRAINING = "github.com/mlcommons/training at the pinned commit"

REPOSITORY = "https://github.com/mlcommons/training"
COMMIT = "00f04c57d589721aabce4618922780d29f73cf4e"
"""The commit of REPOSITORY that both recipes use (source: _RECIPE at soperator-v1.15.4-1, */init.sh)."""

STABLE_DIFFUSION = "stable_diffusion"
GPT3 = "gpt3"
TITLES: Mapping[str, str] = MappingProxyType({STABLE_DIFFUSION: "Stable Diffusion", GPT3: "GPT-3"})
"""Benchmarks by the value of `submission_benchmark` in their logs (source: github.com/mlcommons/logging,
mlperf_logging/mllog/constants.py)."""

LOG_STEPS = 100
"""Training steps between two lines of a log of Stable Diffusion that targets are given for."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The time that a set-up of Stable Diffusion should not exceed."""

    setup: str
    """Number of machines, and their GPU: `2xH100`. Each machine has `gpus` of them."""
    nodes: int
    gpus: int = 8
    batch: int = 8
    """Samples of one step on each GPU."""
    seconds: float
    """For LOG_STEPS training steps, on average over a run."""
    source: str = f"{_RECIPE}/mlperf-sd, parselog at soperator-v1.15.4-1"


TARGETS: tuple[Target, ...] = (
    Target(setup="1xH100", nodes=1, seconds=18.16),
    Target(setup="2xH100", nodes=2, seconds=21.38),
    Target(setup="8xH100", nodes=8, seconds=20.50),
)
"""Of Stable Diffusion. None is published for GPT-3."""


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
