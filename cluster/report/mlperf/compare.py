"""Compares a run with the published time of its set-up."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from cluster.catalog.mlperf import DIFFUSION_CONFIGS, LOG_STEPS, STABLE_DIFFUSION, TARGETS, Target
from cluster.findings import suggest
from cluster.report.mlperf.run import Interval, Run


class UnknownSetup(ValueError):  # noqa: N818 - reads as what it says
    """There is no target of that name; the text lists them."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Figures of a run, and what they say."""

    intervals: tuple[Interval, ...]
    average: float
    """Seconds of an interval, on average; for LOG_STEPS steps where there is a target."""
    least: float
    most: float
    """Seconds of the shortest and of the longest interval."""
    target: Target | None
    notes: tuple[str, ...]
    """Why there is no target, and what the comparison rests on, as sentences."""

    @property
    def result(self) -> str:
        """`pass` or `fail`; empty without a target."""
        if self.target is None:
            return ""
        return "pass" if self.average <= self.target.seconds else "fail"


def find_target(setup: str) -> Target:
    """The target of a set-up. Raises UnknownSetup."""
    by_name = {one.setup: one for one in TARGETS}
    found = {name.lower(): one for name, one in by_name.items()}.get(setup.lower())
    if found is None:
        todo = suggest(setup, by_name, "leave -g out: then the log decides")
        raise UnknownSetup(f"no time is published for {setup!r}. There are: {', '.join(by_name)}. To do: {todo}")
    return found


def compare(run: Run, setup: str = "") -> Comparison | None:
    """Compare a run with the target of `setup`; without one, with that of the set-up that the log shows. None: the run
    has no interval. Raises UnknownSetup."""
    intervals, notes = _intervals(run)
    given = find_target(setup) if setup else None
    if not intervals:
        return None
    target, reason = _target(run, given)
    if target is None:
        notes.append(reason)
        average = statistics.fmean(one.ms for one in intervals) / 1000
    else:
        steps = {one.last - one.first for one in intervals}
        if steps != {LOG_STEPS}:
            sizes = f"{min(steps)}" if len(steps) == 1 else f"{min(steps)} to {max(steps)}"
            notes.append(f"intervals have {sizes} steps: AVG is for {LOG_STEPS} steps, as the target is")
        average = (
            statistics.fmean(one.ms for one in intervals) / 1000
            if steps == {LOG_STEPS}
            else LOG_STEPS * sum(one.ms for one in intervals) / sum(one.last - one.first for one in intervals) / 1000
        )
        notes += _doubts(run, target)
    durations = [one.ms / 1000 for one in intervals]
    return Comparison(
        intervals=intervals, average=average, least=min(durations), most=max(durations), target=target,
        notes=tuple(notes),
    )  # fmt: skip


def _intervals(run: Run) -> tuple[tuple[Interval, ...], list[str]]:
    """Intervals of the log's blocks. Megatron-LM has one block for all of training; its own times are better then."""
    if len(run.intervals) > 1 or len(run.step_ms) < 2:
        return tuple(one for one in run.intervals if one.last > one.first), []
    # It evaluates after every 24576 samples (README.md of GPT-3 in github.com/mlcommons/training).
    size = -(-24576 // run.batch) if run.batch else 10
    found = []
    for begin in range(0, len(run.step_ms), size):
        group = run.step_ms[begin : begin + size]
        ms = round(sum(one for _, one in group))
        found.append(Interval(first=group[0][0] - 1, last=group[-1][0], ms=max(ms, 1), line=run.line))
    return tuple(found), [f"intervals are sums of {size} times that Megatron-LM wrote for its iterations"]


def _target(run: Run, given: Target | None) -> tuple[Target | None, str]:
    """The target, or why there is none."""
    if run.benchmark and run.benchmark != STABLE_DIFFUSION:
        return None, f"no time is published for {run.title}"
    if given:
        return given, ""
    if not run.benchmark or run.batch is run.ranks is None:
        lacks = "name of its benchmark" if not run.benchmark else "batch size, nor the number of GPUs"
        return None, f"the log does not have the {lacks}; {_name_one()}"
    published = {(one.nodes * one.gpus, one.batch): one for one in TARGETS}
    known = {*published, *((one.nodes * one.gpus, one.batch) for one in DIFFUSION_CONFIGS)}
    fitting = [
        (gpus, batch)
        for gpus, batch in sorted(known)
        if run.batch in (None, gpus * batch) and run.ranks in (None, gpus)
    ]
    found = [published[one] for one in fitting if one in published]
    what = f"{run.ranks or 'unknown'} GPUs, global batch size {run.batch or 'unknown'}"
    if len(fitting) == 1 and found:
        return found[0], ""
    if not found:
        return None, f"no time is published for this set-up ({what})"
    return None, f"the set-up is not clear from the log ({what}); {_name_one()}"


def _name_one() -> str:
    return f"name it: -g {'|'.join(one.setup for one in TARGETS)}"


def _doubts(run: Run, target: Target) -> Iterable[str]:
    """What the log shows of the set-up, where that is not the target's."""
    gpus = target.nodes * target.gpus
    if run.ranks not in (None, gpus):
        yield f"the log has {run.ranks} GPUs, and {target.setup} has {gpus}"
    if run.batch not in (None, gpus * target.batch):
        yield f"the log has a global batch size of {run.batch}, and {target.setup} has {gpus * target.batch}"
