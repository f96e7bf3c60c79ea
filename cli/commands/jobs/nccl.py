"""`./hpc nccl build` and `nccl run`: one measurement, or pairs of nodes that show which node is slow."""

import math
import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Exit, Option

from cli import console, options
from cli.cluster.jobs import JobProgress, Jobs, retry_while_unreachable
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs import nccl_report
from cli.commands.jobs.job_cluster import As, DryRun, connect_user, print_scripts, read_config
from cli.errors import CliError, hint
from cluster.catalog.nccl import NCCL_TESTS, PAIR_COLLECTIVE, default_collective
from cluster.config.cluster import ClusterConfig
from cluster.findings import Level
from cluster.jobs import nccl
from cluster.jobs.nccl import LOGS, NcclRun, Pair, PairResult, PairSearch, Transport, launcher, run_script
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.report.nccl_compare import mean_busbw
from cluster.report.nccl_log import NotALogError, read_text
from cluster.report.nccl_result import NcclResult, ReportOutcome, check
from scripts.node.slurm.hostlist import compress, expand
from scripts.node.slurm.jobs import Job

_Partition = Annotated[
    str | None,
    Option("--partition", metavar="NAME", help="Default: the first one with GPUs.", autocompletion=options.partitions),
]
_STEPS = "^==> "
"""Lines of a log in which our scripts print their progress (a regular expression of grep)."""
_LAST_LINES = 40
"""Lines of the log of a failed job that are printed."""


def build(stack: options.Stack, *, partition: _Partition = None, user: As = None, dry_run: DryRun = False) -> None:
    """Build the NCCL test: import a container image and compile nccl-tests in it, as a job.

    The image (NVIDIA's PyTorch, 18 GB) and the programs go to ~/nccl of the user, on the shared file system. It takes
    about 15 minutes on one node. A second run finds what is there; a run beside another one waits for the same job.
    Ctrl-C cancels the job. Where the nodes have nccl-tests already, there is nothing to build.
    """
    installed = f"The nodes have nccl-tests: there is nothing to build. Next: ./hpc nccl run {stack}"
    jobs, config, facts = _read(stack, partition, user, dry_run=dry_run)
    if launcher(config) == "installed":
        (console.line if jobs else console.note)(installed)
        return
    if jobs is None:
        print_scripts([nccl.build_script(config, facts)])
        return
    container = facts.fabric.container
    folder, image = nccl.tests_folder(container), nccl.image_file(launcher(config), container)
    title = f"nccl-tests {NCCL_TESTS.version} in {container.name}:{container.tag}"
    if is_built(jobs, facts):
        console.line(f"{image} and {folder} are there: {title}.")
        console.line(f"Next: ./hpc nccl run {stack}")
        return
    jobs.prepare(LOGS)
    earlier = jobs.run(f'squeue --noheader --user="$(id -un)" --name={nccl.BUILD_NAME} --format=%A').split()
    if earlier:
        console.note(f"Job {earlier[0]} of an earlier command is building; waiting for it.")
    number = earlier[0] if earlier else jobs.submit(nccl.build_script(config, facts).text())
    log = f"{LOGS}/{number}-build.log"
    command = f"./hpc nccl build {stack} --as {jobs.user}"
    state = JobProgress(jobs, number, log, _STEPS, command, lambda line: line.removeprefix("==> ")).wait()
    if not state.completed:
        end = jobs.run(f"tail -n {_LAST_LINES} {shlex.quote(log)} 2>/dev/null || true").rstrip()
        raise CliError(
            f"job {number} ended as {state.state} (exit code {state.exit_code}) on {state.nodes or 'no node'}. "
            f"The end of {log}, in the home of {jobs.user}:\n{end or '(empty)'}\n"
            f"What was imported stays. To go on: {command}"
        )
    console.line(f"Built {title}, in {folder} of {jobs.user}.")
    console.line(f"Next: ./hpc nccl run {stack}")


def read_log(jobs: Jobs, job: str, most: int = 5_000_000) -> str:
    """Return the beginning of the log of a run; empty if there is none."""
    return jobs.run(f"head -c {most} {LOGS}/{job}.log 2>/dev/null || true", seconds=300)


def _read(
    stack: str, partition: str | None, user: str | None, *, dry_run: bool, rehearsal: bool = False
) -> tuple[Jobs | None, ClusterConfig, PartitionFacts]:
    """Return a cluster, its configuration and its partition with GPUs; for a dry run no cluster. Raises CliError: it is
    not up, has no GPUs, or is a rehearsal and `rehearsal` is not set."""
    jobs = None if dry_run else connect_user(stack, user)
    config = jobs.config if jobs else read_config(stack)
    facts = _gpu_partition(stack, config, partition)
    if jobs and jobs.is_rehearsal and not rehearsal:
        raise CliError(
            f"stack {stack} is a rehearsal: its GPUs are device files, which compute nothing, so there is nothing to "
            f"measure. To see the job: --dry-run. To have its slurmctld check it: "
            f"./hpc nccl run {stack} --dry-run | ./hpc run {stack} -- sbatch --test-only"
        )
    return jobs, config, facts


def _gpu_partition(stack: str, config: ClusterConfig, name: str | None) -> PartitionFacts:
    """Return the nodes with GPUs of the named partition, else of the first that has some. Raises CliError: there is no
    such partition."""
    if name is not None and name not in config.partitions:
        raise CliError(
            f"stack {stack} has no partition {name!r}.{hint(name, tuple(config.partitions))} "
            f"There are: {', '.join(config.partitions)}."
        )
    with_gpus = [row for row in partition_facts(config) if row.gpu]
    for row in with_gpus:
        if name in (None, row.name):
            return row
    where = f"partition {name} of stack {stack}" if name else f"stack {stack}"
    names = ", ".join(dict.fromkeys(row.name for row in with_gpus))
    others = f" These have some: {names}." if names else ""
    raise CliError(f"{where} has no GPUs, and NCCL moves data between GPUs.{others}")


def is_built(jobs: Jobs, partition: PartitionFacts) -> bool:
    """Return whether the user has the container image and the programs."""
    container, kind = partition.fabric.container, launcher(jobs.config)
    paths = [nccl.image_file(kind, container), f"{nccl.tests_folder(container)}/build/all_reduce_perf"]
    test = " && ".join(f"test -s {shlex.quote(path)}" for path in paths)
    return jobs.run(f"{{ {test}; }} && echo built || echo missing").strip() == "built"


_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_FOLDER = re.compile(r"/[A-Za-z0-9_./+-]*")
_STEPS_AND_ROWS = f"{_STEPS}|^ +[0-9]+ +[0-9]+ +[a-z]"
"""Lines of progress, and rows of nccl-tests: size, count, type, redop, root, time, algbw, busbw ..."""
_BUSBW = 7
"""Column of such a row with the bus bandwidth in GB/s, out of place."""
_ROUND_SECONDS = 60.0
"""Seconds between two lines on the pairs of a round, if nothing changes."""


def run(
    stack: options.Stack,
    *,
    partition: _Partition = None,
    nodes: Annotated[int | None, Option(min=1, max=10_000, metavar="N", help="Default: 2, where there are 2.")] = None,
    nodelist: Annotated[str, Option(metavar="NODES", help="Use these, such as a3mega-[0-1].")] = "",
    pairs: Annotated[
        bool, Option("--pairs", help="Find slow nodes: measure pairs of nodes side by side, in two rounds as a rule.")
    ] = False,
    collective: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help=f"One of {', '.join(NCCL_TESTS.collectives)}. Default: all_reduce on one node, else all_gather.",
        ),
    ] = None,
    smallest: Annotated[
        str | None, Option("--min", metavar="SIZE", help="Smallest message. Default: 512M on InfiniBand, else 8M.")
    ] = None,
    largest: Annotated[str, Option("--max", metavar="SIZE", help="Largest message.")] = "8G",
    iters: Annotated[
        int | None,
        Option(
            min=1,
            max=1_000_000,
            metavar="N",
            help="Timed iterations for each size. Default: 200 with TCPXO, else nccl-tests' own.",
        ),
    ] = None,
    check: Annotated[bool, Option("--check", help="Check the results too: wrong ones are counted.")] = False,
    over: Annotated[
        Transport | None,
        Option(help="On one node with InfiniBand: over NVLink, or over the NICs by force. Default: NCCL decides."),
    ] = None,
    binaries: Annotated[
        str, Option(metavar="FOLDER", help="Programs of nccl-tests on the cluster, used without a container.")
    ] = "",
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to save the log. Default: nccl-STACK-COLLECTIVE-JOB.log, here.",
        ),
    ] = None,
    against: nccl_report.Against = None,
    user: As = None,
    dry_run: DryRun = False,
    json: options.Json = False,
) -> None:
    """Measure the bandwidth between GPUs, as a job on whole nodes, and report it.

    The job sets the environment that its nodes' network needs, runs a warm-up and then the test. Its log is saved here,
    and reported as by `nccl report`, whose exit code it has. Ctrl-C cancels the job.

    On several nodes all_gather shows what their NICs carry. all_reduce does not: NCCL adds inside each node first.

    With --pairs every node of the partition, or of --nodelist, is measured with another one; nodes of slow pairs meet
    one that was fast, and those that are slow again are named. Exit code 1: a node or a pair is slow, or is not known.

    On nodes with GPUDirect-TCPXO: all_gather from 8 MiB to 8 GiB with 200 iterations, in the container of `nccl build`.
    On Nebius: from 512 MiB on, with the programs of the nodes' image.
    """
    without_pairs = {"nodes": nodes, "over": over, "output": output, "against": against}
    if pairs and (wrong := [f"--{name}" for name, value in without_pairs.items() if value is not None]):
        raise CliError(f"--pairs goes without {', '.join(wrong)}. --nodelist names the nodes to pair.")
    jobs, config, facts = _read(stack, partition, user, dry_run=dry_run, rehearsal=bool(binaries))
    names, problems = _listed_nodes(config, facts, nodelist)
    if pairs and collective not in (None, PAIR_COLLECTIVE):
        problems.append(
            f"--pairs measures {PAIR_COLLECTIVE}, which shows the NICs: leave out --collective {collective}."
        )
    request = NcclRun(
        partition=facts,
        nodes=(count := nodes or len(names) or min(2, len(facts.nodes))),
        nodelist=compress(names),
        collective=collective or default_collective(2 if pairs else count),
        smallest=smallest,
        largest=largest,
        iterations=iters,
        check=check,
        over=over,
        binaries=binaries,
    )
    if problems := [*problems, *_problems(request, len(names))]:
        raise CliError("\n".join(problems))
    request = replace(request, binaries=binaries.rstrip("/"))
    if jobs is None:
        print_scripts([run_script(config, on_nodes(request, _nodes(request)[:2]) if pairs else request)])
        return
    if against and not against.exists():
        raise CliError(f"--against: {against} does not exist.")
    if output and output.exists():
        raise CliError(f"{output}: is there already, and is not overwritten. Give another name, or move it away.")
    if not pairs and not os.access(folder := (output or Path("log")).parent, os.W_OK):
        raise CliError(
            f"the log can't be saved: {folder.absolute()} is no folder that you can write to. Name another "
            "file with --output."
        )
    if launcher(config, request.binaries) != "installed" and not is_built(jobs, facts):
        user = jobs.user
        raise CliError(f"{user} has no NCCL test yet. Build it with: ./hpc nccl build {stack} --as {user}")
    jobs.prepare(LOGS)
    if pairs:
        measured = _PairsRun(jobs, request).measure()
        console.json(_pairs_document(measured)) if json else console.lines(_pairs_lines(measured, stack))
        raise Exit(0 if measured.passed else 1)
    file, failure = _measure(jobs, request, output)
    (console.note if json else console.line)(f"Saved {file}")
    if failure:
        console.error(failure)
    nccl_report.report(str(file), against=against, json=json)
    if failure:
        raise Exit(1)


def _listed_nodes(config: ClusterConfig, partition: PartitionFacts, nodelist: str) -> tuple[list[str], list[str]]:
    """Parse --nodelist. Returns its nodes, and its errors."""
    try:
        listed = expand(nodelist) if nodelist else []
    except ValueError as error:
        return [], [f"--nodelist {nodelist}: {error}"]
    names: dict[str, None] = {}
    problems: list[str] = []
    for node in listed:
        if name := next((name for name in (node, f"{config.name}-{node}") if name in partition.nodes), None):
            names[name] = None
        else:
            problems.append(
                f"--nodelist: partition {partition.name} has no node {node!r} with GPUs.{hint(node, partition.nodes)} "
                f"There are: {compress(partition.nodes)}."
            )
    return list(names), problems


def _problems(request: NcclRun, listed: int) -> Iterator[str]:
    """Yield what is wrong with the options; `listed` is the number of nodes in --nodelist."""
    nodes, partition = request.nodes, request.partition
    if nodes > len(partition.nodes):
        yield f"--nodes {nodes}: partition {partition.name} has {len(partition.nodes)} with GPUs."
    if listed and nodes < listed:
        yield f"--nodes {nodes}: --nodelist names {listed}. Leave one of the two out."
    if request.collective not in NCCL_TESTS.collectives:
        yield (
            f"--collective {request.collective!r}: nccl-tests has none of that name."
            f"{hint(request.collective, NCCL_TESTS.collectives)} There are: {', '.join(NCCL_TESTS.collectives)}."
        )
    low, high = _bytes(request.smallest or "0"), _bytes(request.largest)
    for option, text, size in (("--min", request.smallest, low), ("--max", request.largest, high)):
        if size is None:
            yield f"{option} {text!r}: a number of bytes is expected, with K, M or G for their 1024s: 8M."
    if low and high and low > high:
        yield f"--min {request.smallest} is more than --max {request.largest}."
    if request.over and nodes > 1:
        yield f"--over {request.over}: on {nodes} nodes NCCL needs both; it is for --nodes 1."
    elif request.over == "fabric" and (why := partition.fabric.one_node):
        yield f"--over fabric: needs InfiniBand. {partition.fabric.name} {why}."
    if request.binaries and not _FOLDER.fullmatch(request.binaries):
        yield f"--binaries {request.binaries!r}: an absolute path of letters, digits, . _ + - is expected"


def _bytes(text: str) -> int | None:
    size = _SIZE.fullmatch(text)
    return int(size[1]) * _UNITS[size[2]] if size else None


def _measure(jobs: Jobs, request: NcclRun, output: Path | None) -> tuple[Path, str]:
    """Run the job. Returns the file on this machine with its log, and how the job failed, if it did. Raises CliError:
    it failed before it measured anything."""
    number = jobs.submit(run_script(jobs.config, request).text())
    console.note(
        f"Job {number} of {jobs.user}: {request.collective} on {request.nodes} {request.partition.machine_type.name}, "
        f"partition {request.partition.name}"
    )
    report_command = f"./hpc nccl report {number} --stack {jobs.stack}"
    state = JobProgress(jobs, number, f"{LOGS}/{number}.log", _STEPS_AND_ROWS, report_command, _progress).wait()
    text = read_log(jobs, number, 20_000_000)
    file = output or Path(f"nccl-{jobs.stack}-{request.collective}-{number}.log")
    if text:
        try:
            with file.open("x", encoding="utf-8", newline="") as out:
                out.write(text)
        except OSError as error:
            raise CliError(
                f"{file}: can't be written: {error.strerror}. To read it on the cluster: {report_command}"
            ) from None
    if state.completed:
        return file, ""
    failure = f"job {number} ended as {state.state} (exit code {state.exit_code}) on {state.nodes or 'no node'}"
    # nccl-tests ends with exit code 1 after wrong results too, and a job that is out of time has some rows.
    if (result := _result(text, str(file))) and result.run.rows:
        return file, f"{failure}. What it measured until then:"
    end = "\n".join(text.splitlines()[-_LAST_LINES:])
    raise CliError(failure + (f". Its log is {file}, which ends so:\n{end}" if text else ", without a log."))


def _result(text: str, name: str) -> NcclResult | None:
    try:
        return check(read_text(text, name))
    except NotALogError:
        return None


def _progress(line: str) -> str:
    """Return a line of the log as it is printed: sizes in MiB, bandwidth in GB/s."""
    if line.startswith("==> "):
        return line.removeprefix("==> ")
    cells = line.split()
    size = int(cells[0]) / (1 << 20)
    return f"{size:10,.6g} MiB  {cells[_BUSBW]:>8} GB/s" if len(cells) > _BUSBW else ""


@dataclass(frozen=True)
class _PairsRun:
    """Measures pairs of the nodes of a request, or of its partition if the request names no nodes."""

    jobs: Jobs
    request: NcclRun

    def measure(self) -> PairSearch:
        """Run rounds until each node is found sound or slow, if possible. Ctrl-C cancels the jobs that have not ended.

        Raises:
            CliError: fewer than two nodes are in service, sbatch refused a job, or the login machine does not answer.
        """
        search = PairSearch(self._nodes_in_service())
        while pairs := search.next():
            search.measured += self._round(search.rounds + 1, pairs, len(search.nodes))
        return search

    def _nodes_in_service(self) -> list[str]:
        jobs, names = self.jobs, _nodes(self.request)
        nodes = Scheduler(jobs.cluster).nodes()
        # A pair that waits for a machine to be created would delay its round.
        ready = [name for name in names if name in nodes and nodes[name].ready]
        for name in names:
            if name not in ready:
                console.note(f"{name} is left out: {nodes[name].word if name in nodes else 'unknown to slurmctld'}.")
        if len(ready) < 2:
            raise CliError(
                f"--pairs: {len(ready)} of {len(names)} nodes are in service, and a pair takes two.\n"
                f"to do: ./hpc status {jobs.stack}"
            )
        return ready

    def _round(self, number: int, pairs: list[Pair], nodes: int) -> Iterator[PairResult]:
        count = f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''}"
        what = f"round {number}: {self.request.collective} on {count} of {nodes} nodes"
        measured = measure_all(self.jobs, [on_nodes(self.request, pair) for pair in pairs], what)
        for pair, row in zip(pairs, measured, strict=True):
            failure = f", {row.failure}" if row.failure else ""
            console.note(f"round {number}: {', '.join(pair)}: {row.busbw:.1f} GB/s{failure}")
            yield PairResult(
                round=number, nodes=pair, job=row.state.id, busbw=row.busbw, failure=row.failure, compared=row.compared
            )


@dataclass(frozen=True)
class Measured:
    """A run whose job has ended, or was cancelled."""

    run: NcclRun
    state: Job
    log: str

    @property
    def result(self) -> NcclResult | None:
        return _result(self.log, f"job {self.state.id}")

    @property
    def busbw(self) -> float:
        """Average at large sizes, GB/s; 0 where nothing was measured."""
        return mean_busbw(self.result.run) if self.result else 0.0

    @property
    def compared(self) -> bool:
        """True if it met a reference or the line rate."""
        return self.result is not None and self.result.outcome is ReportOutcome.PASS

    @property
    def failure(self) -> str:
        """The reason why it failed; empty if it did not."""
        if not self.state.ended:
            return "the job did not end in time"
        return _failure(self.result) if self.state.completed else f"the job ended as {self.state.state}"

    @property
    def text(self) -> str:
        """The result on one line."""
        average = self.result.run.average if self.result else None
        missing = "" if self.compared else "no reference to compare with"
        words = "no average" if average is None else f"average {average:g} GB/s"
        return ", ".join(filter(None, (words, self.failure or missing)))


def measure_all(jobs: Jobs, runs: Sequence[NcclRun], what: str, *, seconds: float = math.inf) -> list[Measured]:
    """Submit runs, and wait for all of them, for so many seconds at most. Ctrl-C cancels the jobs that have not ended.

    Raises:
        CliError: sbatch refused a job, or the login machine does not answer.
    """
    submitted: dict[str, NcclRun] = {}
    try:
        for run in runs:
            submitted[jobs.submit(run_script(jobs.config, run).text())] = run
        console.note(f"{what}, jobs {', '.join(submitted)} of {jobs.user}")
        states = _wait(jobs, what.partition(":")[0], submitted, seconds)
    except BaseException as error:
        _cancel(jobs, submitted, error)
        raise
    jobs.cancel(job for job, state in states.items() if not state.ended)
    return [Measured(run, states[job], read_log(jobs, job)) for job, run in submitted.items()]


def _wait(jobs: Jobs, title: str, submitted: Iterable[str], seconds: float) -> Mapping[str, Job]:
    def changed(states: Mapping[str, Job]) -> None:
        waiting = {state.reason for state in states.values() if state.state == "PENDING" and state.reason != "None"}
        running = sum(state.state == "RUNNING" for state in states.values())
        ended = sum(state.ended for state in states.values())
        why = f", others wait ({', '.join(sorted(waiting))})" if waiting else ""
        console.note(f"{title}: {ended} of {len(states)} runs ended, {running} run{why}")

    deadline = time.monotonic() + seconds
    while True:
        states = retry_while_unreachable(lambda: jobs.wait(submitted, changed, _ROUND_SECONDS))
        if all(state.ended for state in states.values()) or time.monotonic() > deadline:
            return states


def _cancel(jobs: Jobs, submitted: Iterable[str], error: BaseException) -> None:
    if not (names := list(submitted)):
        return
    try:
        jobs.cancel(names)
    except CliError as failed:
        line = f"./hpc run {jobs.stack} --as {jobs.user} -- scancel {' '.join(names)}"
        raise CliError(f"{failed}\nJobs {', '.join(names)} were not cancelled. To cancel them: {line}") from error
    console.note(f"Jobs {', '.join(names)} were cancelled.")


def _failure(result: NcclResult | None) -> str:
    if result is None or not result.run.rows:
        return "its log has no measurement"
    if result.outcome is not ReportOutcome.FAIL:
        return ""
    missed = [reason.text for reason in result.reasons if reason.met is False]
    return [*missed, *(finding.id for finding in result.findings if finding.level is Level.ERROR)][0]


def _pairs_lines(search: PairSearch, stack: str) -> Iterator[str]:
    """Yield each pair, then each slow node with its figures and what to do."""
    widest = max(len(", ".join(pair.nodes)) for pair in search.measured)
    yield f"round  {'pair':{widest}}    GB/s  of the fastest  job"
    for pair in search.measured:
        share = f"{pair.busbw / search.best:.0%}" if search.best else "-"
        why = f"  slow{': ' if pair.failure else ''}{pair.failure}" if search.is_slow(pair) else ""
        yield f"{pair.round:5}  {', '.join(pair.nodes):{widest}}  {pair.busbw:6.1f}  {share:>14}  {pair.job}{why}"
    for node in search.slow:
        partners = ", ".join(
            f"{pair.busbw:.1f} GB/s with {next(name for name in pair.nodes if name != node)}"
            for pair in search.of(node)
        )
        yield f"\n{node} is slow: {partners}, where the fastest pair has {search.best:.1f}."
        yield f"  to do: ./hpc nodes {stack} drain {node} --reason nccl; then ./hpc health {stack}"
    for pair in search.odd:
        names = ", ".join(pair.nodes)
        yield f"\n{names} are slow together only ({pair.busbw:.1f} GB/s): the way between them, not a node."
        yield "  to do: run it again; if it is the same pair, have its switch or placement looked at"
    if search.open:
        yield f"\nNot known: {', '.join(search.open)}. No pair of theirs was fast, and no sound node was left for them."
        yield f"  to do: ./hpc nccl report {search.measured[-1].job} --stack {stack}, which has the reason"
    rounds = f"{search.rounds} rounds" if search.rounds > 1 else "1 round"
    word = "pass" if search.passed else "fail"
    yield f"\nResult: {word}, {len(search.sound)} of {len(search.nodes)} nodes are sound, after {rounds}"


def _pairs_document(search: PairSearch) -> dict[str, Any]:
    return {
        "result": "pass" if search.passed else "fail",
        "rounds": search.rounds,
        "fastest": search.best,
        "sound": search.sound,
        "slow": search.slow,
        "unknown": search.open,
        "pairs": [{**asdict(pair), "slow": search.is_slow(pair)} for pair in search.measured],
    }


def _nodes(request: NcclRun) -> list[str]:
    return expand(request.nodelist) if request.nodelist else list(request.partition.nodes)


def on_nodes(request: NcclRun, nodes: Sequence[str]) -> NcclRun:
    """Return the run on these nodes."""
    return replace(request, nodes=len(nodes), nodelist=compress(sorted(nodes)))
