"""`./hpc check jobs`: what it asks for, what it prints, and its exit codes; the cluster is a stand-in."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from cli.cluster.jobs import Jobs
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs import check
from cluster.jobs.quickcheck import MARK, CheckPlan, Event
from cluster.observe.nodes import parse_nodes
from components.deploy import config_text
from scripts.node.slurm.hostlist import expand
from tests.cli import conftest
from tests.cli.conftest import Hpc, patch_outputs
from tests.cluster.stacks import cluster

CONFIG = cluster(
    nodesets={"cpu": {"count": 2}, "gpu": {"count": 1, "machine_type": "local-2c-2gpu"}},
    partitions={"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"]}},
)
NODES = """\
NodeName=dev-cpu-0 CPUAlloc=0 CPUTot=2 RealMemory=2048 AllocMem=0 State=IDLE
NodeName=dev-cpu-1 CPUAlloc=2 CPUTot=2 RealMemory=2048 AllocMem=0 State=ALLOCATED
NodeName=dev-gpu-0 CPUAlloc=0 CPUTot=2 RealMemory=2048 AllocMem=0 State=IDLE+DRAIN Reason=fan [root@2026-11-21T05:43:58]
"""
OUTPUTS = {**conftest.OUTPUTS, "config": config_text(CONFIG)}


def answers(spec: Mapping[str, Any]) -> Iterator[Event]:
    """The events of a driver whose nodes are all in order."""
    run, nodes = spec["run"], []
    for job in spec["jobs"]:
        if job["key"] == "node":
            for node in expand(job["nodes"]):
                nodes.append(node)
                first = {"node": node, "task": 0, "cpus": 2, "gpus": {}, "memory": 1, "home": {}, "shared": True}
                second = {"node": node, "task": 1, "cpus": 2}
                out = "".join(f"{MARK}{json.dumps(one)}\n" for one in (first, second))
                ended = {"code": 0, "late": False, "seconds": 1.0, "out": out, "err": ""}
                yield {"event": "end", "key": "node", "partition": job["partition"], "nodes": [node], **ended}
    yield {"event": "home", "files": {node: {"own": True, "text": f"{run} {node}"} for node in nodes}}
    rows = "".join(f"1|alice|research|normal|COMPLETED|{node}\n" for node in nodes)
    yield {"event": "accounting", "text": rows}
    yield {"event": "done"}


@pytest.fixture
def up(root: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stack `dev` is up; what was asked of its cluster, by a name."""
    asked: dict[str, Any] = {"nodes": NODES, "lines": [], "answers": answers}
    patch_outputs(monkeypatch, OUTPUTS)

    def ask(_: Scheduler, line: str, *, seconds: float = 0) -> str:
        del seconds
        asked["lines"].append(line)
        return asked["nodes"] if line.startswith("scontrol") else "came\n"

    def run(jobs: Jobs, planned: CheckPlan, on_event: Callable[[Event], None]) -> list[Event]:
        asked["user"], asked["spec"] = jobs.user, json.loads(planned.spec())
        events = list(asked["answers"](asked["spec"]))
        for event in events:
            on_event(event)
        return events

    monkeypatch.setattr(Scheduler, "run", ask)
    monkeypatch.setattr(Scheduler, "nodes", lambda _: parse_nodes(asked["nodes"]))
    monkeypatch.setattr(Jobs, "put", lambda _, files: asked.__setitem__("files", files))
    monkeypatch.setattr(Jobs, "run", lambda *_, **__: "")
    monkeypatch.setattr(check, "run_plan", run)
    return asked


def test_nodes_that_could_not_be_checked_are_listed_with_the_reason(up: dict[str, Any], hpc: Hpc):
    done = hpc("check", "jobs", "dev", "--suite", "hello")
    assert done.code == 1
    assert "dev-cpu-0  cpu        pass   pass  pass    pass    pass" in done.out
    assert "not checked: dev-cpu-1 (cpu): no free CPU on dev-cpu-1: busy. To do: --wait" in done.out
    assert "not checked: dev-gpu-0 (gpu): drained: fan. To do: ./hpc status dev; once" in done.out
    assert "2 nodes not checked" in done.out
    assert up["user"] == "alice"
    assert [job["nodes"] for job in up["spec"]["jobs"]] == ["dev-cpu-0"]
    assert set(up["files"]) == {f"/opt/apps/hpc/checks/{name}.py" for name in ("container", "driver", "node")}


def test_a_busy_node_is_no_failure(up: dict[str, Any], hpc: Hpc):
    assert hpc("check", "jobs", "dev", "--suite", "hello", "--partition", "cpu").code == 0


def test_options_reach_the_plan(up: dict[str, Any], hpc: Hpc):
    hpc("check", "jobs", "dev", "--nodes", "cpu-[0-1]", "--as", "bob", "--wait", "--exclusive", "--image", "/a.sif")
    spec = up["spec"]
    assert (up["user"], spec["wait"], spec["image"]) == ("bob", True, "/a.sif")
    assert [job["key"] for job in spec["jobs"]] == ["node", "container", "together"]
    assert {job["nodes"] for job in spec["jobs"]} == {"dev-cpu-[0-1]"}
    assert all("--exclusive" in job["options"] for job in spec["jobs"])


@pytest.mark.parametrize(
    ("given", "image"),
    [
        ("nvcr.io/nvidia/pytorch:24.04-py3", "nvcr.io#nvidia/pytorch:24.04-py3"),
        ("nvcr.io#nvidia/pytorch", "nvcr.io#nvidia/pytorch"),
        ("localhost:5000/a", "localhost:5000#a"),
        ("redhat/ubi9-minimal", "redhat/ubi9-minimal"),
        ("ubuntu:24.04", "ubuntu:24.04"),
    ],
)
def test_an_image_may_be_named_as_registries_or_as_pyxis_do(up: dict[str, Any], hpc: Hpc, given: str, image: str):
    hpc("check", "jobs", "dev", "--nodes", "cpu-0", "--image", given)
    assert up["spec"]["image"] == image


def test_for_programs_there_is_json(up: dict[str, Any], hpc: Hpc):
    done = hpc("check", "jobs", "dev", "--suite", "hello", "--json")
    report = json.loads(done.out)
    assert (done.code, report["passed"], report["user"]) == (1, False, "alice")
    assert {one["check"] for one in report["results"]} == {"hello", "home", "shared", "memory", "accounting", "mail"}
    assert [one["node"] for one in report["not_checked"]] == ["dev-cpu-1", "dev-gpu-0"]


def test_where_nothing_can_be_checked_nothing_is_submitted(up: dict[str, Any], hpc: Hpc):
    done = hpc("check", "jobs", "dev", "--nodes", "gpu-0")
    assert done.code == 1
    assert "0 passed, 0 failed, 0 skipped, 1 node not checked" in done.out
    assert "spec" not in up


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--partition", "batch"], "--partition batch: cluster dev has the partitions cpu, gpu."),
        (["--nodes", "cpu-7"], "cluster dev has no node 'cpu-7'. Did you mean dev-cpu-"),
        (["--as", "carol"], "no user 'carol'"),
    ],
)
def test_what_is_not_there_is_refused(up: dict[str, Any], hpc: Hpc, words: list[str], text: str):
    assert text in hpc("check", "jobs", "dev", *words).error


def test_a_nodes_escape_sequences_reach_no_terminal(up: dict[str, Any], hpc: Hpc):
    def odd(spec: Mapping[str, Any]) -> Iterator[Event]:
        for event in answers(spec):
            yield {**event, "out": "", "err": "\x1b[2Jgone", "code": 1} if event["event"] == "end" else event

    up["answers"] = odd
    done = hpc("check", "jobs", "dev", "--suite", "hello")
    assert "dev-cpu-0: hello failed: 0 of 2 tasks answered, exit code 1" in done.out
    assert "\\x1b[2Jgone" in done.out
    assert "\x1b" not in done.out
