"""`./hpc job`."""

from typing import Annotated

from typer import Argument

from cli import console, options
from cli.cluster.cluster import from_outputs
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from cli.stack import outputs
from cluster.platforms.capability import Capability
from scripts.node.slurm.job_report import JobError, lines, report

_SECONDS = 180
"""Time for the records of one job: of a large array there are many."""


def job(
    stack: options.Stack,
    number: Annotated[str, Argument(metavar="ID", help="7, a task of an array (7_3), or a component (7+1).")],
    *,
    json: options.Json = False,
) -> None:
    """Show one job: why it waits, what it asked for and used, and what happened on its nodes meanwhile.

    With each of its runs if it was requeued, and what to ask for next time. What happened: nodes that Slurm did not
    use, failed health checks and repairs, from ten minutes before a run until five minutes after it. GPUs are measured
    only where slurmd has NVML. Users have the same as `hpc-job ID` on the login machine, for what Slurm lets them see.

    JSON: {job, notes, jobs [{id, state, waits, asked, allocated, used, runs, steps, meanwhile, next_time ...}]}, and
    of a whole array {array {states, tasks, waits ...}}. Times are seconds of the epoch, sizes bytes, shares 0 to 1.
    """
    scheduler = Scheduler(from_outputs(stack, outputs.read(stack, show_secrets=True), Capability.USAGE), stack)
    try:
        document = report(number, lambda script: scheduler.ask(script, seconds=_SECONDS))
    except JobError as error:
        raise CliError(f"{error}.") from None
    if json:
        console.json(document)
        return
    for line in lines(document):
        console.line(line)
