"""The NCCL part of `check jobs`: on each node with GPUs alone, then over all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cli.cluster.jobs import Jobs, JobState
from cli.commands.jobs.nccl_build import is_built
from cli.commands.jobs.nccl_options import Chosen
from cluster.config.cluster import ClusterConfig
from cluster.jobs.nccl import LOGS, RUN_MINUTES, NcclRun, run_script, way
from cluster.jobs.partition_facts import PartitionFacts
from cluster.jobs.quickcheck_plan import Plan
from cluster.jobs.quickcheck_results import FAIL, PASS, SKIP, CheckResult
from cluster.report.nccl.log import NotALogError, read_text
from cluster.report.nccl.result import Reason, Word, check
from cluster.slurm.hostlist import compress

_LARGEST_LOG = 5_000_000


@dataclass(frozen=True, kw_only=True)
class NcclCheck:
    """What to run the test with."""

    jobs: Jobs
    config: ClusterConfig
    facts: tuple[PartitionFacts, ...]
    planned: Plan
    rehearsed: bool
    """GPUs are device files."""
    binaries: str = ""
    """Folder with programs of nccl-tests on the cluster, as for `nccl run`."""

    def results(self, show: Callable[[str], None]) -> list[CheckResult]:
        """Run the tests, and compare each with its reference. Ctrl-C cancels them; `show` gets what is waited for.

        Raises:
            CliError: sbatch refused a job, or the login machine does not answer.
        """
        found: list[CheckResult] = []
        submitted: dict[str, tuple[PartitionFacts, tuple[str, ...]]] = {}
        try:
            for row in self.facts:
                if row.gpu:
                    skipped, wanted = self._wanted(row)
                    found += skipped
                    before: list[str] = []
                    for nodes in wanted:
                        before.append(self._submit(row, nodes, before))
                        submitted[before[-1]] = (row, nodes)
            states = self._wait(submitted, show) if submitted else {}
        except BaseException:
            self.jobs.cancel(submitted)
            raise
        return [*found, *(self._result(*submitted[one], one, states.get(one)) for one in submitted)]

    def _wanted(self, row: PartitionFacts) -> tuple[list[CheckResult], list[tuple[str, ...]]]:
        """What is skipped of a partition, and the nodes of each job: each node alone, then all of them."""

        def skip(text: str, node: str = "") -> CheckResult:
            return CheckResult(check="nccl", status=SKIP, node=node, partition=row.name, text=text)

        mine = [one for one in self.planned.expected.values() if one.partition == row.name and one.node in row.nodes]
        if not mine:
            return [], []
        if self.rehearsed and not self.binaries:
            return [skip("GPUs of a rehearsal are device files, which compute nothing")], []
        if way(self.config, self.binaries) != "installed" and not is_built(Chosen(self.jobs, self.config, row)):
            user, stack = self.jobs.user, self.jobs.stack
            return [skip(f"{user} has no NCCL test yet: ./hpc nccl build {stack} --as {user}")], []
        busy = [skip(one.all_gpus or one.shared, one.node) for one in mine if one.all_gpus or one.shared]
        free = [one.node for one in mine if not (one.all_gpus or one.shared)]
        wanted: list[tuple[str, ...]] = [(node,) for node in free]
        most = self.planned.options.most_nodes.get(row.name, len(free))
        if len(free[:most]) > 1:
            wanted.append(tuple(free[:most]))
        return busy, wanted

    def _submit(self, row: PartitionFacts, nodes: tuple[str, ...], before: list[str]) -> str:
        run = NcclRun(
            partition=row, nodes=len(nodes), nodelist=compress(nodes), collective=row.fabric.collective,
            binaries=self.binaries,
        )  # fmt: skip
        options = {"job-name": f"hpc-check-{self.planned.options.run}"}
        if len(nodes) > 1 and before:
            # They would wait for these nodes anyway, and hold others back meanwhile.
            options["dependency"] = f"afterany:{':'.join(before)}"
        return self.jobs.submit(run_script(self.config, run).text(), options=options)

    def _wait(
        self, submitted: Mapping[str, tuple[PartitionFacts, tuple[str, ...]]], show: Callable[[str], None]
    ) -> Mapping[str, JobState]:
        def changed(states: Mapping[str, JobState]) -> None:
            done = sum(state.ended for state in states.values())
            show(f"NCCL test: {done} of {len(submitted)} runs ended")

        rounds = 2 if any(len(nodes) > 1 for _, nodes in submitted.values()) else 1
        states = self.jobs.wait(submitted, changed, seconds=rounds * RUN_MINUTES * 60)
        self.jobs.cancel(one for one, state in states.items() if not state.ended)
        return states

    def _result(self, row: PartitionFacts, nodes: tuple[str, ...], job: str, state: JobState | None) -> CheckResult:
        text = self.jobs.run(f"head -c {_LARGEST_LOG} {LOGS}/{job}.log 2>/dev/null || true", seconds=300)
        node, name = (nodes[0], "nccl") if len(nodes) == 1 else ("", f"nccl over {len(nodes)} nodes")
        status, found = _compared(text, job, state)
        todo = f"./hpc nccl report {job} --stack {self.jobs.stack}" if status == FAIL else ""
        output = "\n".join(text.splitlines()[-40:]) if status == FAIL else ""
        return CheckResult(
            check=name, status=status, node=node, partition=row.name, text=found, output=output, todo=todo
        )


def _compared(text: str, job: str, state: JobState | None) -> tuple[str, str]:
    """Status and finding of one run."""
    if state is None or not state.ended:
        return FAIL, f"job {job} did not end in time"
    if not state.completed:
        return FAIL, f"job {job} ended as {state.state}, exit code {state.exit_code}"
    try:
        result = check(read_text(text, f"job {job}"))
    except NotALogError as error:
        return FAIL, str(error.finding)
    average = f"average {result.run.average:g} GB/s" if result.run.average is not None else "no average"
    if result.word is Word.FAIL:
        return FAIL, "; ".join([average, *_failed(result.reasons), *(str(one) for one in result.findings)][:4])
    if result.word is Word.NONE:
        return SKIP, f"{average}, and no reference to compare with"
    return PASS, average


def _failed(reasons: Iterable[Reason]) -> Iterator[str]:
    for reason in reasons:
        if reason.met is False:
            yield reason.text
