"""`./hpc reliability`."""

import secrets
from typing import Annotated, Any

from typer import Option

from cli import console, options
from cli.cluster.cluster import Cluster, from_outputs
from cli.cluster.scheduler import Scheduler
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
    console.table(figures(found), right={1})
    if found["kinds"]:
        console.line()
        console.table(kinds(found), right={1, 2, 3})
    console.line()
    for line in lemons(found):
        console.line(line)
    for line in notes(found):
        console.note(line)


def figures(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """A table of all figures."""
    unit = found["unit"].upper()
    days = (found["until"] - found["since"]) / measured.DAY
    rows = [
        ("node days in jobs", _figure(found["node_days"])),
        ("failures", str(found["failures"])),
        ("failures per 1000 node days", _figure(found["failures_per_1000_node_days"])),
        ("MTTF, node days", _figure(found["mttf_node_days"])),
        *((f"MTTF of a job of {row['nodes']} nodes, hours", _figure(row["hours"])) for row in found["mttf_of_jobs"]),
        ("ETTR", _figure(found["ettr"]["all"])),
        *((f"ETTR up to {row['nodes_up_to']} nodes", _figure(row["ettr"])) for row in found["ettr"]["by_size"]),
        ("availability", _figure(found["availability"])),
        ("availability without maintenance", _figure(found["availability_without_maintenance"])),
        ("outages of nodes by faults", str(found["outages_by_faults"])),
        ("MTTR of a node, hours", _figure(found["mttr_hours"])),
        *((f"{unit} hours, {name.replace('_', ' ')}", _figure(value)) for name, value in found["hours"].items()),
    ]
    return [("OVER THE LAST" if days == round(days) else "OVER", f"{days:.4g} DAYS"), *rows]


def kinds(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """A table of failures by kind."""
    head = ("KIND", "FAILURES", "MTTF, NODE DAYS", f"{found['unit'].upper()} HOURS LOST")
    rows = [
        (row["kind"], str(row["failures"]), _figure(row["mttf_node_days"]), _figure(row["lost_hours"]))
        for row in found["kinds"]
    ]
    return [head, *rows]


def lemons(found: dict[str, Any]) -> list[str]:
    """A sentence for each node that fails far more often than others, or one that there is none."""
    named = {
        lemon["node"]: ", ".join(f"{name} {value:g}" for name, value in lemon["signals"].items())
        for lemon in found["lemons"]
    }
    none = f"No node fails far more often than others in the last {measured.LEMON_DAYS} days."
    return [f"{node} fails far more often than others: {signals}" for node, signals in named.items()] or [none]


def notes(found: dict[str, Any]) -> list[str]:
    """What the figures rest on, as sentences."""
    assumed = found["assumed"]
    spans = (
        f"Assumed: a checkpoint each {assumed['checkpoint_seconds'] / 60:g} min, "
        f"{assumed['restart_seconds'] / 60:g} min until a restarted job trains again (--checkpoint, --restart)."
    )
    idle = "Idle GPUs in jobs are not measured: Slurm measures them where gres.conf has AutoDetect=nvml."
    return [spans, *([idle] if found["hours"]["idle_in_jobs"] is None and found["unit"] == "gpu" else [])]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
