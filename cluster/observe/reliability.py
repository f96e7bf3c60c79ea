"""Reliability: time between failures, effective training time, lost hours, availability and nodes that fail often.

Pure functions of sacct's records, events of Slurm's database, the history of health checks and the journal of repairs.
docs/guides/usage-and-faults.md has the formula and source of each figure. Terms are those of Kokolis et al.,
"Revisiting Reliability in Large-Scale Machine Learning Research Clusters" (arXiv 2410.21680).
"""

import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.observe.job_records import parse_job_records, records_command
from scripts.node.health.check_kinds import kinds_of_reason
from scripts.node.slurm.hostlist import expand
from scripts.node.slurm.output import (
    CLOUD_REASONS,
    JOURNAL,
    count_gpus,
    parse_json_lines,
    parse_tres,
    split_reason,
    text_values,
)

FIELDS = tuple(
    "JobIDRaw JobID User Account Partition State Eligible Start End NodeList AllocTRES TRESUsageInTot".split()
)  # of every release from 22.05 on
BEFORE, AFTER = 600, 300
"""Seconds before and after a run's end in which trouble on one of its nodes counts as the cause."""
LEMON_DAYS = 28
LEMON_CHANCE = 0.01
"""A signal of a node counts if, with equal nodes, fewer than that many would have such a value by chance. The paper
derives its limits from the distribution over thousands of nodes, while a cluster may have ten."""
SIGNALS = (
    "out_count",
    "xid_cnt",
    "tickets",
    "multi_node_node_fails",
    "single_node_node_fails",
    "single_node_node_failure_rate",
)
DAY, HOUR = 86400, 3600
Span = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class JobRun:
    """A run of a job, cut to the period. A requeued job has several."""

    job: str
    state: str
    eligible: float
    start: float
    end: float
    nodes: tuple[str, ...]
    units: int
    """GPUs that it held; CPUs on a cluster without GPUs."""
    cpus: int = 0
    gpus: int = 0
    user: str = ""
    account: str = ""
    partition: str = ""
    ended: bool = True
    busy: float | None = None
    """Busy share of its GPUs, if it was measured (JobRecord)."""

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.start)


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A time in which Slurm did not use a node."""

    node: str
    start: float
    end: float
    kind: str
    """The kind of fault; empty if no fault was the cause."""
    units: int
    off: bool = False
    """True if the machine was powered down, which is neither capacity nor an outage."""
    ended: bool = True


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A failed check or an Xid of a node."""

    node: str
    time: float
    kind: str
    failed: bool = True


@dataclass(frozen=True, kw_only=True)
class ReliabilityRecords:
    """The records of a cluster in a period."""

    since: float
    until: float
    runs: Sequence[JobRun]
    outages: Sequence[Outage]
    troubles: Sequence[Trouble] = ()
    repairs: Sequence[tuple[str, float, str]] = ()
    """Node, time and action of each repair by the reconcile loop."""
    capacity: Sequence[tuple[float, float, tuple[str, ...], int]] = ()
    """Start, end, nodes and the sum of their GPUs (or CPUs), as the cluster was registered."""
    unit: str = "gpu"


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """Times of a training job that Slurm does not record, in seconds."""

    checkpoint: float = HOUR
    """Time between checkpoints. A job that fails loses half of it, or its run time if that is less."""
    restart: float = 300
    """Time from a job's start after a failure until it trains."""


@dataclass(frozen=True)
class _Failure:
    run: JobRun
    kind: str
    nodes: tuple[str, ...]


def reliability(facts: ReliabilityRecords, assumed: Assumptions = Assumptions()) -> dict[str, Any]:
    """Return all figures, for JSON."""

    def lost(run: JobRun) -> float:
        """Return the unit seconds that a run loses if it is interrupted: those since its last checkpoint."""
        return min(run.seconds, assumed.checkpoint / 2) * run.units

    failures, fault_outages = find_failures(facts), _merge_faults(facts.outages)
    node_days = sum(run.seconds * len(run.nodes) for run in facts.runs) / DAY
    capacity, seconds = _capacity(facts)
    busy = busy_spans(facts.runs, {outage.node for outage in facts.outages})
    unused = [(outage, unused_seconds(outage, busy[outage.node])) for outage in facts.outages if not outage.off]
    down = {fault: sum(s for o, s in unused if bool(o.kind) == fault) for fault in (True, False)}
    down_units = {fault: sum(s * o.units for o, s in unused if bool(o.kind) == fault) for fault in (True, False)}
    allocated = sum(run.seconds * run.units for run in facts.runs)
    interrupted = {id(failure.run) for failure in failures}
    jobs: dict[str, list[JobRun]] = defaultdict(list)
    for run in sorted(facts.runs, key=lambda run: run.start):
        jobs[run.job].append(run)
    restarts = [b for runs in jobs.values() for a, b in itertools.pairwise(runs) if id(a) in interrupted]
    measured = [run for run in facts.runs if run.busy is not None]
    rate = len(failures) / node_days if node_days else None
    repairs = [end - start for _, start, end, ended in fault_outages if ended]
    hours = {
        "capacity": capacity,
        "allocated": allocated,
        "lost_to_faults": sum(lost(failure.run) for failure in failures),
        "lost_to_restarts": sum(min(assumed.restart, run.seconds) * run.units for run in restarts),
        "lost_to_preemption": sum(lost(run) for run in facts.runs if run.state == "PREEMPTED"),
        "nodes_out_by_faults": down_units[True],
        "nodes_out_otherwise": down_units[False],
        "not_allocated": max(0.0, capacity - allocated - down_units[True] - down_units[False]),
        "waiting": sum(max(0.0, run.start - run.eligible) * run.units for run in facts.runs),
        "idle_in_jobs": sum(run.seconds * run.units * (1 - (run.busy or 0)) for run in measured) if measured else None,
    }
    return {
        "since": facts.since,
        "until": facts.until,
        "unit": facts.unit,
        "node_days": round(node_days, 3),
        "failures": len(failures),
        "failures_per_1000_node_days": _rounded(rate and rate * 1000),
        "mttf_node_days": _rounded(node_days / len(failures) if failures else None),
        "kinds": sorted(
            (
                {
                    "kind": kind,
                    "failures": len(rows),
                    "mttf_node_days": _rounded(node_days / len(rows)),
                    "lost_hours": _rounded(sum(map(lost, rows)) / HOUR),
                }
                for kind in {failure.kind for failure in failures}
                for rows in [[failure.run for failure in failures if failure.kind == kind]]
            ),
            key=lambda row: (-row["failures"], row["kind"]),
        ),
        "mttf_of_jobs": [{"nodes": n, "hours": _rounded(24 / (n * rate))} for n in _sizes(facts)] if rate else [],
        "ettr": _ettr(jobs.values(), interrupted, assumed),
        "availability": _rounded(1 - (down[True] + down[False]) / seconds) if seconds else None,
        "availability_without_maintenance": _rounded(1 - down[True] / seconds) if seconds else None,
        "outages_by_faults": len(fault_outages),
        "mttr_hours": _rounded(sum(repairs) / len(repairs) / HOUR if repairs else None),
        "hours": {name: _rounded(value / HOUR if value is not None else None) for name, value in hours.items()},
        "measured_share": _rounded(sum(r.seconds * r.units for r in measured) / allocated if allocated else None),
        "lemons": find_lemons(facts, failures),
        "assumed": {"checkpoint_seconds": assumed.checkpoint, "restart_seconds": assumed.restart},
    }


def find_failures(facts: ReliabilityRecords) -> list[_Failure]:
    """Return runs that the infrastructure ended: all of NODE_FAIL and BOOT_FAIL; of FAILED, REQUEUED and cancelled by
    root those with a failed check, or an outage by a fault, on one of their nodes around their end."""
    troubles: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for trouble in facts.troubles:
        if trouble.failed:
            troubles[trouble.node].append((trouble.time, trouble.kind))
    for outage in facts.outages:
        if outage.kind and not outage.off:
            troubles[outage.node].append((outage.start, outage.kind))
    found: list[_Failure] = []
    for run in facts.runs:
        certain = run.state in ("NODE_FAIL", "BOOT_FAIL")
        if not run.ended or not (certain or run.state in ("FAILED", "REQUEUED", "CANCELLED by 0")):
            continue
        near = [
            (kind == "node-down", abs(time - run.end), kind, node)
            for node in run.nodes
            for time, kind in troubles[node]
            if run.end - BEFORE <= time <= run.end + AFTER
        ]
        if near:
            # The finding of a check is more specific than node-down.
            found.append(_Failure(run, min(near)[2], tuple(sorted({node for *_, node in near}))))
        elif certain:
            nodes = run.nodes if len(run.nodes) == 1 else ()
            found.append(_Failure(run, "node-boot" if run.state == "BOOT_FAIL" else "node-down", nodes))
    return found


def find_lemons(facts: ReliabilityRecords, failures: Iterable[_Failure]) -> list[dict[str, Any]]:
    """Return nodes that failed far more often than others in the last 28 days, by at least two of the paper's signals;
    worst first."""
    since = facts.until - LEMON_DAYS * DAY
    signals: dict[str, Counter[str]] = {name: Counter() for name in SIGNALS}
    for node, start, *_ in _merge_faults(facts.outages):
        signals["out_count"][node] += start >= since
    for trouble in facts.troubles:
        signals["xid_cnt"][trouble.node] += trouble.kind == "gpu-xid" and trouble.time >= since
    for node, time, _ in facts.repairs:
        signals["tickets"][node] += time >= since
    for failure in failures:
        name = f"{'single' if len(failure.run.nodes) == 1 else 'multi'}_node_node_fails"
        for node in failure.nodes if failure.run.end >= since else ():
            signals[name][node] += 1
    alone = Counter(run.nodes[0] for run in facts.runs if len(run.nodes) == 1 and run.end >= since)
    rates = {node: count / alone[node] for node, count in signals["single_node_node_fails"].items() if count > 1}
    every = sorted(
        {node for *_, nodes, _ in facts.capacity for node in nodes} | {n for s in signals.values() for n in s}
    )
    values: dict[str, dict[str, float]] = {
        name: {node: float(s[node]) for node in every} for name, s in signals.items()
    }
    values["single_node_node_failure_rate"] = {node: rates.get(node, 0.0) for node in every}
    sums = {name: sum(of.values()) for name, of in values.items()}
    fails, tried = signals["single_node_node_fails"], alone.total()
    found: list[dict[str, Any]] = []
    for node in every:
        high: dict[str, float] = {}
        for name, of in values.items():
            value, others = of[node], max(len(every) - 1, 1)
            if name == "single_node_node_failure_rate":
                usual = (fails.total() - fails[node]) / max(tried - alone[node], 1) * alone[node]
                count = float(fails[node])
            else:
                usual, count = (sums[name] - value) / others, value
            if count >= 2 and _tail(max(usual, 1 / others), int(count)) * len(every) < LEMON_CHANCE:
                high[name] = round(value, 4)
        if len(high) > 1:
            found.append({"node": node, "signals": high})
    return sorted(found, key=lambda row: (-len(row["signals"]), -sum(row["signals"].values()), row["node"]))


def _tail(mean: float, count: int) -> float:
    """Return the probability of at least `count` events in a Poisson distribution."""
    if mean > 700:  # exp(-mean) is 0
        return 0.5 * math.erfc((count - mean) / math.sqrt(2 * mean))
    term = below = math.exp(-mean)
    for at in range(1, count):
        term *= mean / at
        below += term
    return max(0.0, 1 - below)


def _capacity(facts: ReliabilityRecords) -> tuple[float, float]:
    """Return the cluster's GPU seconds and node seconds, without machines that were off."""
    units = seconds = 0.0
    for start, end, nodes, total in facts.capacity:
        units, seconds = units + (end - start) * total, seconds + (end - start) * len(nodes)
    for outage in facts.outages:
        if outage.off:
            units, seconds = units - (outage.end - outage.start) * outage.units, seconds - (outage.end - outage.start)
    return units, seconds


def busy_spans(runs: Iterable[JobRun], nodes: Collection[str]) -> dict[str, list[Span]]:
    """Return the times in which jobs ran on these nodes, without overlaps."""
    found: dict[str, list[Span]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start):
        for node in run.nodes:
            if node in nodes:
                spans = found[node]
                if spans and run.start <= spans[-1][1]:
                    spans[-1] = (spans[-1][0], max(spans[-1][1], run.end))
                else:
                    spans.append((run.start, run.end))
    return found


def unused_seconds(outage: Outage, busy: Iterable[Span]) -> float:
    """Return the seconds of an outage without a job on the node. A drained node runs its jobs to their end."""
    used = sum(max(0.0, min(end, outage.end) - max(start, outage.start)) for start, end in busy)
    return max(0.0, outage.end - outage.start - used)


def _merge_faults(outages: Iterable[Outage]) -> list[tuple[str, float, float, bool]]:
    """Return outages by faults: node, start, end, and whether it ended. Adjacent outages of a node, such as down and
    then drained, are one."""
    by_node: dict[str, list[Outage]] = defaultdict(list)
    for outage in sorted(outages, key=lambda outage: outage.start):
        if not outage.off:
            by_node[outage.node].append(outage)
    found: list[tuple[str, float, float, bool]] = []
    for node, rows in by_node.items():
        groups: list[list[Outage]] = []
        for outage in rows:
            if groups and outage.start <= max(other.end for other in groups[-1]) + 1:
                groups[-1].append(outage)
            else:
                groups.append([outage])
        found += [
            (node, group[0].start, max(outage.end for outage in group), all(outage.ended for outage in group))
            for group in groups
            if any(outage.kind for outage in group)
        ]
    return found


def _ettr(jobs: Iterable[Sequence[JobRun]], interrupted: set[int], assumed: Assumptions) -> dict[str, Any]:
    """Return the effective training time ratio: the productive share of the time from eligible to end, weighted by
    GPUs, over all jobs and by size. `jobs` are the runs of each job."""
    productive: Counter[int] = Counter()
    wall: Counter[int] = Counter()
    for runs in jobs:
        size, seconds = 1 << max(len(runs[-1].nodes) - 1, 0).bit_length(), 0.0
        for number, run in enumerate(runs):
            # An interrupted run keeps what it computed before its last checkpoint.
            lost = assumed.checkpoint / 2 if id(run) in interrupted or run.state == "PREEMPTED" else 0.0
            lost += assumed.restart if number else 0.0
            seconds += max(0.0, run.seconds - lost)
        productive[size] += round(seconds * runs[-1].units)
        wall[size] += round((runs[-1].end - runs[0].eligible) * runs[-1].units)
    sizes = [
        {"nodes_up_to": size, "ettr": _rounded(productive[size] / wall[size])} for size in sorted(wall) if wall[size]
    ]
    return {"all": _rounded(productive.total() / wall.total()) if wall.total() else None, "by_size": sizes}


def _sizes(facts: ReliabilityRecords) -> list[int]:
    """Return sizes of jobs: powers of two, and the largest number of nodes."""
    most = max((len(nodes) for *_, nodes, _ in facts.capacity), default=1)
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# -- what the controller prints ----------------------------------------------------------------------------------------


def command(mark: str) -> str:
    """Return the script for `parse_facts`; `$since` and `$until` are seconds since the epoch."""
    return f"""
export SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0; unset SACCT_FORMAT SQUEUE_FORMAT SQUEUE_STATES
{records_command(FIELDS, mark, "--starttime=uts$since --endtime=uts$until")}
echo {mark}-; sacctmgr --readonly --noheader --parsable2 show event start=uts$since end=uts$until \
format=NodeName,Start,End,State,TRES,ClusterNodes,Reason || exit
echo {mark}-; echo $since | python3 /usr/local/lib/hpc/node health-history 2>/dev/null
echo {mark}-; cat {JOURNAL}.1 {JOURNAL} 2>/dev/null | grep -E '"action": "(reset|report|replace)"'
:"""


def parse_facts(text: str, mark: str, *, since: float, until: float) -> ReliabilityRecords:
    """Parse the output of `command`, cut to the period. Raises ValueError if sacct printed no records."""
    records, alive, gpu_use, events, history, journal = (text.split(f"{mark}-\n") + [""] * 5)[:6]
    inside = _Window(since, until)
    registered, outages = _read_events(events, inside)
    unit = "gpu" if any(count_gpus(held) for *_, held in registered) else "cpu"

    nodes_of = functools.lru_cache(None)(expand)  # many runs have the same host lists

    def units(held: dict[str, float]) -> int:
        return count_gpus(held) if unit == "gpu" else int(held.get("cpu", 0))

    found, _ = parse_job_records(records, alive, gpu_use, FIELDS, mark)
    runs: list[JobRun] = []
    for record in found:
        row, start, end = record.row, _number(record.row["Start"]), _number(record.row["End"])
        if not start or not (span := inside.clip(start, end)):
            continue
        runs.append(
            JobRun(
                job=row["JobIDRaw"],
                state=row["State"] if end and end <= until else "RUNNING",
                eligible=max(since, min(_number(row["Eligible"]) or span[0], span[0])),
                start=span[0],
                end=span[1],
                nodes=tuple(nodes_of(row["NodeList"])),
                units=units(record.held),
                cpus=int(record.held.get("cpu", 0)),
                gpus=record.gpus,
                user=row["User"],
                account=row["Account"],
                partition=row["Partition"],
                ended=bool(end and end <= until),
                busy=record.gpu_busy,
            )
        )
    return ReliabilityRecords(
        since=since,
        until=until,
        runs=runs,
        unit=unit,
        outages=[
            Outage(node=node, start=span[0], end=span[1], kind=kind, units=units(held), off=off, ended=ended)
            for node, span, kind, held, off, ended in outages
        ],
        capacity=[(*span, nodes, units(held)) for span, nodes, held in registered],
        troubles=[trouble for trouble in _read_history(history) if since <= trouble.time <= until],
        repairs=[repair for repair in _read_journal(journal) if since <= repair[1] <= until],
    )


@dataclass(frozen=True)
class _Window:
    since: float
    until: float

    def clip(self, start: float, end: float) -> Span | None:
        """Return the part of a span that is in the window; None if there is none. A span without an end (0) goes on."""
        first, last = max(start, self.since), min(end or self.until, self.until)
        return (first, last) if last >= first else None


_Registered = tuple[Span, tuple[str, ...], dict[str, float]]
_Out = tuple[str, Span, str, dict[str, float], bool, bool]


def _read_events(text: str, inside: _Window) -> tuple[list[_Registered], list[_Out]]:
    """Parse NodeName|Start|End|State|TRES|ClusterNodes|Reason: registrations of the cluster, outages of nodes."""
    registered: list[_Registered] = []
    outages: list[_Out] = []
    for line in text.splitlines():
        cells = line.split("|", 6)
        if len(cells) != 7 or not (span := inside.clip(_number(cells[1]), _number(cells[2]))):
            continue
        node, _, end, state, held, nodes, reason = cells
        if not node:
            registered.append((span, tuple(expand(nodes)), parse_tres(held)))
        else:
            ended = bool(_number(end)) and _number(end) <= inside.until
            outages.append((node, span, fault_kind(state, reason), parse_tres(held), "POWER" in state.upper(), ended))
    return registered, outages


def fault_kind(state: str, reason: str) -> str:
    """Return the kind of fault for which Slurm did not use a node; empty if a person, an upgrade or the set-up drained
    it."""
    text = split_reason(reason)[0]
    if named := kinds_of_reason(text):
        return named[0]
    if text in CLOUD_REASONS:
        return "cloud"
    for prefix, kind in _FAULTS.items():
        if text.lower().startswith(prefix):
            return kind
    return "node-down" if state.upper().startswith("DOWN") and not text else ""


_FAULTS = {
    "prolog": "prolog",
    "epilog": "prolog",
    "kill task": "kill-task",
    "batch job": "launch",
    **dict.fromkeys(("not responding", "node unexpectedly rebooted", "resumetimeout", "low "), "node-down"),
}
"""Kinds of faults by the prefix of slurmctld's reason."""


def _read_history(text: str) -> list[Trouble]:
    found: list[Trouble] = []
    last: dict[str, dict[str, Any]] = {}
    for row in parse_json_lines(text):
        node, time = row.get("node"), row.get("time")
        if not isinstance(node, str) or not isinstance(time, (int, float)):
            continue
        for state in ("failed", "warning"):
            # A line repeats what the line before it had, but only what is new is a trouble.
            bad, before = text_values(row.get(state)), text_values(last.get(node, {}).get(state))
            new = [kind for kind in bad if kind not in before or (kind == "gpu-xid" and bad[kind] != before[kind])]
            found += [Trouble(node=node, time=time, kind=kind, failed=state == "failed") for kind in new]
        last[node] = row
    return found


def _read_journal(text: str) -> list[tuple[str, float, str]]:
    return [
        (str(node), float(row["time"]), str(row["action"]))
        for row in parse_json_lines(text)
        if row.get("mode") == "act" and isinstance(row.get("time"), (int, float)) and isinstance(row.get("nodes"), list)
        for node in row["nodes"]
        if row.get("action") in ("reset", "report", "replace")
    ]


def _number(text: str) -> float:
    return float(text) if text.strip().isdigit() else 0.0
