"""What is wrong with a log itself: cut short, two programs in one file, wrong results."""

from collections.abc import Iterator, Sequence

from cluster.findings import Finding, Level
from cluster.report.nccl.run import Log, Quote, Run, text_of
from cluster.report.nccl.subject import Subject

_MOST_LINES = 5


def log_findings(log: Log, run: Run, subject: Subject) -> Iterator[Finding]:
    """Findings about `run`, the one that is compared."""
    where = f"{log.name}:{run.line}"
    yield from _other_runs(log, run)
    yield from _mixture(log, run)
    yield from _end(log, run)
    if run.out_of_bounds or run.wrong:
        yield Finding(
            id="nccl-wrong-results",
            at=where,
            what=f"Wrong results: {_wrong(run)}. Data was corrupted on the way or in a GPU's memory",
            todo="drain the nodes, read the kernel's log for Xid and ECC errors (`dmesg | grep -i xid`), and run "
            "`dcgmi diag -r 3` on each; run the test on pairs of nodes to see which one it is",
        )
    elif run.rows and not run.checked:
        yield Finding(
            id="nccl-unchecked",
            level=Level.INFO,
            at=where,
            what="Results were not compared with what they should be (#wrong is N/A): the test ran with `-c 0`",
            todo="run it once without `-c 0` to know that the results are right",
        )
    if run.average_failed:
        yield Finding(
            id="nccl-average-failed",
            at=where,
            what=f"nccl-tests itself says FAILED: the average, {run.average:.1f} GB/s, is less than 90 % of "
            "NCCL_TESTS_MIN_BW",
            todo="correct the cause below, or NCCL_TESTS_MIN_BW where it is for another machine type",
        )
    yield from _differences(log, run, subject)
    if run.complaints:
        lines = "; ".join(_cited(one) for one in run.complaints[:_MOST_LINES])
        more = f"; and {len(run.complaints) - _MOST_LINES} more" if len(run.complaints) > _MOST_LINES else ""
        yield Finding(
            id="nccl-complaints",
            level=Level.WARNING,
            at=where,
            what=f"The log has warnings or errors: {lines}{more}",
            todo="read these lines in the log; the first one is the likeliest cause",
        )


def _other_runs(log: Log, run: Run) -> Iterator[Finding]:
    if len(log.runs) == 1:
        return
    place = [one is run for one in log.runs].index(True) + 1
    tasks = {one.task for one in log.runs if one.task}
    if len(tasks) > 1 and run.rows:
        what = f"{len(log.runs)} runs by {len(tasks)} tasks: each task ran a test of its own"
        todo = "build nccl-tests with `make MPI=1`, and start it with `srun --mpi`: then only task 0 prints"
        yield Finding(id="nccl-runs-by-task", at=f"{log.name}:{run.line}", what=what, todo=todo)
        return
    lines = ", ".join(str(one.line) for one in log.runs)
    yield Finding(
        id="nccl-several-runs",
        level=Level.INFO,
        at=f"{log.name}:{run.line}",
        what=f"{len(log.runs)} runs, which begin at lines {lines}. The result is about number {place}",
        todo="nothing, if the others are warm-ups",
    )


def _mixture(log: Log, run: Run) -> Iterator[Finding]:
    if lines := [one.mixed for one in log.runs if one.mixed]:
        yield Finding(
            id="nccl-mixed",
            at=f"{log.name}:{min(lines)}",
            what="Rows of two programs stand among each other from this line on, so no row can be attributed",
            todo="write each program's output to a file of its own (`srun --output=%t.log`), or label the lines "
            "(`srun --label`). If one test was meant, build nccl-tests with `make MPI=1`",
        )
    if run.torn:
        lines = "; ".join(_cited(one) for one in run.torn[:_MOST_LINES])
        yield Finding(
            id="nccl-torn",
            at=f"{log.name}:{run.torn[0].line}",
            what=f"Torn lines, which were left out: {lines}",
            todo="write the output of each program to a file of its own, and run the test again",
        )


def _end(log: Log, run: Run) -> Iterator[Finding]:
    if run is not log.runs[-1] and run.rows and not log.runs[-1].rows:
        yield Finding(
            id="nccl-truncated",
            at=f"{log.name}:{log.runs[-1].line}",
            what="The last run of the log ends before its first row. The result is about one before it",
            todo="see why it stopped, in the lines that follow, or report the one before in a file of its own",
        )
    if run.complete:
        if not run.rows:
            yield Finding(
                id="nccl-no-rows",
                level=Level.WARNING,
                at=f"{log.name}:{run.line}",
                what="The log has the footer of a test and no row of its table: somebody has shortened it",
                todo="report the program's own output",
            )
        return
    if not run.rows:
        what = "The log ends before the first row: the program stopped while it connected its ranks"
    else:
        last = run.unfinished.line if run.unfinished else run.rows[-1].line
        size = text_of(run.rows[-1].size)
        what = f"Truncated: the footer is missing. The last row, of {size}, begins at line {last}"
    yield Finding(
        id="nccl-truncated",
        at=f"{log.name}:{run.line}",
        what=what,
        todo="if the job still runs, wait for its end. Else see why it stopped: `sacct -j JOB -o State,ExitCode`, "
        "and the errors in this log",
    )


def _differences(log: Log, run: Run, subject: Subject) -> Iterator[Finding]:
    hosts = len(run.hosts)
    if hosts and subject.nodes and hosts != subject.nodes:
        yield Finding(
            id="nccl-nodes-differ",
            # Fewer nodes are faster than the reference. More may be containers with host names of their own.
            level=Level.ERROR if hosts < subject.nodes else Level.WARNING,
            at=f"{log.name}:{run.line}",
            what=f"The ranks are on {hosts} nodes, and the run is compared as one of {subject.nodes}",
            todo="name the right number with `--nodes`, or see why the job did not use all its nodes",
        )
    mean = run.mean()
    if run.average and mean and abs(run.average - mean) > 0.01 * max(run.average, mean) + 0.01:
        yield Finding(
            id="nccl-average-differs",
            level=Level.WARNING,
            at=f"{log.name}:{run.line}",
            what=f"The footer's average is {run.average:.2f} GB/s, that of the rows {mean:.2f}: rows are missing",
            todo="compare the log with the program's own output",
        )


def _wrong(run: Run) -> str:
    rows: Sequence[str] = [text_of(row.size) for row in run.rows if any(one.wrong for one in row.measures)]
    sizes = f" at {', '.join(dict.fromkeys(rows))}" if rows else ""
    return f"{run.wrong} wrong elements{sizes}" if run.wrong else f"{run.out_of_bounds} values out of bounds"


def _cited(quote: Quote) -> str:
    times = f" ({quote.times} times)" if quote.times > 1 else ""
    return f"line {quote.line}: {quote.text}{times}"
