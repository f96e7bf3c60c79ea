"""`./hpc mlperf report`."""

import io
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

from typer import Argument, Exit, Option

from cli import console, options
from cli.cluster.jobs import Jobs
from cli.errors import CliError
from cluster.catalog.mlperf import STORAGE
from cluster.regular_file import refuse_special
from cluster.report.mlperf_log import ITERATION, MARK, NotAnMlperfLogError
from cluster.report.mlperf_report import MlperfReport, UnknownSetupError, read_report

_LOG_BYTES = 200_000_000
"""Bytes of lines that are read from a cluster: those of 400,000 intervals."""
_FIRST_LINE_BYTES = 300
"""Bytes of the first line that are read from a cluster: they show what a file is that is no log."""


def find_log(jobs: Jobs, log: str, data: str) -> str:
    """Return the path of a log, which is given as a path or as the number of its job. Raises CliError: there is no such
    file; or slurmctld does not have the job any more, and no data folder has its log."""
    path = log if log.startswith("/") else _log_of_job(jobs, log, data)
    file = shlex.quote(path)
    if not jobs.run(f"if [ -f {file} ] && [ -r {file} ]; then echo there; fi").strip():
        raise CliError(f"{path} is no file on the cluster that {jobs.user} can read.")
    return path


def _log_of_job(jobs: Jobs, number: str, data: str) -> str:
    if not number.isascii() or not number.isdigit():
        raise CliError(f"{number!r} is no job: with --stack, name the number of one, or the path of a log there.")
    folders = [data] if data else [storage.path for storage in STORAGE.values()]
    places = " ".join(f"{shlex.quote(folder)}/logs/{number}_*.out" for folder in folders)
    line = (
        f"scontrol --oneliner show job {number} 2>/dev/null | sed -n 's/.* StdOut=\\([^ ]*\\).*/\\1/p'; "
        f"ls -1 -- {places} 2>/dev/null || true"
    )
    paths = [path for path in jobs.run(line).splitlines() if path.startswith("/")]
    if not paths:
        raise CliError(
            f"no log of job {number} is in {' or '.join(f'{folder}/logs' for folder in folders)}, and slurmctld does "
            "not know it any more. Name its data folder with --data, or the log's path instead of the job."
        )
    return paths[0]


def fetch_log(jobs: Jobs, path: str) -> BinaryIO:
    """Return a copy of a log with the beginning of its first line and the lines that a report needs; other lines are
    empty. The copy is empty if the log does not exist yet."""
    program = f"/{MARK}|{re.escape(ITERATION)}/b; 1{{s/^(.{{{_FIRST_LINE_BYTES}}}).*/\\1/;b}}; s/.*//"
    line = f"LC_ALL=C sed -E {shlex.quote(program)} {shlex.quote(path)} 2>/dev/null | head -c {_LOG_BYTES} || true"
    return io.BytesIO(jobs.run(line, seconds=600).encode("utf-8", "replace"))


def report(
    log: Annotated[
        str, Argument(metavar="FILE|JOB", help="The log; `-` is standard input. With --stack: a job, or a path.")
    ],
    *,
    target: Annotated[
        str,
        Option(
            "-g",
            "--target",
            metavar="SETUP",
            help="Compare with this set-up: 1xH100, 2xH100, 8xH100. Default: the one that the log shows.",
        ),
    ] = "",
    png: Annotated[Path | None, Option("--png", metavar="FILE", help="Write a plot as a picture.")] = None,
    json: options.Json = False,
    stack: Annotated[str, Option("--stack", metavar="STACK", help="Read the log on this cluster.")] = "",
    data: Annotated[str, Option(metavar="FOLDER", help="With --stack: the benchmark's data folder.")] = "",
    user: Annotated[str | None, Option("--as", metavar="USER", help="With --stack: who reads it.")] = None,
) -> None:
    """Show the time of training steps in a log of MLPerf, and compare it with the published time.

    The log is the output of a job of Stable Diffusion or GPT-3, with other lines between. Each run in it is reported.
    The exit code is 1 if the last one is slower than the target, or has no training steps.
    """
    with _open_on_cluster(stack, user, log, data) if stack else _open(log) as (name, file):
        result = of_log(file, name, target)
    show(result, name, png=png, json=json)


def of_log(file: BinaryIO, name: str, target: str) -> MlperfReport:
    """Report an open log. Raises CliError: it is no log of MLPerf, or there is no such target."""
    try:
        return read_report(file, target)
    except NotAnMlperfLogError as error:
        raise CliError(f"{name} {error}.") from None
    except UnknownSetupError as error:
        raise CliError(f"-g: {error}.") from None


def show(report: MlperfReport, name: str, *, png: Path | None, json: bool) -> None:
    """Print a report. Ends the command with exit code 1 if the last run is too slow or has no training steps."""
    if json:
        console.json({"file": name, **report.document()})
    else:
        console.lines(report.lines())
        for note in report.notes():
            console.note(f"note: {note}.")
    if png:
        _save_plot(report, name, png)
    if report.result in ("fail", "empty"):
        raise Exit(1)


def _save_plot(report: MlperfReport, name: str, png: Path) -> None:
    from cli.commands.jobs.job_cluster import save_plot

    curves, x_label, y_label = report.curves()
    if not curves:
        console.note("There is nothing to plot: no run has training steps.")
        return
    title = f"{report.runs[-1].run.title}: {Path(name).name}"
    save_plot(curves, png, title=title, x_label=x_label, y_label=y_label)


@contextmanager
def _open_on_cluster(stack: str, user: str | None, log: str, data: str) -> Iterator[tuple[str, BinaryIO]]:
    # A log on this machine does not need the models of stack files, which this imports.
    from cli.commands.jobs import job_cluster

    jobs = job_cluster.connect_user(stack, user)
    path = find_log(jobs, log, data)
    yield path, fetch_log(jobs, path)


@contextmanager
def _open(log: str) -> Iterator[tuple[str, BinaryIO]]:
    path = Path(log)
    try:
        if path.is_dir():
            raise CliError(f"{log} is a folder: name the log's file.")
        if log != "-":
            refuse_special(path, pipes=True)
        file = sys.stdin.buffer if log == "-" else path.open("rb")
    except OSError as error:
        raise CliError(f"can't read {log}: {error.strerror}.") from None
    with file:
        if file.seekable():
            yield log, file
            return
        with tempfile.TemporaryFile() as copy:  # a pipe can be read only once
            shutil.copyfileobj(file, copy)
            copy.seek(0)
            yield "standard input" if log == "-" else log, copy
