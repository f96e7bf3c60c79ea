"""`./hpc usage` and `reliability`: what jobs used, and what faults cost, from the accounting records."""

import secrets
import shlex
from collections.abc import Collection
from dataclasses import replace
from typing import Annotated

from typer import Option

from cli import console, options
from cli.cluster.cluster import Cluster, connect
from cli.cluster.scheduler import Scheduler
from cli.display import accounting
from cli.errors import CliError, hint
from cluster.capability import Capability
from cluster.observe import reliability as measured
from cluster.observe import usage as used
from cluster.observe.moment import SECONDS as UNITS
from cluster.observe.moment import date_expression, machine_time
from cluster.observe.money import MoneyRow, grouped, spending
from scripts.node.slurm import hours
from scripts.node.slurm.hostlist import compress
from scripts.node.slurm.hours import Hours

_SECONDS = 600
"""Time limit of sacct, which reads months of records."""


def usage(
    stack: options.Stack,
    *,
    user: Annotated[str | None, Option("--user", metavar="USER", help="Only this user's.")] = None,
    account: Annotated[str | None, Option("--account", metavar="ACCOUNT", help="Only this account's.")] = None,
    since: Annotated[str, Option("--since", metavar="TIME", help="From then on.")] = "30d",
    until: Annotated[str, Option("--until", metavar="TIME", help="Up to then.")] = "now",
    by: Annotated[
        used.GroupKey | None, Option("--by", help="One row for each. Default: for each of the three together.")
    ] = None,
    money: Annotated[bool, Option("--money", help="Show what it cost, by month, at the stack's rates.")] = False,
    json: options.Json = False,
) -> None:
    """Show who used how much: CPU hours, GPU hours and jobs, and how busy they were, from the accounting records.

    Hours are those that jobs held CPUs and GPUs for, busy or not. Jobs that still run count until now, and of jobs
    that began before or ended after the time asked for, the part within it. TIME is a date, a time of day, both
    (2026-11-21T05:30), or how long ago: 12h, 7d, 4w.

    CPU BUSY is the share of the held processor time that jobs used, of those that began and ended within the time; GPU
    BUSY that of the GPUs of jobs that DCGM measured (`monitoring` in the stack file).

    --money has the machine hours of nodes at today's rates of the catalog and of `pricing`, those that were idle, out
    by faults or drained too, so that the sum is all machine hours times their rate.
    """
    from cli.stack import stack_config  # it imports the models, which reliability does not need

    if money:
        show_money(stack, user=user, account=account, since=since, until=until, by=by, json=json)
        return
    begin = options.read_time("--since", since, machine_time)
    end = options.read_time("--until", until, machine_time)
    cluster = connect(stack, Capability.USAGE)
    since, until, accounted = read_usage(cluster, begin, end)
    records = accounted.records
    if accounted.runaways and not json:
        console.note(accounting.runaway_note(accounted, stack))
    _require_known("user", user, {record.user for record in records}, cluster.users)
    configured = config.accounting.accounts if (config := stack_config.applied(cluster.outputs)) else ()
    _require_known("account", account, {record.account for record in records}, [row.name for row in configured])
    records = [record for record in records if user in (None, record.user) and account in (None, record.account)]
    period = config.accounting.period if config else None
    limits = [
        row
        for row in (read_hours(cluster) if period else ())
        if account in (None, row.account) and (not row.user or user in (None, row.user))
    ]
    keys: tuple[used.GroupKey, ...] = (by,) if by else used.GROUP_KEYS
    rows, total = used.table(records, keys), used.total(records)
    if json:
        document = {
            "cluster": cluster.name,
            "since": since,
            "until": until,
            "rows": [dict(zip(keys, row.keys, strict=True)) | _figures(row) for row in rows],
            "total": _figures(total),
            "runaways": accounted.runaways,
            "hours": [row._asdict() for row in limits],
        }
        console.json(document)
        return
    if rows:
        lines = accounting.usage_table(rows, total, keys)
        console.table(lines, right=set(range(len(keys), len(lines[0]))))
        console.note(f"From {since} to {until}, the controller's time.")
    else:
        console.note(f"Nothing of cluster {cluster.name} was used so between {since} and {until}.")
    if limits:
        console.line()
        console.table(accounting.hours_table(limits), right={3, 4, 5, 6})
        console.note(f"Limits are {period}; RESERVED is what running jobs may still use.")


def read_usage(cluster: Cluster, since: str, until: str) -> tuple[str, str, used.UsageRecords]:
    """Return two moments in the controller's time, and what was used between them. The moments are passed as words of
    its shell. Raises CliError: the controller does not answer, or the first moment is not before the second."""
    mark = secrets.token_hex(12)
    line = (
        f"start={since}; end={until}; "
        '[ "$start" \\< "$end" ] || { echo "--since ($start) is not before --until ($end)" >&2; exit 2; }; '
        'echo "$start $end" && ' + used.command(mark, '"$start"', '"$end"')
    )
    first, _, text = Scheduler(cluster).run(line, seconds=_SECONDS).partition("\n")
    try:
        start, end = first.split()
        return start, end, used.parse_records(text, mark, start, end)
    except ValueError as error:
        raise CliError(f"{cluster.controller.name}: {error}") from None


def show_money(
    stack: str, *, user: str | None, account: str | None, since: str, until: str, by: used.GroupKey | None, json: bool
) -> None:
    """Print what the nodes cost. Raises CliError: no price of a node is known, or the controller does not answer."""
    from cli.stack import stack_config  # as in usage
    from cluster.cost.nodes import node_prices

    begin = options.read_time("--since", since, date_expression)
    end = options.read_time("--until", until, date_expression)
    cluster = connect(stack, Capability.USAGE)
    config = stack_config.from_outputs(stack, cluster.outputs)
    currency, nodes = node_prices(config)
    if all(node.hour is None for node in nodes.values()):
        raise CliError(
            f"no price of a node of {stack} is known: write what `./hpc cost {stack}` lacks in `pricing.rates`."
        )
    facts = read_faults(cluster, begin, end)
    spent = spending(facts, nodes)
    if user or account:
        jobs = {key: row for key, row in spent.rows.items() if key.kind == "jobs"}
        _require_known("user", user, {key.user for key in jobs}, cluster.users)
        _require_known(
            "account", account, {key.account for key in jobs}, [row.name for row in config.accounting.accounts]
        )
        kept = {key: row for key, row in jobs.items() if user in (None, key.user) and account in (None, key.account)}
        spent = replace(spent, rows=kept)
    keys: tuple[used.GroupKey, ...] = (by,) if by else used.GROUP_KEYS
    groups = grouped(spent, keys)
    if json:
        names = ("month", "kind", *keys)
        found = [dict(zip(names, key, strict=True)) | _amounts(row) for key, row in groups.items()]
        unpriced = {name: round(hours, 4) for name, hours in spent.unpriced.items()}
        console.json(
            {"cluster": cluster.name, "since": facts.since, "until": facts.until, "currency": currency, "rows": found,
             "total": _amounts(spent.total), "unpriced_node_hours": unpriced}
        )  # fmt: skip
        return
    lines = accounting.money_table(groups, spent.total, keys, currency)
    console.table(lines, right={len(lines[0]) - 2, len(lines[0]) - 1})
    console.note("Nodes only, at today's rates of the catalog and of `pricing`; months are of UTC.")
    if spent.unpriced:
        hours = sum(spent.unpriced.values())
        console.note(f"Not in it: {hours:.1f} hours of nodes without a known price: {compress(spent.unpriced)}.")


def _amounts(row: MoneyRow) -> dict[str, float]:
    return {"node_hours": round(row.node_hours, 4), "amount": round(row.amount, 2)}


def read_hours(cluster: Cluster) -> list[Hours]:
    """Return the limits of hours of accounts and users, and their use in this period. Raises CliError."""
    return hours.parse(Scheduler(cluster).run(shlex.join(hours.COMMAND)))


def _require_known(kind: str, name: str | None, recorded: Collection[str], configured: Collection[str]) -> None:
    """Raise CliError if a name has neither records nor an entry in the stack file: a typo must not read as an idle
    user."""
    if name is not None and name not in recorded and name not in configured:
        names = ", ".join(sorted(recorded)) or "nobody"
        raise CliError(f"no {kind} {name!r} used anything in that time.{hint(name, recorded)} Those who did: {names}.")


def _figures(row: used.UsageRow) -> dict[str, float | int | None]:
    return {
        "cpu_hours": round(row.cpu_hours, 4),
        "gpu_hours": round(row.gpu_hours, 4),
        "cpu_seconds": row.cpu_seconds,
        "gpu_seconds": row.gpu_seconds,
        "jobs": row.jobs,
        "cpu_efficiency": None if row.cpu_efficiency is None else round(row.cpu_efficiency, 4),
        "gpu_utilization": None if row.gpu_utilization is None else round(row.gpu_utilization, 4),
    }


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
    assumed = measured.Assumptions(
        checkpoint=_seconds("--checkpoint", checkpoint), restart=_seconds("--restart", restart)
    )
    begin = options.read_time("--since", since, date_expression)
    end = options.read_time("--until", until, date_expression)
    cluster = connect(stack, Capability.USAGE)
    figures = measured.reliability(read_faults(cluster, begin, end), assumed)
    if json:
        console.json({"cluster": cluster.name, **figures})
        return
    console.table(accounting.reliability_table(figures), right={1})
    if figures["kinds"]:
        console.line()
        console.table(accounting.failures_table(figures), right={1, 2, 3})
    console.line()
    for line in accounting.lemon_lines(figures):
        console.line(line)
    for line in accounting.assumption_lines(figures):
        console.note(line)


def read_faults(cluster: Cluster, since: str, until: str) -> measured.ReliabilityRecords:
    """Return the facts between two moments, which are texts that `date --date=` reads. Raises CliError: the controller
    does not answer, or the first moment is not before the second."""
    mark = secrets.token_hex(12)
    moments = "; ".join(f'{name}="$(date --date="{at}" +%s)"' for name, at in (("since", since), ("until", until)))
    line = f'{moments}; echo "$since $until"\n{measured.command(mark)}'
    first, _, text = Scheduler(cluster).run(line, seconds=_SECONDS).partition("\n")
    try:
        start, end = map(int, first.split())
        if start >= end:
            raise CliError(f"--since ({since}) is not before --until ({until}).")
        return measured.parse_facts(text, mark, since=start, until=end)
    except ValueError as error:
        raise CliError(f"{cluster.controller.name}: {error}") from None


def _seconds(option: str, text: str) -> float:
    """Parse a time span such as 15m."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal():
        raise CliError(f"{option} {text!r}: a time is expected, such as 90s, 15m or 2h.")
    return float(int(number) * UNITS[unit])
