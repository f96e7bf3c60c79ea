"""What a log has of one run of a benchmark."""

from dataclasses import dataclass
from typing import NamedTuple

from cluster.catalog.mlperf import BENCHMARKS


class Interval(NamedTuple):
    """A part of training between two events of a log."""

    first: float
    """Training steps before it, or what Run.unit says."""
    last: float
    """Training steps after it."""
    ms: int
    """Its duration."""
    line: int
    """Of the event that begins it."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A measurement of the model's quality."""

    step: int | None
    metric: str
    value: float
    epoch: float | None = None
    """Where the log has no steps."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run."""

    line: int
    """Of its first event."""
    started_ms: int
    """Time of its first event, in milliseconds since 1970 (UTC)."""
    benchmark: str
    """As in the log, e.g. `stable_diffusion`; empty if the log does not have it."""
    batch: int | None
    """Samples of one training step, on all GPUs (`global_batch_size`)."""
    ranks: int | None
    """Processes of the run, one for each GPU."""
    labelled: int
    """Tasks that `srun --label` named; 0 without labels."""
    intervals: tuple[Interval, ...]
    evaluations: tuple[Evaluation, ...]
    step_ms: tuple[tuple[int, float], ...]
    """Iterations of Megatron-LM: number, duration."""
    throughput: tuple[float, ...]
    """As the log has it; of GPT-3 tokens in a second."""
    status: str
    """`success` or `aborted`; empty if the run did not end, or did not write it."""
    ended: bool
    """Whether the log has its end."""
    seconds: int | None
    """Of the whole run, by its RESULT line."""
    unit: str
    """Of Interval.first and .last: `steps`; `samples` or `tokens` where the batch size does not divide them into steps;
    `epochs` where the log has nothing else."""
    notes: tuple[str, ...]
    """What is wrong with the log, as sentences."""

    @property
    def title(self) -> str:
        """Name of the benchmark."""
        known = BENCHMARKS.get(self.benchmark)
        return known.title if known else self.benchmark or "an unknown benchmark"
