"""`./hpc usage`."""

from collections.abc import Collection
from enum import Enum
from typing import Annotated

from typer import Option

from cli import console, options
from cli.cluster.cluster import Cluster, from_outputs
from cli.cluster.scheduler import Scheduler
from cli.display import accounting
from cli.errors import CliError, hint
from cli.stack import outputs
from cluster.load import parse_output
from cluster.observe import usage as used
from cluster.observe.moment import MomentError, on_machine
from cluster.platforms.capability import Capability

_SECONDS = 600
"""Time for sacct to go through months of records."""


class Key(str, Enum):
    """A key that hours are added up by."""

    USER = "user"
    ACCOUNT = "account"
    PARTITION = "partition"


def usage(
    stack: options.Stack,
    *,
    user: Annotated[str | None, Option("--user", metavar="USER", help="Only this user's.")] = None,
    account: Annotated[str | None, Option("--account", metavar="ACCOUNT", help="Only this account's.")] = None,
    since: Annotated[str, Option("--since", metavar="TIME", help="From then on.")] = "30d",
    until: Annotated[str, Option("--until", metavar="TIME", help="Up to then.")] = "now",
    by: Annotated[Key | None, Option("--by", help="One row for each. Default: for each of the three together.")] = None,
    json: options.Json = False,
) -> None:
    """Show who used how much: CPU hours, GPU hours and jobs, and how busy they were, from the accounting records.

    Hours are those that jobs held CPUs and GPUs for, busy or not. Jobs that still run count until now, and of jobs
    that began before or ended after the time asked for, the part within it. TIME is a date, a time of day, both
    (2026-11-21T05:30), or how long ago: 12h, 7d, 4w.

    CPU BUSY is the share of the held processor time that jobs used, of those that began and ended within the time; GPU
    BUSY that of GPUs, where Slurm measures them (gres/gpuutil).
    """
    moments: dict[str, str] = {}
    for option, given in (("--since", since), ("--until", until)):
        try:
            moments[option] = on_machine(given)
        except MomentError as error:
            raise CliError(f"{option}: {error}") from None
    values = outputs.read(stack, show_secrets=True)
    cluster = from_outputs(stack, values, Capability.USAGE)
    since, until, records = read(cluster, stack, moments["--since"], moments["--until"])
    found = records.records
    if records.runaways and not json:
        console.note(accounting.runaway_note(records))
    _known("user", user, {record.user for record in found}, cluster.users)
    configured = parse_output(values["config"]).accounting.accounts if values.get("config") else ()
    _known("account", account, {record.account for record in found}, [row.name for row in configured])
    found = [record for record in found if user in (None, record.user) and account in (None, record.account)]
    keys: tuple[used.By, ...] = (by.value,) if by else used.EACH
    rows, total = used.table(found, keys), used.total(found)
    if json:
        document = {
            "cluster": cluster.name,
            "since": since,
            "until": until,
            "rows": [dict(zip(keys, row.keys, strict=True)) | _figures(row) for row in rows],
            "total": _figures(total),
            "runaways": records.runaways,
        }
        console.json(document)
        return
    if not rows:
        console.note(f"Nothing of cluster {cluster.name} was used so between {since} and {until}.")
        return
    lines = accounting.usage_table(rows, total, keys)
    console.table(lines, right=set(range(len(keys), len(lines[0]))))
    console.note(f"From {since} to {until}, the controller's time.")


def read(cluster: Cluster, stack: str, since: str, until: str) -> tuple[str, str, used.Found]:
    """Both moments in the controller's time, and what was used between them; they are given as shell words there.
    Raises CliError: the controller does not answer, or the one is not before the other."""
    line = (
        f"start={since}; end={until}; "
        '[ "$start" \\< "$end" ] || { echo "--since ($start) is not before --until ($end)" >&2; exit 2; }; '
        'echo "$start $end" && ' + used.command('"$start"', '"$end"')
    )
    first, _, text = Scheduler(cluster, stack).ask(line, seconds=_SECONDS).partition("\n")
    try:
        start, end = first.split()
        return start, end, used.records(text, start, end)
    except ValueError as error:
        raise CliError(f"{cluster.controller.name}: {error}") from None


def _known(what: str, given: str | None, there: Collection[str], configured: Collection[str]) -> None:
    """Say of an unknown name which ones have records: a typo must not read as an idle user."""
    if given is not None and given not in there and given not in configured:
        names = ", ".join(sorted(there)) or "nobody"
        raise CliError(f"no {what} {given!r} used anything in that time.{hint(given, there)} Those who did: {names}.")


def _figures(row: used.Row) -> dict[str, float | int | None]:
    return {
        "cpu_hours": round(row.cpu_hours, 4),
        "gpu_hours": round(row.gpu_hours, 4),
        "cpu_seconds": row.cpu_seconds,
        "gpu_seconds": row.gpu_seconds,
        "jobs": row.jobs,
        "cpu_efficiency": None if row.cpu_efficiency is None else round(row.cpu_efficiency, 4),
        "gpu_utilization": None if row.gpu_utilization is None else round(row.gpu_utilization, 4),
    }
