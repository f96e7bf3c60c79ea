"""Tables of usage and reliability, for the terminal and for the page of `./hpc report`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster.observe import usage
from cluster.observe.money import MoneyRow
from cluster.observe.reliability import DAY, LEMON_DAYS
from cluster.printable import counted
from scripts.node.slurm.hours import Hours, figure


def runaway_note(records: usage.UsageRecords, stack: str) -> str:
    """Return the sentences about runaway jobs, which usage leaves out."""
    jobs = counted(records.runaways, "job")
    return (
        f"Left out: {jobs} without an end in the database, which slurmctld does not have. "
        f"./hpc ssh {stack} controller -- sacctmgr show runawayjobs lists them, and asks whether to end them, "
        "with no use of anything."
    )


def usage_table(rows: Iterable[usage.UsageRow], total: usage.UsageRow, keys: Sequence[str]) -> list[tuple[str, ...]]:
    """Return a heading, the rows and their total, with the column GPU BUSY if the use of GPUs was measured."""
    gpus = total.gpu_utilization is not None
    head = ("CPU HOURS", "CPU BUSY", "GPU HOURS", *(["GPU BUSY"] if gpus else []), "JOBS")
    lines = [(*(key.upper() for key in keys), *head), *((*row.keys, *_cells(row, gpus=gpus)) for row in rows)]
    return [*lines, ("total", *("" for _ in keys[1:]), *_cells(total, gpus=gpus))]


def _cells(row: usage.UsageRow, *, gpus: bool) -> tuple[str, ...]:
    busy = ["-" if share is None else f"{share:.0%}" for share in (row.cpu_efficiency, row.gpu_utilization)]
    return f"{row.cpu_hours:.2f}", busy[0], f"{row.gpu_hours:.2f}", *(busy[1:] if gpus else ()), str(row.jobs)


def money_table(
    groups: Mapping[tuple[str, ...], MoneyRow], total: MoneyRow, keys: Sequence[str], currency: str
) -> list[tuple[str, ...]]:
    """Return the sums by month and `keys`, with rows for the time of nodes without jobs, and the total."""
    rows = [
        (key[0], *(key[2:] if key[1] == "jobs" else (f"({key[1]})", *("" for _ in keys[1:]))), *_money(row))
        for key, row in groups.items()
    ]
    heading = ("MONTH", *(key.upper() for key in keys), "NODE HOURS", currency)
    return [heading, *rows, ("total", *("" for _ in keys), *_money(total))]


def _money(row: MoneyRow) -> tuple[str, str]:
    return f"{row.node_hours:,.2f}", f"{row.amount:,.2f}"


def hours_table(limits: Iterable[Hours]) -> list[tuple[str, ...]]:
    """Return the limits of hours of accounts and users, with the share of each that is used."""
    return [
        ("ACCOUNT", "USER", "HOURS OF", "USED", "RESERVED", "LIMIT", "SHARE"),
        *(
            (
                row.account,
                row.user or "all",
                row.resource,
                *map(figure, row[-2:]),
                figure(row.limit),
                f"{row.share:.0%}",
            )
            for row in limits
        ),
    ]


def reliability_table(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the figures of reliability.py, one in a row."""
    unit = figures["unit"].upper()
    days = (figures["until"] - figures["since"]) / DAY
    return [
        ("OVER THE LAST" if days == round(days) else "OVER", f"{days:.4g} DAYS"),
        ("node days in jobs", _figure(figures["node_days"])),
        ("failures", str(figures["failures"])),
        ("failures per 1000 node days", _figure(figures["failures_per_1000_node_days"])),
        ("MTTF, node days", _figure(figures["mttf_node_days"])),
        *((f"MTTF of a job of {row['nodes']} nodes, hours", _figure(row["hours"])) for row in figures["mttf_of_jobs"]),
        ("ETTR", _figure(figures["ettr"]["all"])),
        *((f"ETTR up to {row['nodes_up_to']} nodes", _figure(row["ettr"])) for row in figures["ettr"]["by_size"]),
        ("availability", _figure(figures["availability"])),
        ("availability without maintenance", _figure(figures["availability_without_maintenance"])),
        ("outages of nodes by faults", str(figures["outages_by_faults"])),
        ("MTTR of a node, hours", _figure(figures["mttr_hours"])),
        *((f"{unit} hours, {name.replace('_', ' ')}", _figure(value)) for name, value in figures["hours"].items()),
    ]


def failures_table(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the failures by kind."""
    rows = [
        (row["kind"], str(row["failures"]), _figure(row["mttf_node_days"]), _figure(row["lost_hours"]))
        for row in figures["kinds"]
    ]
    return [("KIND", "FAILURES", "MTTF, NODE DAYS", f"{figures['unit'].upper()} HOURS LOST"), *rows]


def lemon_lines(figures: dict[str, Any]) -> list[str]:
    """Return a sentence for each node that fails far more often than others, or one that there is none."""
    lines = [
        f"{lemon['node']} fails far more often than others: "
        + ", ".join(f"{name} {value:g}" for name, value in lemon["signals"].items())
        for lemon in figures["lemons"]
    ]
    return lines or [f"No node fails far more often than others in the last {LEMON_DAYS} days."]


def assumption_lines(figures: dict[str, Any]) -> list[str]:
    """Return the assumptions behind the figures, as sentences."""
    assumed = figures["assumed"]
    spans = (
        f"Assumed: a checkpoint each {assumed['checkpoint_seconds'] / 60:g} min, "
        f"{assumed['restart_seconds'] / 60:g} min until a restarted job trains again (--checkpoint, --restart)."
    )
    if figures["unit"] != "gpu":
        return [spans]
    if share := figures["measured_share"]:
        return [spans, f"Idle GPUs in jobs were measured in {share:.0%} of the allocated GPU hours."]
    idle = (
        "Idle GPUs in jobs are not measured: that takes `monitoring` in the stack file and dcgm-exporter on the nodes."
    )
    return [spans, idle]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
