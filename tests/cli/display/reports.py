"""Reports of clusters that were made up, with nodes, faults and jobs as large clusters have them."""

import random
from dataclasses import replace
from functools import cache
from typing import Any

from cli.display import status_screen
from cli.display.report_page import Report, Status
from cluster.config.cluster import ClusterConfig
from cluster.load import parse
from cluster.observe.reliability import DAY, JobRun, Outage, ReliabilityRecords, Trouble
from cluster.observe.usage import UsageRecord, UsageRecords
from tests.cluster.observe.observations import NOW, facts, findings, healthy, state

SINCE = NOW - 28 * DAY
"""The beginning of the histories."""


@cache
def config(nodes: int) -> ClusterConfig:
    """A cluster of A3 Mega, of which an eighth are elastic, with two partitions."""
    return parse({
        "gcp:project": "research", "gcp:zone": "us-central1-a",
        "hpc:cluster": {
            "platform": "gcp", "name": "hc", "controller": {"machine_type": "c2-standard-8"},
            "nodesets": {
                "cpu": {"machine_type": "a3-megagpu-8g", "count": {"min": nodes, "max": nodes + max(1, nodes // 8)}},
                "small": {"machine_type": "c2-standard-4", "count": 2},
            },
            "partitions": {
                "a3mega": {"nodesets": ["cpu"], "default": True, "exclusive": True, "max_time": "7-00:00:00"},
                "every": {"nodesets": ["cpu", "small"], "max_time": "01:00:00"},
            },
            "monitoring": {},
        },
    })  # fmt: skip


@cache
def status(nodes: int) -> Status:
    """Nodes that are busy, idle, drained and down."""
    seen = healthy(nodes)
    for at in range(nodes):
        word = ("ALLOCATED", "IDLE", "MIXED")[at % 3]
        state(seen, f"cpu-{at}", State=word, Gres="gpu:h100:8(S:0-1)")
    state(seen, "cpu-1", State="IDLE+DRAIN", Reason="hpc-health: gpu-ecc: 9 errors [root@2026-11-20T05:43:58]")
    if nodes > 8:
        state(seen, "cpu-7", State="DOWN*", Reason="Not responding [slurm@2026-11-20T05:43:58]")
    controller: dict[str, Any] = facts(seen, "controller")
    jobs = controller["slurm"]["jobs"]
    jobs["first"] = [
        {**jobs["first"][0], "id": str(at), "name": f"train <b>{at}</b>", "state": "RUNNING" if at % 2 else "PENDING"}
        for at in range(12)
    ]
    jobs["states"] = {"RUNNING": nodes // 2, "PENDING": 40}
    controller["alerts"] = [
        {"name": "HpcNodeDrained", "severity": "warning", "since": "2026-11-20T05:45:00Z", "actor": "an administrator",
         "where": "hc-cpu-1", "summary": "1 node is drained", "findings": "node-drained"},
    ]  # fmt: skip
    return Status(observation=seen, findings=findings(seen), tables=status_screen.tables(seen, NOW))


@cache
def history(nodes: int, seed: int = 1) -> ReliabilityRecords:
    """Four weeks of jobs, outages and failed checks."""
    dice = random.Random(seed)  # noqa: S311
    names = [f"hc-cpu-{at}" for at in range(nodes)]
    runs: list[JobRun] = []
    for job in range(10 * nodes):
        size = dice.choice([1, 1, 2, nodes])
        start = SINCE + dice.random() * 27 * DAY
        runs.append(
            JobRun(
                job=str(job), state=dice.choice(["COMPLETED"] * 8 + ["NODE_FAIL", "FAILED", "TIMEOUT"]),
                eligible=start - 600, start=start, end=start + dice.random() * DAY / 4,
                nodes=tuple(dice.sample(names, min(size, nodes))), units=8 * min(size, nodes), busy=dice.random(),
            )
        )  # fmt: skip
    troubles = [
        Trouble(node=dice.choice(names), time=SINCE + dice.random() * 28 * DAY,
                kind=dice.choice(["gpu-ecc", "gpu-xid", "nic"]), failed=dice.random() < 0.5)
        for _ in range(nodes)
    ]  # fmt: skip
    out = [
        Outage(node=trouble.node, start=trouble.time, end=trouble.time + 7200, kind=trouble.kind, units=8)
        for trouble in troubles
        if trouble.failed
    ]
    whole = [(SINCE, NOW, tuple(names), 8 * nodes)]
    return ReliabilityRecords(since=SINCE, until=NOW, runs=runs, outages=out, troubles=troubles, capacity=whole)


@cache
def records(nodes: int, users: int = 20) -> UsageRecords:
    """Jobs of many users."""
    dice = random.Random(2)  # noqa: S311
    rows = [
        UsageRecord(
            job=str(job), user=f"user{job % users}", account=f"team{job % 5}", partition="a3mega",
            seconds=dice.randrange(86400), cpus=208, gpus=8, cpu_used=dice.random() * 1e6, gpu_busy=dice.random(),
        )
        for job in range(10 * nodes)
    ]  # fmt: skip
    return UsageRecords(records=rows, runaways=1)


def report(nodes: int, **changes: Any) -> Report:
    """A report whose parts could all be read."""
    found = Report(
        stack="hc", name="hc", platform="Google Cloud", version="0.1.0", written=NOW, since="28d",
        config=config(nodes), status=status(nodes), reliability=history(nodes),
        usage=("2026-10-24T00:00:00", "2026-11-21T00:00:00", records(nodes)),
    )  # fmt: skip
    return replace(found, **changes)
