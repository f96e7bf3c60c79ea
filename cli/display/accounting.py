"""Tables of usage and reliability, for the screen and for the page of `./hpc report`."""

from collections.abc import Iterable, Sequence
from typing import Any

from cluster.observe import reliability as measured
from cluster.observe import usage as used


def runaway_note(found: used.UsageRecords) -> str:
    there = "sacctmgr show runawayjobs (on the controller) lists them and offers to end them"
    return f"{found.runaways} jobs whose end the database does not know are left out: {there}."


def usage_table(rows: Iterable[used.Row], total: used.Row, keys: Sequence[str]) -> list[tuple[str, ...]]:
    """A heading, the rows and their total; GPU BUSY only where Slurm measures GPUs."""
    gpus = total.gpu_utilization is not None
    head = ("CPU HOURS", "CPU BUSY", "GPU HOURS", *(["GPU BUSY"] if gpus else []), "JOBS")
    lines = [(*(key.upper() for key in keys), *head), *((*row.keys, *_cells(row, gpus=gpus)) for row in rows)]
    return [*lines, ("total", *("" for _ in keys[1:]), *_cells(total, gpus=gpus))]


def _cells(row: used.Row, *, gpus: bool) -> tuple[str, ...]:
    busy = ["-" if share is None else f"{share:.0%}" for share in (row.cpu_efficiency, row.gpu_utilization)]
    return f"{row.cpu_hours:.2f}", busy[0], f"{row.gpu_hours:.2f}", *(busy[1:] if gpus else ()), str(row.jobs)


def reliability_table(found: dict[str, Any]) -> list[tuple[str, ...]]:
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


def failures_table(found: dict[str, Any]) -> list[tuple[str, ...]]:
    head = ("KIND", "FAILURES", "MTTF, NODE DAYS", f"{found['unit'].upper()} HOURS LOST")
    rows = [
        (row["kind"], str(row["failures"]), _figure(row["mttf_node_days"]), _figure(row["lost_hours"]))
        for row in found["kinds"]
    ]
    return [head, *rows]


def lemon_lines(found: dict[str, Any]) -> list[str]:
    """A sentence for each node that fails far more often than others, or one that there is none."""
    named = {
        lemon["node"]: ", ".join(f"{name} {value:g}" for name, value in lemon["signals"].items())
        for lemon in found["lemons"]
    }
    none = f"No node fails far more often than others in the last {measured.LEMON_DAYS} days."
    return [f"{node} fails far more often than others: {signals}" for node, signals in named.items()] or [none]


def assumption_lines(found: dict[str, Any]) -> list[str]:
    """Return the assumptions of the figures, as sentences."""
    assumed = found["assumed"]
    spans = (
        f"Assumed: a checkpoint each {assumed['checkpoint_seconds'] / 60:g} min, "
        f"{assumed['restart_seconds'] / 60:g} min until a restarted job trains again (--checkpoint, --restart)."
    )
    idle = "Idle GPUs in jobs are not measured: Slurm measures them where gres.conf has AutoDetect=nvml."
    return [spans, *([idle] if found["hours"]["idle_in_jobs"] is None and found["unit"] == "gpu" else [])]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
