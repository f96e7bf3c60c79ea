"""nccl run."""

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from cli import console, options
from cli.cluster.job_progress import Progress
from cli.commands.jobs import nccl_options as common
from cli.commands.jobs import nccl_report
from cli.commands.jobs.nccl_build import is_built
from cli.commands.jobs.nccl_pairs import PairsRun, document_of, first_pair, lines_of, passed
from cli.commands.jobs.nccl_request import Request
from cli.errors import CliError
from cluster.catalog.nccl_tests import NCCL_TESTS
from cluster.jobs.nccl import LOGS, NcclRun, run_script, way
from cluster.report.nccl.log import NotALogError, read_text

_SHOWN = "^==> |^ +[0-9]+ +[0-9]+ +[a-z]"
"""Progress of the script, and rows of nccl-tests: size, count, type, redop, root, time, algbw, busbw ..."""
_BUSBW = 7
"""Column of such a row: the bus bandwidth in GB/s, out of place."""


class Over(str, Enum):
    """What carries the data on one node."""

    NVLINK = "nvlink"
    FABRIC = "fabric"


def run(
    stack: options.Stack,
    *,
    partition: common.PartitionName = None,
    nodes: Annotated[
        int | None, Option(min=1, max=10_000, metavar="N", help="Default: 2, where there are 2.", show_default=False)
    ] = None,
    nodelist: Annotated[
        str, Option(metavar="NODES", help="Use these, such as a3mega-[0-1].", show_default=False)
    ] = "",
    pairs: Annotated[
        bool, Option("--pairs", help="Find slow nodes: measure pairs of nodes side by side, in two rounds as a rule.")
    ] = False,
    collective: Annotated[
        str | None, Option(metavar="NAME", show_default=False,
                           help=f"One of {', '.join(NCCL_TESTS.collectives)}. Default: all_reduce on InfiniBand, else "
                           "all_gather."),
    ] = None,
    smallest: Annotated[
        str | None, Option("--min", metavar="SIZE", help="Smallest message. Default: 512M on InfiniBand, else 8M.",
                           show_default=False),
    ] = None,
    largest: Annotated[str, Option("--max", metavar="SIZE", help="Largest message.")] = "8G",
    iters: Annotated[
        int | None, Option(min=1, max=1_000_000, metavar="N", show_default=False,
                           help="Timed iterations for each size. Default: 200 with TCPXO, else nccl-tests' own."),
    ] = None,
    check: Annotated[bool, Option("--check", help="Check the results too: wrong ones are counted.")] = False,
    over: Annotated[
        Over | None, Option(help="On one node with InfiniBand: over NVLink, or over the NICs by force. Default: NCCL "
                            "decides.", show_default=False),
    ] = None,
    binaries: Annotated[
        str, Option(metavar="FOLDER", help="Programs of nccl-tests on the cluster, used without a container.",
                    show_default=False)
    ] = "",
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", show_default=False,
                            help="Where to save the log. Default: nccl-STACK-COLLECTIVE-JOB.log, here."),
    ] = None,
    against: nccl_report.Against = None,
    user: common.As = None,
    dry_run: common.DryRun = False,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Measure the bandwidth between GPUs, as a job on whole nodes, and report it.

    The job sets the environment that its nodes' network needs, runs a warm-up and then the test. Its log is saved here,
    and reported as by `nccl report`, whose exit code it has. Ctrl-C cancels the job.

    With --pairs every node of the partition, or of --nodelist, is measured with another one; nodes of slow pairs meet
    one that was fast, and those that are slow again are named. Exit code 1: a node or a pair is slow, or is not known.

    On nodes with GPUDirect-TCPXO: all_gather from 8 MiB to 8 GiB with 200 iterations, in the container of `nccl build`.
    On Nebius: all_reduce from 512 MiB on, with the programs of the nodes' image.
    """
    request = Request(
        nodes=nodes, nodelist=nodelist, collective=collective, smallest=smallest, largest=largest, iters=iters,
        check=check, over=over.value if over else None, binaries=binaries,
    )  # fmt: skip
    if pairs:
        _refuse_with_pairs(nodes=nodes, over=over, output=output, against=against)
    if dry_run:
        config, facts = common.planned(stack, partition)
        wanted = request.checked(config, facts)
        console.lines(run_script(config, first_pair(wanted) if pairs else wanted).text().splitlines())
        return
    chosen = common.chosen(stack, partition, user, stand_ins=bool(binaries))
    wanted = request.checked(chosen.config, chosen.partition)
    if against and not against.exists():
        raise CliError(f"--against: {against} does not exist.")
    if output and output.exists():
        raise CliError(f"{output}: is there already, and is not overwritten. Give another name, or move it away.")
    if not pairs and not os.access(folder := (output or Path("log")).parent, os.W_OK):
        raise CliError(
            f"the log can't be saved: {folder.absolute()} is no folder that you can write to. Name another "
            "file with --output."
        )
    if way(chosen.config, wanted.binaries) != "installed" and not is_built(chosen):
        raise CliError(f"{chosen.jobs.user} has no NCCL test yet. Build it with: {_build(stack, chosen.jobs.user)}")
    chosen.prepare()
    if pairs:
        found = PairsRun(chosen=chosen, wanted=wanted).measure()
        console.json(document_of(found)) if json else console.lines(lines_of(found, stack))
        if not passed(found):
            raise Exit(1)
        return
    file, failure = _measure(chosen, wanted, output)
    (console.note if json else console.line)(f"Saved {file}")
    if failure:
        console.error(failure)
    nccl_report.report(str(file), against=against, json=json)
    if failure:
        raise Exit(1)


def _refuse_with_pairs(**given: object) -> None:
    """Options that are about one run."""
    if wrong := [f"--{name}" for name, value in given.items() if value is not None]:
        raise CliError(f"--pairs goes without {', '.join(wrong)}. --nodelist names the nodes to pair.")


def _measure(chosen: common.Chosen, wanted: NcclRun, output: Path | None) -> tuple[Path, str]:
    """Run the job; the file here that has its log, and how the job failed, if it did. Raises CliError: it failed before
    it measured anything."""
    jobs = chosen.jobs
    number = jobs.submit(run_script(chosen.config, wanted).text())
    console.note(
        f"Job {number} of {jobs.user}: {wanted.collective} on {wanted.nodes} {wanted.partition.machine_type.name}, "
        f"partition {wanted.partition.name}"
    )
    afterwards = f"./hpc nccl report {number} --stack {jobs.stack}"
    state = Progress(jobs, number, f"{LOGS}/{number}.log", _SHOWN, afterwards, _progress).wait()
    text = jobs.run(f"head -c 20000000 {LOGS}/{number}.log 2>/dev/null || true", seconds=300)
    file = output or Path(f"nccl-{jobs.stack}-{wanted.collective}-{number}.log")
    if text:
        _save(file, text, afterwards)
    if state.completed:
        return file, ""
    failure = f"job {number} ended as {state.state} (exit code {state.exit_code}) on {state.nodes or 'no node'}"
    # nccl-tests ends with exit code 1 after wrong results too, and a job that is out of time has some rows.
    if _has_rows(text, file):
        return file, f"{failure}. What it measured until then:"
    end = "\n".join(text.splitlines()[-40:])
    raise CliError(failure + (f". Its log is {file}, which ends so:\n{end}" if text else ", without a log."))


def _has_rows(text: str, file: Path) -> bool:
    try:
        return bool(read_text(text, str(file)).last.rows)
    except NotALogError:
        return False


def _save(file: Path, text: str, afterwards: str) -> None:
    try:
        with file.open("x", encoding="utf-8", newline="") as out:
            out.write(text)
    except OSError as error:
        raise CliError(f"{file}: can't be written: {error.strerror}. To read it on the cluster: {afterwards}") from None


def _progress(line: str) -> str:
    """A line of the log as progress: sizes in MiB, bandwidth in GB/s."""
    if line.startswith("==> "):
        return line.removeprefix("==> ")
    cells = line.split()
    size = int(cells[0]) / (1 << 20)
    return f"{size:10,.6g} MiB  {cells[_BUSBW]:>8} GB/s" if len(cells) > _BUSBW else ""


def _build(stack: str, user: str) -> str:
    return f"./hpc nccl build {stack} --as {user}"
