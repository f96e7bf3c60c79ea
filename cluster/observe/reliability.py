"""What faults cost: time between failures, effective training time, lost hours, availability and nodes that fail often.

Pure functions of sacct's records, events of Slurm's database, the kept history of health checks and the journal of
repairs. docs/guides/usage-and-faults.md has the formula and source of each figure. Terms are those of Kokolis et al.,
"Revisiting Reliability in Large-Scale Machine Learning Research Clusters" (arXiv 2410.21680).
"""

import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.node.health.kinds import kinds_of_reason
from scripts.node.slurm.hostlist import expand
from scripts.node.slurm.output import (
    CLOUD_REASONS,
    JOURNAL,
    count_gpus,
    parse_json_lines,
    parse_sacct,
    parse_tres,
    split_reason,
    text_values,
)

FIELDS = tuple(
    "JobIDRaw JobID State Eligible Start End NodeList AllocTRES TRESUsageInTot".split()
)  # of every release from 22.05 on
BEFORE, AFTER = 600, 300
"""Seconds before and after a run's end in which trouble on one of its nodes is its cause."""
LEMON_DAYS = 28
LEMON_CHANCE = 0.01
"""A signal of a node counts if fewer nodes than that would have as much by chance, were all alike. The paper takes its
limits from the distribution over thousands of nodes; here there may be ten."""
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
class Run:
    """A run of a job, within the time that is looked at; a requeued job has several."""

    job: str
    state: str
    eligible: float
    start: float
    end: float
    nodes: tuple[str, ...]
    units: int
    """GPUs that it held; CPUs on a cluster without GPUs."""
    ended: bool = True
    busy: float | None = None
    """Share of its GPUs that was busy, where Slurm has measured it."""

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.start)


@dataclass(frozen=True, kw_only=True)
class Outage:
    """Time in which Slurm did not use a node; `kind` is empty where no fault was its cause."""

    node: str
    start: float
    end: float
    kind: str
    units: int
    off: bool = False
    """Its machine was powered down: no capacity then, and no outage."""
    ended: bool = True


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A failed check, or a Xid, of a node."""

    node: str
    time: float
    kind: str
    failed: bool = True


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The records of a cluster between two moments."""

    since: float
    until: float
    runs: Sequence[Run]
    outages: Sequence[Outage]
    troubles: Sequence[Trouble] = ()
    repairs: Sequence[tuple[str, float, str]] = ()
    """Node, time and action of each repair by the reconcile loop."""
    capacity: Sequence[tuple[float, float, tuple[str, ...], int]] = ()
    """From, until, nodes and their GPUs (or CPUs) together, as the cluster was registered."""
    unit: str = "gpu"


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """Times of a training job that Slurm does not record, in seconds."""

    checkpoint: float = HOUR
    """Between two checkpoints: a job that fails loses half of it, or what it has run if that is less."""
    restart: float = 300
    """From a job's start after a failure until it trains again."""


@dataclass
class _Failure:
    run: Run
    kind: str
    nodes: tuple[str, ...]
    lost: float = field(default=0.0)


def reliability(facts: Facts, given: Assumptions | None = None) -> dict[str, Any]:
    """Every figure, as JSON has it."""
    assumed = given or Assumptions()
    failures = find_failures(facts)
    for failure in failures:
        failure.lost = min(failure.run.seconds, assumed.checkpoint / 2) * failure.run.units
    node_days = sum(run.seconds * len(run.nodes) for run in facts.runs) / DAY
    capacity, seconds = _capacity(facts)
    busy = _busy(facts.runs, {outage.node for outage in facts.outages})
    out = [(outage, _without(outage, busy[outage.node])) for outage in facts.outages if not outage.off]
    down = {fault: sum(s for o, s in out if bool(o.kind) == fault) for fault in (True, False)}
    lost = {fault: sum(s * o.units for o, s in out if bool(o.kind) == fault) for fault in (True, False)}
    allocated = sum(run.seconds * run.units for run in facts.runs)
    interrupted = {id(failure.run) for failure in failures}
    chains = _chains(facts.runs)
    restarts = [(a, b) for chain in chains for a, b in itertools.pairwise(chain) if id(a) in interrupted]
    preempted = sum(
        min(run.seconds, assumed.checkpoint / 2) * run.units for run in facts.runs if run.state == "PREEMPTED"
    )
    measured = [run for run in facts.runs if run.busy is not None]
    rate = len(failures) / node_days if node_days else None
    repaired = [end - start for start, end, ended in _merged(facts.outages) if ended]
    hours = {
        "capacity": capacity,
        "allocated": allocated,
        "lost_to_faults": sum(failure.lost for failure in failures),
        "lost_to_restarts": sum(min(assumed.restart, after.seconds) * after.units for _, after in restarts),
        "lost_to_preemption": preempted,
        "nodes_out_by_faults": lost[True],
        "nodes_out_otherwise": lost[False],
        "not_allocated": max(0.0, capacity - allocated - lost[True] - lost[False]),
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
        "kinds": _kinds(failures, node_days),
        "mttf_of_jobs": [{"nodes": n, "hours": _rounded(24 / (n * rate))} for n in _sizes(facts)] if rate else [],
        "ettr": _ettr(chains, interrupted, assumed),
        "availability": _rounded(1 - (down[True] + down[False]) / seconds) if seconds else None,
        "availability_without_maintenance": _rounded(1 - down[True] / seconds) if seconds else None,
        "outages_by_faults": len(_merged(facts.outages)),
        "mttr_hours": _rounded(sum(repaired) / len(repaired) / HOUR if repaired else None),
        "hours": {name: _rounded(value / HOUR if value is not None else None) for name, value in hours.items()},
        "measured_share": _rounded(sum(r.seconds * r.units for r in measured) / allocated if allocated else None),
        "lemons": find_lemons(facts, failures),
        "assumed": {"checkpoint_seconds": assumed.checkpoint, "restart_seconds": assumed.restart},
    }


def find_failures(facts: Facts) -> list[_Failure]:
    """Runs that the infrastructure ended: of NODE_FAIL and BOOT_FAIL; and of FAILED, REQUEUED and cancelled by root
    those with a failed check, or a node out by a fault, on one of their nodes around their end."""
    troubles: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for one in facts.troubles:
        if one.failed:
            troubles[one.node].append((one.time, one.kind))
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
            # What a check has found says more than that the node went down.
            found.append(_Failure(run, min(near)[2], tuple(sorted({node for *_, node in near}))))
        elif certain:
            nodes = run.nodes if len(run.nodes) == 1 else ()
            found.append(_Failure(run, "node-boot" if run.state == "BOOT_FAIL" else "node-down", nodes))
    return found


def find_lemons(facts: Facts, failures: Iterable[_Failure]) -> list[dict[str, Any]]:
    """Nodes that failed far more often than others in the last 28 days, in two of the paper's signals that Slurm and
    the set-up have; worst first."""
    since = facts.until - LEMON_DAYS * DAY
    signals: dict[str, Counter[str]] = {name: Counter() for name in SIGNALS}
    for node, start, *_ in _merged_by_node(facts.outages):
        signals["out_count"][node] += start >= since
    for one in facts.troubles:
        signals["xid_cnt"][one.node] += one.kind == "gpu-xid" and one.time >= since
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
    return sorted(found, key=lambda one: (-len(one["signals"]), -sum(one["signals"].values()), one["node"]))


def _tail(mean: float, count: int) -> float:
    """The probability of so many events or more, where so many are usual (Poisson)."""
    if mean > 700:  # exp() of more is 0
        return 0.5 * math.erfc((count - mean) / math.sqrt(2 * mean))
    term = below = math.exp(-mean)
    for at in range(1, count):
        term *= mean / at
        below += term
    return max(0.0, 1 - below)


def _capacity(facts: Facts) -> tuple[float, float]:
    """GPU seconds and node seconds that the cluster had, without machines that were off."""
    units = seconds = 0.0
    for start, end, nodes, total in facts.capacity:
        units, seconds = units + (end - start) * total, seconds + (end - start) * len(nodes)
    for outage in facts.outages:
        if outage.off:
            units, seconds = units - (outage.end - outage.start) * outage.units, seconds - (outage.end - outage.start)
    return units, seconds


def _busy(runs: Iterable[Run], nodes: Collection[str]) -> dict[str, list[Span]]:
    """The times in which jobs ran on these nodes."""
    found: dict[str, list[Span]] = defaultdict(list)
    for run in runs:
        for node in run.nodes:
            if node in nodes:
                found[node].append((run.start, run.end))
    return {node: _union(spans) for node, spans in found.items()} | defaultdict(list)


def _union(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _without(outage: Outage, busy: Iterable[Span]) -> float:
    """Seconds of an outage in which no job ran on the node: one that is drained runs its jobs to their end."""
    used = sum(max(0.0, min(end, outage.end) - max(start, outage.start)) for start, end in busy)
    return max(0.0, outage.end - outage.start - used)


def _merged_by_node(outages: Iterable[Outage]) -> list[tuple[str, float, float, bool]]:
    """Outages by faults; a node that went from down to drained was out once."""
    by_node: dict[str, list[Outage]] = defaultdict(list)
    for outage in outages:
        if not outage.off:
            by_node[outage.node].append(outage)
    found: list[tuple[str, float, float, bool]] = []
    for node, rows in by_node.items():
        group: list[Outage] = []
        for outage in [*sorted(rows, key=lambda one: one.start), None]:
            if group and (outage is None or outage.start > max(one.end for one in group) + 1):
                if any(one.kind for one in group):
                    ended = all(one.ended for one in group)
                    found.append((node, group[0].start, max(one.end for one in group), ended))
                group = []
            if outage:
                group.append(outage)
    return found


def _merged(outages: Iterable[Outage]) -> list[tuple[float, float, bool]]:
    return [(start, end, ended) for _, start, end, ended in _merged_by_node(outages)]


def _chains(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of each job, in their order."""
    found: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start):
        found[run.job].append(run)
    return list(found.values())


def _ettr(chains: Iterable[Sequence[Run]], interrupted: set[int], given: Assumptions) -> dict[str, Any]:
    """Productive time of jobs as a share of the time from their being eligible to their end, weighted by GPUs, of all
    jobs and by size."""
    good: Counter[int] = Counter()
    wall: Counter[int] = Counter()
    for chain in chains:
        size, productive = 1 << max(len(chain[-1].nodes) - 1, 0).bit_length(), 0.0
        for before, run in zip([None, *chain], chain, strict=False):
            lost = given.checkpoint / 2 if id(run) in interrupted or run.state == "PREEMPTED" else 0.0
            # What ran before the last checkpoint of a run that was cut off is there for the next one.
            lost += given.restart if before is not None else 0.0
            productive += max(0.0, run.seconds - lost)
        good[size] += round(productive * chain[-1].units)
        wall[size] += round((chain[-1].end - chain[0].eligible) * chain[-1].units)
    sizes = [{"nodes_up_to": size, "ettr": _rounded(good[size] / wall[size])} for size in sorted(wall) if wall[size]]
    return {"all": _rounded(good.total() / wall.total()) if wall.total() else None, "by_size": sizes}


def _kinds(failures: Iterable[_Failure], node_days: float) -> list[dict[str, Any]]:
    found: dict[str, list[_Failure]] = defaultdict(list)
    for failure in failures:
        found[failure.kind].append(failure)
    rows = [
        {
            "kind": kind,
            "failures": len(rows),
            "mttf_node_days": _rounded(node_days / len(rows)),
            "lost_hours": _rounded(sum(one.lost for one in rows) / HOUR),
        }
        for kind, rows in found.items()
    ]
    return sorted(rows, key=lambda row: (-row["failures"], row["kind"]))


def _sizes(facts: Facts) -> list[int]:
    most = max((len(nodes) for *_, nodes, _ in facts.capacity), default=1)
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# -- what the controller prints ----------------------------------------------------------------------------------------


def command(mark: str) -> str:
    """The script whose parts `read` takes; `$since` and `$until` are seconds of the epoch."""
    return f"""
export SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0; unset SACCT_FORMAT SQUEUE_FORMAT SQUEUE_STATES
sacct --allusers --duplicates --parsable --delimiter={mark} --noheader --noconvert --starttime=uts$since \
--endtime=uts$until --format={",".join(FIELDS)} || exit
echo {mark}-; squeue --noheader --array --states=running,suspended,completing --format=%A || exit
echo {mark}-; sacctmgr --readonly --noheader --parsable2 show event start=uts$since end=uts$until \
format=NodeName,Start,End,State,TRES,ClusterNodes,Reason || exit
echo {mark}-; echo $since | python3 /usr/local/lib/hpc/node health-history 2>/dev/null
echo {mark}-; cat {JOURNAL}.1 {JOURNAL} 2>/dev/null | grep -E '"action": "(reset|report|replace)"'
:"""


def parse_facts(text: str, mark: str, *, since: float, until: float) -> Facts:
    """The facts, from what `command` prints, clipped to the time that is asked for. Raises ValueError: sacct printed
    no records."""
    records, alive, events, history, journal = (text.split(f"{mark}-\n") + [""] * 4)[:5]
    inside = _Window(since, until)
    registered, outages = _read_events(events, inside)
    unit = "gpu" if any(count_gpus(held) for *_, held in registered) else "cpu"

    # Few of the host lists and resources of many runs differ.
    nodes_of, held_by = functools.lru_cache(None)(expand), functools.lru_cache(None)(parse_tres)

    def units(held: dict[str, float]) -> int:
        return count_gpus(held) if unit == "gpu" else int(held.get("cpu", 0))

    rows: list[dict[str, str]] = []
    used: dict[int, float] = {}
    for row in parse_sacct(records, FIELDS, mark):
        if "." not in row["JobID"]:
            rows.append(row)
        elif rows and (percent := parse_tres(row["TRESUsageInTot"]).get("gres/gpuutil")) is not None:
            used[len(rows) - 1] = max(used.get(len(rows) - 1, 0.0), percent / 100)
    running, measured = set(alive.split()), any(used.values())
    runs: list[Run] = []
    for at, row in enumerate(rows):
        held, start, end = held_by(row["AllocTRES"]), _number(row["Start"]), _number(row["End"])
        # One without an end that slurmctld does not have is a runaway: it ended at an unknown time.
        if not held or not start or (not end and row["JobIDRaw"] not in running):
            continue
        if not (span := inside.clip(start, end)):
            continue
        runs.append(
            Run(
                job=row["JobIDRaw"],
                state=row["State"] if end and end <= until else "RUNNING",
                eligible=max(since, min(_number(row["Eligible"]) or span[0], span[0])),
                start=span[0],
                end=span[1],
                nodes=tuple(nodes_of(row["NodeList"])),
                units=units(held),
                ended=bool(end and end <= until),
                busy=min(1.0, used.get(at, 0.0) / max(count_gpus(held), 1)) if measured and count_gpus(held) else None,
            )
        )
    return Facts(
        since=since,
        until=until,
        runs=runs,
        unit=unit,
        outages=[
            Outage(node=node, start=span[0], end=span[1], kind=kind, units=units(held), off=off, ended=ended)
            for node, span, kind, held, off, ended in outages
        ],
        capacity=[(*span, nodes, units(held)) for span, nodes, held in registered],
        troubles=[one for one in _read_history(history) if since <= one.time <= until],
        repairs=[one for one in _read_journal(journal) if since <= one[1] <= until],
    )


@dataclass(frozen=True)
class _Window:
    since: float
    until: float

    def clip(self, start: float, end: float) -> Span | None:
        """The part of a time within the window; one without an end lasts."""
        first, last = max(start, self.since), min(end or self.until, self.until)
        return (first, last) if last >= first else None


_Registered = tuple[Span, tuple[str, ...], dict[str, float]]
_Out = tuple[str, Span, str, dict[str, float], bool, bool]


def _read_events(text: str, inside: _Window) -> tuple[list[_Registered], list[_Out]]:
    """Return what the cluster was registered with, and nodes that were not used:
    NodeName|Start|End|State|TRES|ClusterNodes|Reason."""
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
    """The kind of fault for which Slurm did not use a node; empty where a person, an upgrade or the set-up has drained
    it."""
    text = split_reason(reason)[0]
    if named := kinds_of_reason(text):
        return named[0]
    if text in CLOUD_REASONS:
        return "cloud"
    low = text.lower()
    for begin, kind in (
        ("prolog", "prolog"),
        ("epilog", "prolog"),
        ("kill task", "kill-task"),
        ("batch job", "launch"),
    ):
        if low.startswith(begin):
            return kind
    slurms = low.startswith(("not responding", "node unexpectedly rebooted", "resumetimeout", "low "))
    return "node-down" if slurms or (state.upper().startswith("DOWN") and not text) else ""


def _read_history(text: str) -> list[Trouble]:
    found: list[Trouble] = []
    last: dict[str, dict[str, Any]] = {}
    for row in parse_json_lines(text):
        node, time = row.get("node"), row.get("time")
        if not isinstance(node, str) or not isinstance(time, (int, float)):
            continue
        for state in ("failed", "warning"):
            # A line of the next day, or of another check, has again what was there before.
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
