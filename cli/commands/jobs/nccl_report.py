"""`./hpc nccl report`."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from cli import console, options
from cli.cluster.cluster import connect
from cli.cluster.jobs import read_job_log
from cli.errors import CliError, hint
from cluster.capability import Capability
from cluster.regular_file import refuse_special
from cluster.report.nccl_compare import Comparison, compare, log_files, read_dated_logs, read_folder
from cluster.report.nccl_log import NotALogError, read_file, read_text
from cluster.report.nccl_report import (
    X_LABEL,
    Y_LABEL,
    finding_lines,
    report_curves,
    report_document,
    report_lines,
)
from cluster.report.nccl_result import NcclResult, ReportOptions, ReportOutcome, check
from cluster.report.nccl_run import COLLECTIVES, NcclLog, collective_name

_LOG_BYTES = 100_000_000
"""Bytes of a job's log that are read from a cluster."""

Against = Annotated[
    Path | None, Option("--against", metavar="FILE|FOLDER", help="Compare with earlier runs: their logs.")
]


def report(
    log: Annotated[
        str,
        Argument(
            metavar="FILE|FOLDER|JOB",
            help="A log, a folder of logs, or with --stack the number of a job. `-` is standard input.",
        ),
    ],
    *,
    stack: Annotated[str, Option("--stack", metavar="STACK", help="Read the log of a job from this cluster.")] = "",
    machine_type: Annotated[
        str, Option("--machine-type", metavar="TYPE", help="Machine type of the nodes. Default: the log's.")
    ] = "",
    nodes: Annotated[
        int | None, Option("--nodes", metavar="N", min=1, help="Number of nodes. Default: the log's.")
    ] = None,
    collective: Annotated[
        str, Option("--collective", metavar="NAME", help="all_gather, all_reduce ... Default: the log's.")
    ] = "",
    against: Against = None,
    png: Annotated[Path | None, Option("--png", metavar="FILE", help="Write the plot as a picture.")] = None,
    json: options.Json = False,
) -> None:
    """Show what an NCCL test measured, compare it with the reference of the machine type, and say what it means.

    The log is the output of nccl-tests, of version 2.13 or newer, with other lines between. Jobs of `./hpc nccl
    run` write machine type, nodes and collective into their logs; of other logs name them, since references are kept by
    them. The exit code is 0 if the result is `pass`, else 1. Of a folder, each log has one line, and nodes that were
    slow with every partner are named.
    """
    if collective and (collective := collective_name(collective)) not in COLLECTIVES:
        raise CliError(
            f"--collective {collective!r}: nccl-tests has none of that name.{hint(collective, COLLECTIVES)} "
            f"There are: {', '.join(COLLECTIVES)}."
        )
    given = ReportOptions(machine_type=machine_type, nodes=nodes, collective=collective)
    try:
        is_folder = Path(log).is_dir()
    except OSError as error:  # the name is too long, or a folder above can't be searched
        raise CliError(f"can't read {Path(log)}: {error.strerror}.") from None
    if is_folder:
        if against or png:
            raise CliError("--against and --png are for one log; name a file of the folder.")
        outcome = _report_folder(Path(log), given, json=json)
    else:
        read = _read_log(log, stack)
        result = check(read, given)
        outcome = result.outcome
        earlier = _compare(read, result, against, given) if against else None
        if json:
            document = report_document(read, result)
            console.json({**document, "against": earlier.document()} if earlier else document)
        else:
            _print(read, result, given, earlier)
        if png:
            _save_plot(result, earlier, png)
    if outcome is not ReportOutcome.PASS:
        raise Exit(1)


def _read_log(name: str, stack: str) -> NcclLog:
    """Read a log: standard input, a job's on a cluster, or a file."""
    path = Path(name)
    try:
        if name == "-":
            return read_text(sys.stdin.buffer.read().decode("utf-8", "replace"), "standard input")
        if name.isascii() and name.isdigit() and not path.exists():
            if not stack:
                raise CliError(f"{name} is no file. If it is the number of a job, name its cluster: --stack STACK.")
            cluster = connect(stack, Capability.RUN)
            place, text = read_job_log(cluster, name, _LOG_BYTES)
            return read_text(text, place)
        if stack:
            raise CliError(f"--stack goes with the number of a job, and {name} is a file.")
        refuse_special(path, pipes=True)
        return read_file(path)
    except NotALogError as error:
        raise CliError(str(error.finding)) from None
    except OSError as error:
        raise CliError(f"can't read {name}: {error.strerror or error}.") from None


def _compare(log: NcclLog, result: NcclResult, against: Path, given: ReportOptions) -> Comparison:
    """Compare a result with the logs at `against`, without the log itself."""
    if not against.exists():
        raise CliError(f"--against: {against} does not exist.")
    own_path = Path(log.name).resolve()
    others = read_dated_logs(path for path in log_files(against) if path.resolve() != own_path)
    return compare(result.run, result.subject, others, given)


def _print(log: NcclLog, result: NcclResult, given: ReportOptions, earlier: Comparison | None) -> None:
    console.lines(report_lines(log, result, given))
    if earlier:
        finding = earlier.finding(log.name)
        console.lines(["", *earlier.lines(), "", *finding_lines(finding)])


def _save_plot(result: NcclResult, earlier: Comparison | None, png: Path) -> None:
    from cli.commands.jobs.job_cluster import save_plot

    curves, ticks = report_curves(result, earlier.curves() if earlier else ())
    title = f"{result.subject}: {result.outcome.value}"
    try:
        save_plot(curves, png, title=title, x_label=X_LABEL, y_label=Y_LABEL, x_log=True, x_ticks=ticks)
    except ValueError:
        console.note("There is nothing to plot: the log has no rows.")


def _report_folder(path: Path, given: ReportOptions, *, json: bool) -> ReportOutcome:
    """Print a line for each log of a folder, and return the outcome of all."""
    paths = log_files(path)
    if not paths:
        raise CliError(f"{path} has no files.")
    folder = read_folder(paths, given)
    if json:
        console.json(folder.document())
    elif not folder.entries:
        raise CliError("\n\n".join(map(str, folder.unread[:3])))
    else:
        console.lines(folder.lines())
        for finding in folder.findings():
            console.lines(["", *finding_lines(finding)])
        console.lines(["", f"Result: {folder.outcome.value}"])
    return folder.outcome
