"""`./hpc nccl run`: one measurement, or pairs of nodes that show which node is slow."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from typer import Exit, Option

from cli import console, options
from cli.cluster.jobs import JobState, Progress, retry_while_unreachable
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs import nccl_build, nccl_report
from cli.commands.jobs.job_cluster import As, DryRun, JobCluster, described, print_scripts
from cli.commands.jobs.nccl_build import is_built, read_log
from cli.errors import CliError, hint
from cluster.catalog.nccl import NCCL_TESTS
from cluster.config.cluster import ClusterConfig
from cluster.findings import Level
from cluster.jobs.nccl import LOGS, Measured, NcclRun, Pair, Pairs, run_script, way
from cluster.jobs.partition_facts import PartitionFacts
from cluster.report.nccl.compare import level
from cluster.report.nccl.log import NotALogError, read_text
from cluster.report.nccl.result import NcclResult, Outcome, check
from scripts.node.slurm.hostlist import compress, expand

_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_FOLDER = re.compile(r"/[A-Za-z0-9_./+-]*")
_SHOWN = "^==> |^ +[0-9]+ +[0-9]+ +[a-z]"
"""Progress of the script, and rows of nccl-tests: size, count, type, redop, root, time, algbw, busbw ..."""
_BUSBW = 7
"""Column of such a row: the bus bandwidth in GB/s, out of place."""
_ROUND_SECONDS = 60.0
"""Between two lines on the pairs of a round, if nothing changes."""


class Over(str, Enum):
    """The links that carry the data on one node."""

    NVLINK = "nvlink"
    FABRIC = "fabric"


def run(
    stack: options.Stack,
    *,
    partition: nccl_build.PartitionName = None,
    nodes: Annotated[int | None, Option(min=1, max=10_000, metavar="N", help="Default: 2, where there are 2.")] = None,
    nodelist: Annotated[str, Option(metavar="NODES", help="Use these, such as a3mega-[0-1].")] = "",
    pairs: Annotated[
        bool, Option("--pairs", help="Find slow nodes: measure pairs of nodes side by side, in two rounds as a rule.")
    ] = False,
    collective: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help=f"One of {', '.join(NCCL_TESTS.collectives)}. Default: all_reduce on InfiniBand, else all_gather.",
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
        Over | None,
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

    With --pairs every node of the partition, or of --nodelist, is measured with another one; nodes of slow pairs meet
    one that was fast, and those that are slow again are named. Exit code 1: a node or a pair is slow, or is not known.

    On nodes with GPUDirect-TCPXO: all_gather from 8 MiB to 8 GiB with 200 iterations, in the container of `nccl build`.
    On Nebius: all_reduce from 512 MiB on, with the programs of the nodes' image.
    """
    given = {
        "nodes": nodes,
        "nodelist": nodelist,
        "collective": collective,
        "smallest": smallest,
        "largest": largest,
        "iterations": iters,
        "check": check,
        "over": over.value if over else None,
        "binaries": binaries,
    }
    about_one_run = {"nodes": nodes, "over": over, "output": output, "against": against}
    if pairs and (wrong := [f"--{name}" for name, value in about_one_run.items() if value is not None]):
        raise CliError(f"--pairs goes without {', '.join(wrong)}. --nodelist names the nodes to pair.")
    if dry_run:
        config = described(stack)
        wanted = _checked(config, nccl_build.gpu_partition(stack, config, partition), given)
        print_scripts([run_script(config, _on(wanted, _nodes(wanted)[:2]) if pairs else wanted)])
        return
    cluster, facts = nccl_build.gpu_cluster(stack, partition, user, stand_ins=bool(binaries))
    wanted = _checked(cluster.config, facts, given)
    if against and not against.exists():
        raise CliError(f"--against: {against} does not exist.")
    if output and output.exists():
        raise CliError(f"{output}: is there already, and is not overwritten. Give another name, or move it away.")
    if not pairs and not os.access(folder := (output or Path("log")).parent, os.W_OK):
        raise CliError(
            f"the log can't be saved: {folder.absolute()} is no folder that you can write to. Name another "
            "file with --output."
        )
    if way(cluster.config, wanted.binaries) != "installed" and not is_built(cluster, facts):
        user = cluster.jobs.user
        raise CliError(f"{user} has no NCCL test yet. Build it with: ./hpc nccl build {stack} --as {user}")
    cluster.prepare(LOGS)
    if pairs:
        found = _PairsRun(cluster, wanted).measure()
        console.json(_pairs_document(found)) if json else console.lines(_pairs_lines(found, stack))
        if not found.passed:
            raise Exit(1)
        return
    file, failure = _measure(cluster, wanted, output)
    (console.note if json else console.line)(f"Saved {file}")
    if failure:
        console.error(failure)
    nccl_report.report(str(file), against=against, json=json)
    if failure:
        raise Exit(1)


def _checked(config: ClusterConfig, partition: PartitionFacts, given: Mapping[str, Any]) -> NcclRun:
    """Make a run of the options, which are fields of NcclRun. Raises CliError: options are wrong for the partition; all
    of them at once."""
    names, problems = _listed_nodes(config, partition, given["nodelist"])
    defaults: dict[str, Any] = {
        "partition": partition,
        "nodes": given["nodes"] or len(names) or min(2, len(partition.nodes)),
        "nodelist": compress(names),
        "collective": given["collective"] or partition.fabric.collective,
    }
    wanted = NcclRun(**{**given, **defaults})
    if problems := [*problems, *_problems(wanted, len(names))]:
        raise CliError("\n".join(problems))
    return replace(wanted, binaries=wanted.binaries.rstrip("/"))


def _listed_nodes(config: ClusterConfig, partition: PartitionFacts, nodelist: str) -> tuple[list[str], list[str]]:
    """Parse --nodelist: its nodes, and its errors."""
    try:
        given = expand(nodelist) if nodelist else []
    except ValueError as error:
        return [], [f"--nodelist {nodelist}: {error}"]
    names: dict[str, None] = {}
    problems: list[str] = []
    for node in given:
        if name := next((name for name in (node, f"{config.name}-{node}") if name in partition.nodes), None):
            names[name] = None
        else:
            problems.append(
                f"--nodelist: partition {partition.name} has no node {node!r} with GPUs.{hint(node, partition.nodes)} "
                f"There are: {compress(partition.nodes)}."
            )
    return list(names), problems


def _problems(wanted: NcclRun, listed: int) -> Iterator[str]:
    """Check options; `listed` is the number of nodes in --nodelist."""
    nodes, partition = wanted.nodes, wanted.partition
    if nodes > len(partition.nodes):
        yield f"--nodes {nodes}: partition {partition.name} has {len(partition.nodes)} with GPUs."
    if listed and nodes < listed:
        yield f"--nodes {nodes}: --nodelist names {listed}. Leave one of the two out."
    if wanted.collective not in NCCL_TESTS.collectives:
        yield (
            f"--collective {wanted.collective!r}: nccl-tests has none of that name."
            f"{hint(wanted.collective, NCCL_TESTS.collectives)} There are: {', '.join(NCCL_TESTS.collectives)}."
        )
    low, high = _bytes(wanted.smallest or "0"), _bytes(wanted.largest)
    for option, text, size in (("--min", wanted.smallest, low), ("--max", wanted.largest, high)):
        if size is None:
            yield f"{option} {text!r}: a number of bytes is expected, with K, M or G for their 1024s: 8M."
    if low and high and low > high:
        yield f"--min {wanted.smallest} is more than --max {wanted.largest}."
    if wanted.over and nodes > 1:
        yield f"--over {wanted.over}: on {nodes} nodes NCCL needs both; it is for --nodes 1."
    elif wanted.over == "fabric" and (why := partition.fabric.one_node):
        yield f"--over fabric: needs InfiniBand. {partition.fabric.name} {why}."
    if wanted.binaries and not _FOLDER.fullmatch(wanted.binaries):
        yield f"--binaries {wanted.binaries!r}: an absolute path of letters, digits, . _ + - is expected"


def _bytes(text: str) -> int | None:
    found = _SIZE.fullmatch(text)
    return int(found[1]) * _UNITS[found[2]] if found else None


def _measure(cluster: JobCluster, wanted: NcclRun, output: Path | None) -> tuple[Path, str]:
    """Run the job; the file here that has its log, and how the job failed, if it did. Raises CliError: it failed before
    it measured anything."""
    jobs = cluster.jobs
    number = jobs.submit(run_script(cluster.config, wanted).text())
    console.note(
        f"Job {number} of {jobs.user}: {wanted.collective} on {wanted.nodes} {wanted.partition.machine_type.name}, "
        f"partition {wanted.partition.name}"
    )
    afterwards = f"./hpc nccl report {number} --stack {jobs.stack}"
    state = Progress(jobs, number, f"{LOGS}/{number}.log", _SHOWN, afterwards, _progress).wait()
    text = read_log(jobs, number, 20_000_000)
    file = output or Path(f"nccl-{jobs.stack}-{wanted.collective}-{number}.log")
    if text:
        try:
            with file.open("x", encoding="utf-8", newline="") as out:
                out.write(text)
        except OSError as error:
            how = f"To read it on the cluster: {afterwards}"
            raise CliError(f"{file}: can't be written: {error.strerror}. {how}") from None
    if state.completed:
        return file, ""
    failure = f"job {number} ended as {state.state} (exit code {state.exit_code}) on {state.nodes or 'no node'}"
    # nccl-tests ends with exit code 1 after wrong results too, and a job that is out of time has some rows.
    if (result := _result(text, str(file))) and result.run.rows:
        return file, f"{failure}. What it measured until then:"
    end = "\n".join(text.splitlines()[-40:])
    raise CliError(failure + (f". Its log is {file}, which ends so:\n{end}" if text else ", without a log."))


def _result(text: str, name: str) -> NcclResult | None:
    try:
        return check(read_text(text, name))
    except NotALogError:
        return None


def _progress(line: str) -> str:
    """A line of the log as progress: sizes in MiB, bandwidth in GB/s."""
    if line.startswith("==> "):
        return line.removeprefix("==> ")
    cells = line.split()
    size = int(cells[0]) / (1 << 20)
    return f"{size:10,.6g} MiB  {cells[_BUSBW]:>8} GB/s" if len(cells) > _BUSBW else ""


@dataclass(frozen=True)
class _PairsRun:
    """Measures pairs of the nodes of `wanted`, those of its partition where it names none."""

    cluster: JobCluster
    wanted: NcclRun

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
        jobs, names = self.cluster.jobs, _nodes(self.wanted)
        known = Scheduler(jobs.cluster, jobs.stack).nodes()
        # A pair that waits for a machine would hold up its round; a job of its own has the machine started.
        fine = [name for name in names if name in known and known[name].ready]
        for name in names:
            if name not in fine:
                console.note(f"{name} is left out: {known[name].word if name in known else 'unknown to slurmctld'}.")
        if len(fine) < 2:
            raise CliError(
                f"--pairs: {len(fine)} of {len(names)} nodes are in service, and a pair takes two.\n"
                f"to do: ./hpc status {jobs.stack}"
            )
        return fine

    def _round(self, number: int, pairs: list[Pair], before: Pairs) -> list[Measured]:
        jobs = self.cluster.jobs
        submitted: dict[str, Pair] = {}
        try:
            for pair in pairs:
                submitted[jobs.submit(run_script(self.cluster.config, _on(self.wanted, pair)).text())] = pair
            count = f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''}"
            what = f"{self.wanted.collective} on {count} of {len(before.nodes)} nodes"
            console.note(f"round {number}: {what}, jobs {', '.join(submitted)} of {jobs.user}")
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
            states = retry_while_unreachable(lambda: self.cluster.jobs.wait(submitted, changed, _ROUND_SECONDS))
            if all(state.ended for state in states.values()):
                return states

    def _cancel(self, submitted: Mapping[str, Pair], error: BaseException) -> None:
        if not submitted:
            return
        jobs = self.cluster.jobs
        try:
            jobs.cancel(submitted)
        except CliError as failed:
            line = f"./hpc run {jobs.stack} --as {jobs.user} -- scancel {' '.join(submitted)}"
            raise CliError(
                f"{failed}\nJobs {', '.join(submitted)} were not cancelled. To cancel them: {line}"
            ) from error
        console.note(f"Jobs {', '.join(submitted)} were cancelled.")

    def _measured(self, number: int, pair: Pair, state: JobState) -> Measured:
        result = _result(read_log(self.cluster.jobs, state.id), f"job {state.id}")
        busbw = level(result.run) if result else 0.0
        failure = f"the job ended as {state.state}" if not state.completed else _failure(result)
        console.note(f"round {number}: {', '.join(pair)}: {busbw:.1f} GB/s{f', {failure}' if failure else ''}")
        return Measured(round=number, nodes=pair, job=state.id, busbw=busbw, failure=failure)


def _failure(result: NcclResult | None) -> str:
    if result is None or not result.run.rows:
        return "its log has no measurement"
    if result.outcome is not Outcome.FAIL:
        return ""
    missed = [reason.text for reason in result.reasons if reason.met is False]
    return [*missed, *(finding.id for finding in result.findings if finding.level is Level.ERROR)][0]


def _pairs_lines(found: Pairs, stack: str) -> Iterator[str]:
    """Each pair, then each slow node with its figures and what to do."""
    widest = max(len(", ".join(pair.nodes)) for pair in found.measured)
    yield f"round  {'pair':{widest}}    GB/s  of the fastest  job"
    for pair in found.measured:
        share = f"{pair.busbw / found.best:.0%}" if found.best else "-"
        why = f"  slow{': ' if pair.failure else ''}{pair.failure}" if found.is_slow(pair) else ""
        yield f"{pair.round:5}  {', '.join(pair.nodes):{widest}}  {pair.busbw:6.1f}  {share:>14}  {pair.job}{why}"
    for node in found.slow:
        partners = ", ".join(
            f"{pair.busbw:.1f} GB/s with {next(name for name in pair.nodes if name != node)}" for pair in found.of(node)
        )
        yield f"\n{node} is slow: {partners}, where the fastest pair has {found.best:.1f}."
        yield f"  to do: ./hpc nodes {stack} drain {node} --reason nccl; then ./hpc health {stack}"
    for pair in found.odd:
        names = ", ".join(pair.nodes)
        yield f"\n{names} are slow together only ({pair.busbw:.1f} GB/s): the way between them, not a node."
        yield "  to do: run it again; if it is the same pair, have its switch or placement looked at"
    if found.open:
        yield f"\nNot known: {', '.join(found.open)}. No pair of theirs was fast, and no sound node was left for them."
        yield f"  to do: ./hpc nccl report {found.measured[-1].job} --stack {stack}, which has the reason"
    rounds = f"{found.rounds} rounds" if found.rounds > 1 else "1 round"
    word = "pass" if found.passed else "fail"
    yield f"\nResult: {word}, {len(found.sound)} of {len(found.nodes)} nodes are sound, after {rounds}"


def _pairs_document(found: Pairs) -> dict[str, Any]:
    return {
        "result": "pass" if found.passed else "fail",
        "rounds": found.rounds,
        "fastest": found.best,
        "sound": found.sound,
        "slow": found.slow,
        "unknown": found.open,
        "pairs": [{**asdict(pair), "slow": found.is_slow(pair)} for pair in found.measured],
    }


def _nodes(wanted: NcclRun) -> list[str]:
    return expand(wanted.nodelist) if wanted.nodelist else list(wanted.partition.nodes)


def _on(wanted: NcclRun, nodes: Sequence[str]) -> NcclRun:
    return replace(wanted, nodes=len(nodes), nodelist=compress(sorted(nodes)))
