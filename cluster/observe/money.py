"""Costs of jobs: the time of nodes by month, user, account and partition at the rates of their machines; with the time
in which nodes were idle, out by faults or drained, so that the sum is all machine hours times their rate.

Pure functions of the records of cluster/observe/reliability.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Literal

from cluster.observe.reliability import HOUR, JobRun, ReliabilityRecords, Span, busy_spans, unused_seconds

Kind = Literal["jobs", "idle", "faults", "drained"]


@dataclass(frozen=True, kw_only=True)
class NodePrice:
    """Sizes of a node in Slurm, and the price of its machine."""

    cpus: int
    gpus: int
    hour: float | None
    """Price of the machine for one hour, with its GPUs and disks; None if it is unknown."""


@dataclass(frozen=True, order=True)
class MoneyKey:
    """The jobs, or the unused time, that a row is about."""

    month: str
    """As 2026-11, in UTC."""
    kind: Kind
    user: str = ""
    account: str = ""
    partition: str = ""


@dataclass(frozen=True)
class MoneyRow:
    """Node hours and their price. A job on half of a node has half of its hours."""

    node_hours: float = 0.0
    amount: float = 0.0

    def __add__(self, other: "MoneyRow") -> "MoneyRow":
        return MoneyRow(self.node_hours + other.node_hours, self.amount + other.amount)


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Costs of a cluster's nodes in a period."""

    rows: Mapping[MoneyKey, MoneyRow]
    """Rows by key, in order."""
    unpriced: Mapping[str, float]
    """Hours by node of nodes without a known price, which no row includes."""

    @property
    def total(self) -> MoneyRow:
        """All machine hours with a known price."""
        return sum(self.rows.values(), MoneyRow())


def spending(facts: ReliabilityRecords, nodes: Mapping[str, NodePrice]) -> Spending:
    """Return the costs of the nodes. `nodes` has those of the stack by name; others have no known price."""
    rows: dict[MoneyKey, MoneyRow] = defaultdict(MoneyRow)
    unpriced: dict[str, float] = defaultdict(float)
    for month, span in _months(facts.since, facts.until):
        _add_month(rows, unpriced, month, _cut(facts, span), nodes)
    return Spending(rows=dict(sorted(rows.items())), unpriced=dict(unpriced))


def _add_month(
    rows: dict[MoneyKey, MoneyRow],
    unpriced: dict[str, float],
    month: str,
    facts: ReliabilityRecords,
    nodes: Mapping[str, NodePrice],
) -> None:
    hours = _machine_hours(facts)
    prices = {name: price for name in hours if (node := nodes.get(name)) and (price := node.hour) is not None}
    for name in hours.keys() - prices.keys():
        unpriced[name] += hours[name]

    def add(key: MoneyKey, name: str, used: float) -> None:
        rows[key] += MoneyRow(used, used * prices[name])
        hours[name] -= used

    busy = busy_spans(facts.runs, {outage.node for outage in facts.outages})
    runs: dict[str, list[JobRun]] = defaultdict(list)
    for run in facts.runs:
        for name in run.nodes:
            runs[name].append(run)
    for name in prices:
        for run, used in _held(runs[name], nodes[name]):
            add(MoneyKey(month, "jobs", run.user, run.account, run.partition), name, used)
    for outage in (outage for outage in facts.outages if outage.node in prices and not outage.off):
        out = unused_seconds(outage, busy[outage.node]) / HOUR
        add(MoneyKey(month, "faults" if outage.kind else "drained"), outage.node, out)
    for name in prices:
        add(MoneyKey(month, "idle"), name, hours[name])


def _held(runs: Sequence[JobRun], node: NodePrice) -> Iterator[tuple[JobRun, float]]:
    """Yield the hours of a node that each of its runs held, piece by piece. Runs whose shares are more than the node
    together, as one with all GPUs and another with most CPUs, divide it in that proportion."""
    active: dict[int, float] = {}
    last = 0.0
    for at, n in sorted((at, n) for n, run in enumerate(runs) for at in (run.start, run.end)):
        whole = max(1.0, sum(active.values()))
        for held, share in active.items():
            yield runs[held], (at - last) / HOUR * share / whole
        last = at
        if active.pop(n, None) is None:
            active[n] = _share(runs[n], node)


def _share(run: JobRun, node: NodePrice) -> float:
    """Return the share of a node that a run held: that of its CPUs or of its GPUs, whichever is larger."""
    return max(held / len(run.nodes) / size for held, size in ((run.cpus, node.cpus), (run.gpus, node.gpus)) if size)


def _machine_hours(facts: ReliabilityRecords) -> dict[str, float]:
    """Return the hours by node for which its machine existed."""
    seconds: dict[str, float] = defaultdict(float)
    for start, end, names, _ in facts.capacity:
        for name in names:
            seconds[name] += end - start
    for outage in facts.outages:
        if outage.off and outage.node in seconds:
            seconds[outage.node] -= outage.end - outage.start
    return {name: spent / HOUR for name, spent in seconds.items()}


def _cut(facts: ReliabilityRecords, span: Span) -> ReliabilityRecords:
    """Return the part of the records that is in a span."""

    def overlap(start: float, end: float) -> Span | None:
        first, last = max(start, span[0]), min(end, span[1])
        return (first, last) if last > first else None

    return replace(
        facts,
        since=span[0],
        until=span[1],
        runs=[replace(run, start=s[0], end=s[1]) for run in facts.runs if (s := overlap(run.start, run.end))],
        outages=[replace(out, start=s[0], end=s[1]) for out in facts.outages if (s := overlap(out.start, out.end))],
        capacity=[(*s, nodes, held) for start, end, nodes, held in facts.capacity if (s := overlap(start, end))],
    )


def _months(since: float, until: float) -> Iterator[tuple[str, Span]]:
    """Yield the months of a period, each with the part of it that is in the period."""
    while since < until:
        start = datetime.fromtimestamp(since, timezone.utc)
        following = datetime(start.year + start.month // 12, start.month % 12 + 1, 1, tzinfo=timezone.utc).timestamp()
        yield f"{start:%Y-%m}", (since, min(following, until))
        since = following


def grouped(spent: Spending, keys: Iterable[str]) -> dict[tuple[str, ...], MoneyRow]:
    """Return the sums of rows with the same month, kind and `keys` (user, account, partition)."""
    names = ("month", "kind", *keys)
    sums: dict[tuple[str, ...], MoneyRow] = defaultdict(MoneyRow)
    for key, row in spent.rows.items():
        sums[tuple(str(getattr(key, name)) for name in names)] += row
    return dict(sums)
