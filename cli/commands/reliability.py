"""`./hpc reliability`."""

import secrets
from typing import Annotated, Any

from typer import Option

from cli import console, options
from cli.cluster.cluster import Cluster, from_outputs
from cli.cluster.scheduler import Scheduler
from cli.display import accounting
from cli.errors import CliError
from cli.stack import outputs
from cluster.observe import reliability as measured
from cluster.observe.moment import SECONDS as UNITS
from cluster.observe.moment import MomentError, expression
from cluster.platforms.capability import Capability

_SECONDS = 600
"""Time for sacct to go through a year of records."""


def reliability(
    stack: options.Stack,
    *,
    since: Annotated[str, Option("--since", metavar="TIME", help="From then on.")] = "28d",
    until: Annotated[str, Option("--until", metavar="TIME", help="Up to then.")] = "now",
    checkpoint: Annotated[str, Option("--checkpoint", metavar="TIME", help="Time between two checkpoints.")] = "60m",
    restart: Annotated[str, Option("--restart", metavar="TIME", help="Until a restarted job trains again.")] = "5m",
    json: options.Json = False,
) -> None:
    """Show what faults cost: time between failures by kind, effective training time, lost GPU hours, availability.

    MTTF is node days in jobs divided by failures. A failure is a run that ended as NODE_FAIL, or as FAILED, requeued
    or cancelled by root with a failed health check or a lost node of its own from 10 min before until 5 min after it. A
    job of N nodes has MTTF / N. ETTR is productive time divided by the time from eligible to the end, weighted by
    GPUs: a failed run loses half a --checkpoint, a restarted one --restart. Availability is 1 - node time down or
    drained without a job / node time. Nodes are named that have more than chance explains in two signals of the last
    28 days. Terms and signals are those of arXiv 2410.21680; docs/guides/usage-and-faults.md has every formula.

    JSON: {cluster, since, until, node_days, failures, kinds, mttf_of_jobs, ettr, availability, hours, lemons, ...}.
    """
    assumed = measured.Assumptions(checkpoint=_span("--checkpoint", checkpoint), restart=_span("--restart", restart))
    words: list[str] = []
    for option, given in (("--since", since), ("--until", until)):
        try:
            words.append(expression(given))
        except MomentError as error:
            raise CliError(f"{option}: {error}") from None
    cluster = from_outputs(stack, outputs.read(stack, show_secrets=True), Capability.USAGE)
    found = measured.reliability(read(cluster, stack, *words), assumed)
    if json:
        console.json({"cluster": cluster.name, **found})
    else:
        _show(found)


def read(cluster: Cluster, stack: str, since: str, until: str) -> measured.Facts:
    """The facts between two moments, as `date --date=` reads them. Raises CliError: the controller does not answer, or
    the one is not before the other."""
    mark = secrets.token_hex(12)
    moments = "; ".join(f'{name}="$(date --date="{at}" +%s)"' for name, at in (("since", since), ("until", until)))
    line = f'{moments}; echo "$since $until"\n{measured.command(mark)}'
    first, _, text = Scheduler(cluster, stack).ask(line, seconds=_SECONDS).partition("\n")
    try:
        start, end = map(int, first.split())
        if start >= end:
            raise CliError(f"--since ({since}) is not before --until ({until}).")
        return measured.read(text, mark, since=start, until=end)
    except ValueError as error:
        raise CliError(f"{cluster.controller.name}: {error}") from None


def _span(option: str, given: str) -> float:
    number, unit = given[:-1], given[-1:]
    if unit not in UNITS or not number.isdigit():
        raise CliError(f"{option} {given!r}: a time is expected, such as 90s, 15m or 2h.")
    return float(int(number) * UNITS[unit])


def _show(found: dict[str, Any]) -> None:
    console.table(accounting.reliability_table(found), right={1})
    if found["kinds"]:
        console.line()
        console.table(accounting.failures_table(found), right={1, 2, 3})
    console.line()
    for line in accounting.lemon_lines(found):
        console.line(line)
    for line in accounting.assumption_lines(found):
        console.note(line)
