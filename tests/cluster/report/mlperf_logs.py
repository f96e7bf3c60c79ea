"""Logs as the benchmarks write them, made from the numbers of the recipe's reference run."""

import json
from collections.abc import Iterable, Sequence

FIRST_MS = 1720163659077
"""Time of the first block_start of the reference run, 2 machines with 8 H100."""
DURATIONS = (23618, 20536, 20538, 20059, 20282, 19966, 20012, 19999, 20166, 19945)
"""Milliseconds of its ten intervals of 100 steps."""
GUIDE = """\
 interval |     steps     |     duration     
----------+---------------+-------------------
        1 |      0-100    |  23.62s (23618ms)
        2 |    100-200    |  20.54s (20536ms)
        3 |    200-300    |  20.54s (20538ms)
        4 |    300-400    |  20.06s (20059ms)
        5 |    400-500    |  20.28s (20282ms)
        6 |    500-600    |  19.97s (19966ms)
        7 |    600-700    |  20.01s (20012ms)
        8 |    700-800    |  20.00s (19999ms)
        9 |    800-900    |  20.17s (20166ms)
       10 |    900-1000   |  19.95s (19945ms)
----------+---------------+-------------------
 AVG: 20.51s <= 21.38s (target for 2xH100 GPU)
 min: 19.95s
 max: 23.62s
"""  # noqa: W291 - the header ends so
"""What the recipe's tool prints for the reference run."""


def event(time_ms: int, key: str, value: object = None, **metadata: object) -> str:
    """A line as mllog writes it."""
    kind = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}.get(key.rpartition("_")[2], "POINT_IN_TIME")
    text = json.dumps(
        {
            "namespace": "", "time_ms": time_ms, "event_type": kind, "key": key, "value": value,
            "metadata": {"file": "mlperf_logging_utils.py", "lineno": 108, **metadata},
        }
    )  # fmt: skip
    return f":::MLLOG {text}"


def preamble(*, ranks: int = 16, batch: int | None = 128, at: int = FIRST_MS - 176_000) -> list[str]:
    """Return what each rank of Stable Diffusion writes before the training."""
    found = ["pyxis: imported docker image: example", *(event(at, "cache_clear", True) for _ in range(ranks))]
    for rank in range(ranks):
        found += [event(at + rank, "submission_benchmark", "stable_diffusion"), event(at + rank, "init_start")]
    for _ in range(ranks if batch else 0):
        found += [event(at + 40_000, "global_batch_size", batch), event(at + 40_001, "init_stop")]
    return found


def blocks(durations: Iterable[int] = DURATIONS, *, at: int = FIRST_MS, steps: int = 100, first: int = 0) -> list[str]:
    """The training of Stable Diffusion: each block starts 22 ms after the end of the one before."""
    found = []
    for number, ms in enumerate(durations):
        begin, end = first + number * steps, first + (number + 1) * steps
        found += [
            event(at, "block_start", "training_step", step_num=begin),
            event(at + ms - 5, "loss", 0.69, step_num=end),
            event(at + ms, "block_stop", "training_step", step_num=end),
        ]
        at += ms + 22
    return found


def validation(at: int) -> list[str]:
    """Three blocks of validation, which are no training."""
    found = [event(at, "eval_start", 1000)]
    for step in (0, 10, 20):
        found += [
            event(at + 34_000 * step, "block_start", "validation_step", step_num=step),
            event(at + 34_000 * step + 3800, "block_stop", "validation_step", step_num=step),
        ]
    return found


def reference() -> list[str]:
    """A log with the numbers of the reference run, which was stopped during the evaluation at step 1000."""
    noise = "worker-1:19437:19859 [2] NCCL INFO Channel 12/0 : 10[2] -> 9[1] via P2P/CUMEM"
    start = event(FIRST_MS - 875, "run_start")
    return [*preamble(), *[noise] * 20, start, noise, *blocks(), *validation(FIRST_MS + 362_000)]


def text(lines: Sequence[str]) -> bytes:
    """Lines as a file."""
    return "".join(f"{line}\n" for line in lines).encode()
