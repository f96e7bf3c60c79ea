"""Reports of large logs of MLPerf: of a job, which is mostly output of NCCL, and one of events alone, as a run of weeks
writes them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.case import Answer, Case
from bench.environment import Environment
from bench.result import Claim, Series
from cluster.catalog.mlperf import LOG_STEPS, TARGETS

_CHATTER = "worker-1:19437:19859 [2] NCCL INFO Channel 12/0 : 10[2] -> 9[1] via P2P/CUMEM\n" * 100
_TARGET = TARGETS[1]


def _run(environment: Environment) -> Answer:
    sizes = environment.pick((200, 20), (5, 1))
    logs = {f"{sizes[0]} MB of a job": (sizes[0], _CHATTER), f"{sizes[1]} MB of events alone": (sizes[1], "")}
    times: dict[str, list[float]] = {name: [] for name in logs}
    for name, (megabytes, chatter) in logs.items():
        file = environment.root / "files" / f"{len(chatter)}.out"
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(file, megabytes * 1_000_000, chatter)
        for _ in environment.rounds(5):
            took, out = environment.timed([sys.executable, "-m", "cli", "mlperf", "report", str(file)])
            if f"<= {_TARGET.seconds:.2f}s (target for {_TARGET.setup} GPU)" not in out:
                raise RuntimeError(f"the report of {name} does not have its target")
            times[name].append(took)
        file.unlink()
    series = [Series(name=name, values=tuple(values)) for name, values in times.items()]
    return series, [Claim(what=f"report of {one.name}", value=one.median, limit=5.0) for one in series]


def _write(file: Path, size: int, chatter: str) -> None:
    with file.open("w", encoding="utf-8") as out:
        for line in _events():
            out.write(f"{line}\n{chatter}")
            if out.tell() > size:
                return


def _events() -> Iterator[str]:
    """A run of Stable Diffusion that goes on."""
    now, step = 1720163659077, 0
    yield _event(now, "submission_benchmark", "stable_diffusion")
    yield _event(now, "global_batch_size", _TARGET.nodes * _TARGET.gpus * _TARGET.batch)
    yield _event(now, "run_start", None)
    while True:
        yield _event(now, "block_start", "training_step", step_num=step)
        now, step = now + int(_TARGET.seconds * 1000) - 500, step + LOG_STEPS
        yield _event(now, "loss", 0.4878907799720764, step_num=step)
        yield _event(now, "lr_abs", 1.5984000016e-05, step_num=step)
        yield _event(now, "block_stop", "training_step", step_num=step)


def _event(time_ms: int, key: str, value: object, **metadata: int) -> str:
    place = {"file": "mlperf_logging_utils.py", "lineno": 108}
    row = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f":::MLLOG {json.dumps({**row, 'metadata': {**place, **metadata}})}"


CASE = Case(name="mlperf", title="Reports of large logs of MLPerf", run=_run)
