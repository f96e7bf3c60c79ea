"""nccl run --pairs: which nodes are slow, by jobs on pairs of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cli import console
from cli.cluster.job_progress import patiently
from cli.cluster.jobs import Jobs, JobState
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs.nccl_options import Chosen
from cli.errors import CliError
from cluster.findings import Level
from cluster.jobs.nccl import LOGS, Measured, NcclRun, Pair, Pairs, run_script
from cluster.report.nccl.compare import level
from cluster.report.nccl.log import NotALogError, read_text
from cluster.report.nccl.result import Result, Word, check
from cluster.slurm.hostlist import compress, expand

_LARGEST_LOG = 5_000_000
_LOOK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class PairsRun:
    """What to measure each pair with."""

    chosen: Chosen
    wanted: NcclRun
    """Of its nodes only those in service take part; no names stand for all of the partition."""

    @property
    def _jobs(self) -> Jobs:
        return self.chosen.jobs

    def measure(self) -> Pairs:
        """Run rounds until every node is known. Ctrl-C cancels the jobs that have not ended.

        Raises:
            CliError: fewer than two nodes are in service, sbatch refused a job, or the login machine does not answer.
        """
        found = Pairs(self._in_service())
        while pairs := found.next():
            found.measured += self._round(found.rounds + 1, pairs, found)
        return found

    def _in_service(self) -> list[str]:
        names = _nodes(self.wanted)
        known = Scheduler(self._jobs.cluster, self._jobs.stack).nodes()
        states = {name: known[name] for name in names if name in known}
        for name in names:
            if name not in states or not states[name].fine:
                word = states[name].word if name in states else "unknown to slurmctld"
                console.note(f"{name} is left out: {word}.")
        fine = [name for name, node in states.items() if node.fine]
        if len(fine) < 2:
            raise CliError(
                f"--pairs: {len(fine)} of {len(names)} nodes are in service, and a pair takes two.\n"
                f"to do: ./hpc status {self._jobs.stack}"
            )
        return fine

    def _round(self, number: int, pairs: list[Pair], before: Pairs) -> list[Measured]:
        submitted: dict[str, Pair] = {}
        try:
            for pair in pairs:
                script = run_script(self.chosen.config, _of(self.wanted, pair))
                submitted[self._jobs.submit(script.text())] = pair
            what = f"{self.wanted.collective} on {len(pairs)} pairs of {len(before.nodes)} nodes"
            console.note(f"round {number}: {what}, jobs {', '.join(submitted)} of {self._jobs.user}")
            states = self._wait(number, submitted)
        except BaseException as error:
            self._cancel(submitted, error)
            raise
        return [self._measured(number, pair, states[job]) for job, pair in submitted.items()]

    def _wait(self, number: int, submitted: Mapping[str, Pair]) -> Mapping[str, JobState]:
        def changed(states: Mapping[str, JobState]) -> None:
            waiting = {state.reason for state in states.values() if state.state == "PENDING" and state.reason != "None"}
            running = sum(state.state == "RUNNING" for state in states.values())
            ended = sum(state.ended for state in states.values())
            why = f", others wait ({', '.join(sorted(waiting))})" if waiting else ""
            console.note(f"round {number}: {ended} of {len(submitted)} pairs ended, {running} run{why}")

        while True:
            states = patiently(lambda: self._jobs.wait(submitted, changed, _LOOK_SECONDS))
            if all(state.ended for state in states.values()):
                return states

    def _cancel(self, submitted: Mapping[str, Pair], error: BaseException) -> None:
        if not submitted:
            return
        try:
            self._jobs.cancel(submitted)
        except CliError as failed:
            line = f"./hpc run {self._jobs.stack} --as {self._jobs.user} -- scancel {' '.join(submitted)}"
            raise CliError(
                f"{failed}\nJobs {', '.join(submitted)} were not cancelled. To cancel them: {line}"
            ) from error
        console.note(f"Jobs {', '.join(submitted)} were cancelled.")

    def _measured(self, number: int, pair: Pair, state: JobState) -> Measured:
        text = self._jobs.run(f"head -c {_LARGEST_LOG} {LOGS}/{state.id}.log 2>/dev/null || true", seconds=300)
        try:
            result = check(read_text(text, f"job {state.id}"))
        except NotALogError:
            result = None
        busbw = level(result.run) if result else 0.0
        failure = f"the job ended as {state.state}" if not state.completed else _failure(result)
        reached = f"{busbw:.1f} GB/s"
        console.note(f"round {number}: {_names(pair)}: {f'{reached}, {failure}' if failure else reached}")
        return Measured(round=number, nodes=pair, job=state.id, busbw=busbw, failure=failure)


def _failure(result: Result | None) -> str:
    if result is None or not result.run.rows:
        return "its log has no measurement"
    if result.word is not Word.FAIL:
        return ""
    missed = [one.text for one in result.reasons if one.met is False]
    return [*missed, *(one.id for one in result.findings if one.level is Level.ERROR)][0]


def lines_of(found: Pairs, stack: str) -> Iterator[str]:
    """Each pair, then each slow node with its figures and what to do."""
    widest = max(len(_names(one.nodes)) for one in found.measured)
    yield f"round  {'pair':{widest}}    GB/s  of the fastest  job"
    for one in found.measured:
        share = f"{one.busbw / found.best:.0%}" if found.best else "-"
        why = f"  slow{': ' if one.failure else ''}{one.failure}" if found.is_slow(one) else ""
        yield f"{one.round:5}  {_names(one.nodes):{widest}}  {one.busbw:6.1f}  {share:>14}  {one.job}{why}"
    for node in found.slow:
        with_whom = ", ".join(
            f"{one.busbw:.1f} GB/s with {next(name for name in one.nodes if name != node)}" for one in found.of(node)
        )
        yield f"\n{node} is slow: {with_whom}, where the fastest pair has {found.best:.1f}."
        yield f"  to do: ./hpc nodes {stack} drain {node} --reason nccl; then ./hpc health {stack}"
    for one in found.odd:
        yield f"\n{_names(one.nodes)} are slow together only ({one.busbw:.1f} GB/s): the way between them, not a node."
        yield "  to do: run it again; if it is the same pair, have its switch or placement looked at"
    if found.open:
        yield f"\nNot known: {', '.join(found.open)}. No pair of theirs was fast, and no sound node was left for them."
        yield f"  to do: ./hpc nccl report {found.measured[-1].job} --stack {stack}, which has the reason"
    rounds = f"{found.rounds} rounds" if found.rounds > 1 else "1 round"
    yield f"\nResult: {_word(found)}, {len(found.sound)} of {len(found.nodes)} nodes are sound, after {rounds}"


def document_of(found: Pairs) -> dict[str, Any]:
    """The same for programs."""
    return {
        "result": _word(found),
        "rounds": found.rounds,
        "fastest": found.best,
        "sound": found.sound,
        "slow": found.slow,
        "unknown": found.open,
        "pairs": [
            {
                "round": one.round,
                "nodes": list(one.nodes),
                "busbw": one.busbw,
                "job": one.job,
                "slow": found.is_slow(one),
                "failure": one.failure,
            }
            for one in found.measured
        ],
    }


def passed(found: Pairs) -> bool:
    """Whether every node is sound, and every pair was fast."""
    return not (found.slow or found.open or found.odd)


def first_pair(wanted: NcclRun) -> NcclRun:
    """What the first job measures, as far as it is known without the cluster."""
    return _of(wanted, _nodes(wanted)[:2])


def _nodes(wanted: NcclRun) -> list[str]:
    return expand(wanted.nodelist) if wanted.nodelist else list(wanted.partition.nodes)


def _of(wanted: NcclRun, pair: Sequence[str]) -> NcclRun:
    return replace(wanted, nodes=len(pair), nodelist=compress(sorted(pair)))


def _word(found: Pairs) -> str:
    return "pass" if passed(found) else "fail"


def _names(pair: Pair) -> str:
    return ", ".join(pair)
