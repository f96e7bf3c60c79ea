"""Reliability, held against a year that was made up, whose answers are known because its maker wrote them down."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.observe.reliability import (
    DAY,
    FIELDS,
    HOUR,
    Assumptions,
    JobRun,
    Outage,
    ReliabilityRecords,
    fault_kind,
    parse_facts,
    reliability,
)
from scripts.node.slurm.hostlist import compress

MARK = "5f0c"
SINCE = 1_700_000_000
YEAR = 365 * DAY
GPUS = 8
ASSUMED = Assumptions(checkpoint=HOUR, restart=300)
GROUPS = [*([node] for node in range(8)), *([8 + 2 * n, 9 + 2 * n] for n in range(4)), [*range(16, 24)]]
"""Nodes on which jobs run, one after the other: alone, in pairs, and eight together."""
LEMON = 3
KINDS = {
    "gpu-xid": ("NODE_FAIL", "hpc-health: gpu-xid: Xid 79"),
    "gpu-ecc": ("FAILED", "hpc-health: gpu-ecc: 9 errors"),
    "node-down": ("NODE_FAIL", "Not responding"),
    "nic": ("REQUEUED", "hpc-health: nic: eth1 has no link"),
}


@dataclass
class Year:
    """What the controller of a cluster would print, and what is true of it."""

    random: random.Random
    records: list[dict[str, str]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)
    gpu_use: list[dict[str, Any]] = field(default_factory=list)
    truth: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    number: int = 0

    def run(self, nodes: list[int], state: str, eligible: int, start: int, end: int, *, job: int) -> None:
        names = [f"n-{node}" for node in nodes]
        held = f"cpu=8,gres/gpu:h100={GPUS * len(nodes)},gres/gpu={GPUS * len(nodes)},mem=1G,node={len(nodes)}"
        row = {"JobIDRaw": str(job), "JobID": str(job), "State": state, "Eligible": str(eligible), "Start": str(start),
               "End": str(end), "NodeList": compress(names), "AllocTRES": held}  # fmt: skip
        self.records += [row, {**row, "JobID": f"{job}.batch", "JobIDRaw": f"{job}.batch"}]
        units = GPUS * len(nodes)
        self.truth["node_seconds"] += (end - start) * len(nodes)
        self.truth["allocated"] += (end - start) * units
        self.truth["waiting"] += (start - eligible) * units
        # What DCGM measured of a job, all runs together; every fifth was not measured, and every fifth did nothing.
        if job % 5:
            idle = job % 5 - 1
            self.gpu_use.append({"job": str(job), "seconds": 400.0 * units, "busy": 100.0 * units * (4 - idle)})
            self.truth["measured"] += (end - start) * units
            self.truth["idle_quarters"] += (end - start) * units * idle

    def out(self, node: int, start: int, end: int, state: str, reason: str) -> None:
        held = f"cpu=8,gres/gpu={GPUS},mem=1G"
        self.events.append(f"n-{node}|{start}|{end}|{state}|{held}||{reason}")

    def text(self) -> str:
        rows = "".join(MARK.join(row.get(name, "") for name in FIELDS) + MARK + "\n" for row in self.records)
        total = f"|{SINCE - 99}|Unknown|||cpu=192,gres/gpu={24 * GPUS},node=24|n-[0-23]|Cluster Registered TRES"
        # Cells of a cluster's row: NodeName|Start|End|State|TRES|ClusterNodes|Reason.
        events = "\n".join([total.replace("|||", "||", 1), *self.events]) + "\n"
        lines = ("\n".join(map(json.dumps, rows)) + "\n" for rows in (self.gpu_use, self.history, self.journal))
        gpu_use, *rest = lines
        return f"{MARK}-\n".join([rows, "", gpu_use, events, *rest])


def simulated(seed: int) -> Year:
    """A year of 24 nodes: jobs, four kinds of faults, repairs, and what is no fault but looks a bit like one."""
    year = Year(random.Random(seed))  # noqa: S311 - no secret
    for group in GROUPS:
        now, end_of_year = SINCE + 1, SINCE + YEAR
        while now < end_of_year - 40 * DAY // 8 and _job(year, group, now, end_of_year) < end_of_year:
            now = year.truth.pop("now")
        year.truth.pop("now", None)
    return year


def _job(year: Year, group: list[int], now: int, end_of_year: int) -> int:
    """One job of a group, from its being eligible to its end, with its failures."""
    rng, truth = year.random, year.truth
    year.number += 1
    job, eligible, begin, units = year.number, now, now, GPUS * len(group)
    work = rng.randint(2 * HOUR, 4 * DAY)
    productive = 0
    while True:
        start = now + rng.randint(1, 2 * HOUR)
        recent = start > end_of_year - 28 * DAY
        rate = len(group) / (12 * DAY) * (12 if recent and group == [LEMON] else 1)
        fails = int(rng.expovariate(rate))
        end = start + min(work, fails) + 1
        if end > end_of_year - 3 * DAY:
            truth["now"] = end_of_year
            return end_of_year
        restart = 300 if now != begin else 0
        if fails >= work:
            state = rng.choice(["COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 2001", "OUT_OF_MEMORY"])
            year.run(group, state, now, start, end, job=job)
            truth["productive"] += max(0, productive + end - start - restart) * units
            truth["wall"] += (end - eligible) * units
            if rng.random() < 0.2:  # An operator takes a node that is idle, long after the job.
                year.out(group[0], end + 1000, end + 1000 + HOUR, "DRAIN", "new driver [root@2026-01-01T00:00:00]")
                truth["maintenance"] += HOUR * GPUS
                now = end + 1000 + HOUR
            if rng.random() < 0.3:  # A warning is no fault.
                year.history.append({"node": f"n-{group[-1]}", "time": end, "warning": {"gpu-memory": "row remapped"}})
            truth["now"] = max(now, end) + 700
            return truth["now"]
        kind = rng.choice([*KINDS])
        state, reason = KINDS[kind]
        node, repair = rng.choice(group), rng.randint(600, 2 * DAY)
        year.run(group, state, now, start, end, job=job)
        year.out(node, end + 1, end + 1 + repair, "DOWN*" if kind == "node-down" else "DRAIN", reason)
        if kind != "node-down":
            text = reason.partition(": ")[2]
            near = end + rng.randint(-600, 300) if end - start > 700 else end
            year.history.append(
                {"node": f"n-{node}", "time": near, "failed": {kind: text.partition(": ")[2] + f" {end}"}}
            )
            year.history.append({"node": f"n-{node}", "time": near + 30})
        if kind == "gpu-xid":
            act = {"time": end + 10, "mode": "act", "action": "reset", "nodes": [f"n-{node}"], "rule": "sick-reboot"}
            year.journal += [act, {**act, "mode": "advise"}, {**act, "action": "delete"}]
        year.kinds[kind] += 1
        truth["repaired"] += repair
        truth["failures"] += 1
        lost = min(end - start, HOUR // 2)
        truth["lost"] += lost * units
        productive += max(0, end - start - HOUR // 2 - restart)
        truth["faulty"] += repair * GPUS
        now, work = end + 1 + repair, max(HOUR, work - (end - start))
        # Its next run begins after that, so it restarts.
        truth["restarts"] += 1


@pytest.fixture(scope="module", params=[1, 2])
def year(request: pytest.FixtureRequest) -> Year:
    return simulated(request.param)


@pytest.fixture(scope="module")
def found(year: Year) -> dict[str, Any]:
    return reliability(parse_facts(year.text(), MARK, since=SINCE, until=SINCE + YEAR), ASSUMED)


def test_failures_and_their_kinds(year: Year, found: dict[str, Any]) -> None:
    assert year.truth["failures"] > 300
    assert found["failures"] == year.truth["failures"]
    assert {row["kind"]: row["failures"] for row in found["kinds"]} == dict(year.kinds)
    days = year.truth["node_seconds"] / DAY
    assert found["node_days"] == pytest.approx(days, abs=0.001)
    assert found["mttf_node_days"] == pytest.approx(days / year.truth["failures"], abs=0.001)
    of_eight = next(row["hours"] for row in found["mttf_of_jobs"] if row["nodes"] == 8)
    assert of_eight == pytest.approx(found["mttf_node_days"] * 24 / 8, rel=0.001)


def test_the_failure_rate_is_that_of_the_simulation(found: dict[str, Any]) -> None:
    # One in 12 days of a node, but for the lemon's last four weeks; 300 draws are within a fifth.
    assert found["failures_per_1000_node_days"] == pytest.approx(1000 / 12, rel=0.2)


def test_hours(year: Year, found: dict[str, Any]) -> None:
    hours, truth = found["hours"], year.truth
    for name, true in (
        ("allocated", truth["allocated"]), ("waiting", truth["waiting"]), ("lost_to_faults", truth["lost"]),
        ("nodes_out_by_faults", truth["faulty"]), ("nodes_out_otherwise", truth["maintenance"]),
        ("capacity", 24 * GPUS * YEAR),
    ):  # fmt: skip
        assert hours[name] == pytest.approx(true / HOUR, abs=0.001), name
    sums = ("allocated", "nodes_out_by_faults", "nodes_out_otherwise", "not_allocated")
    assert sum(hours[name] for name in sums) == pytest.approx(hours["capacity"], abs=0.01)
    assert hours["lost_to_preemption"] == 0
    assert hours["idle_in_jobs"] == pytest.approx(truth["idle_quarters"] / 4 / HOUR, abs=0.001)
    assert found["measured_share"] == pytest.approx(truth["measured"] / truth["allocated"], abs=0.001)


def test_availability_and_repair(year: Year, found: dict[str, Any]) -> None:
    truth = year.truth
    assert found["mttr_hours"] == pytest.approx(truth["repaired"] / truth["failures"] / HOUR, abs=0.001)
    out = (truth["faulty"] + truth["maintenance"]) / GPUS
    assert found["availability"] == pytest.approx(1 - out / (24 * YEAR), abs=0.0001)


def test_effective_time(year: Year, found: dict[str, Any]) -> None:
    # Jobs that the end of the year cut off are in what is found alone.
    assert found["ettr"]["all"] == pytest.approx(year.truth["productive"] / year.truth["wall"], abs=0.002)


def test_the_lemon_and_no_other(found: dict[str, Any]) -> None:
    assert [lemon["node"] for lemon in found["lemons"]] == [f"n-{LEMON}"]
    assert {"out_count", "single_node_node_fails"} <= set(found["lemons"][0]["signals"])


def run(state: str, start: float, end: float, *nodes: str, job: str = "1", **more: Any) -> JobRun:
    given_values: dict[str, Any] = {"eligible": start, "units": 8 * len(nodes), **more}
    return JobRun(job=job, state=state, start=start, end=end, nodes=nodes, **given_values)


def facts(*runs: JobRun, outages: tuple[Outage, ...] = (), until: float = 100 * HOUR) -> ReliabilityRecords:
    capacity = [(0.0, until, ("a", "b"), 16)]
    return ReliabilityRecords(since=0, until=until, runs=runs, outages=outages, capacity=capacity)


def test_effective_time_of_a_job_that_failed_once() -> None:
    """Eligible at 0, ran 1 h to 5 h and failed, again 6 h to 10 h: 4 h - 30 min and 4 h - 5 min of 10 h."""
    first = run("NODE_FAIL", HOUR, 5 * HOUR, "a", eligible=0)
    found = reliability(facts(first, run("COMPLETED", 6 * HOUR, 10 * HOUR, "a", eligible=5 * HOUR)), ASSUMED)
    assert found["ettr"]["all"] == pytest.approx((3.5 + 4 - 1 / 12) / 10, abs=1e-4)
    assert found["hours"]["lost_to_faults"] == 0.5 * 8
    assert found["hours"]["lost_to_restarts"] == pytest.approx(8 / 12, abs=1e-3)


def test_a_drained_node_is_out_after_its_job() -> None:
    outage = Outage(node="a", start=HOUR, end=10 * HOUR, kind="gpu-ecc", units=8)
    found = reliability(facts(run("COMPLETED", 0, 4 * HOUR, "a"), outages=(outage,)))
    assert found["hours"]["nodes_out_by_faults"] == 6 * 8
    assert found["failures"] == 0, "the job ended well"


def test_machines_that_are_off_are_no_capacity_and_no_outage() -> None:
    outage = Outage(node="a", start=0, end=50 * HOUR, kind="", units=8, off=True)
    found = reliability(facts(outages=(outage,)))
    assert (found["hours"]["capacity"], found["availability"], found["outages_by_faults"]) == (1200, 1.0, 0)


def test_a_cluster_without_jobs_has_no_rates() -> None:
    found = reliability(ReliabilityRecords(since=0, until=1, runs=(), outages=()))
    assert (found["mttf_node_days"], found["ettr"]["all"], found["availability"], found["lemons"]) == (
        None, None, None, [],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "reason", "kind"),
    [
        ("DRAIN", "hpc-health: gpu-xid: Xid 79; nic: x [root@2026-01-01T00:00:00]", "gpu-xid"),
        ("DOWN*", "Not responding", "node-down"),
        ("DOWN", "Node unexpectedly rebooted", "node-down"),
        ("DRAIN", "Prolog error", "prolog"),
        ("DRAIN", "Kill task failed", "kill-task"),
        ("DRAIN", "hpc: the cloud takes the machine back", "cloud"),
        ("DRAIN", "new driver [root@2026-01-01T00:00:00]", ""),
        ("DRAIN", "hpc: leaves the cluster", ""),
    ],
)
def test_kinds_of_faults_by_reason(state: str, reason: str, kind: str) -> None:
    assert fault_kind(state, reason) == kind


SPAN = st.tuples(st.integers(0, 99), st.integers(1, 50)).map(lambda pair: (pair[0] * HOUR, (pair[0] + pair[1]) * HOUR))


@given(
    spans=st.lists(SPAN, max_size=12),
    outs=st.lists(SPAN, max_size=6),
    states=st.lists(st.sampled_from(["COMPLETED", "NODE_FAIL", "FAILED", "PREEMPTED"]), min_size=12, max_size=12),
)
def test_shares_are_between_0_and_1(spans: list[tuple[int, int]], outs: list[tuple[int, int]], states: list[str]):
    runs = [run(state, *span, "a", job=str(n)) for n, (span, state) in enumerate(zip(spans, states, strict=False))]
    outages = tuple(Outage(node="b", start=a, end=b, kind="nic", units=8) for a, b in outs[:1])
    found = reliability(facts(*runs, outages=outages, until=150 * HOUR))
    for share in (found["ettr"]["all"], found["availability"], found["availability_without_maintenance"]):
        assert share is None or 0 <= share <= 1
    assert all(value is None or value >= 0 for value in found["hours"].values())
