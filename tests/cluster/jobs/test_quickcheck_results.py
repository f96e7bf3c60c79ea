"""What the outputs of the quickcheck's jobs mean; nothing passes that was not seen."""

import json
from typing import Any

import pytest

from cluster.jobs.quickcheck import (
    MARK,
    CheckJob,
    CheckPlan,
    CheckReport,
    CheckResult,
    Expected,
    Options,
    parse_events,
    results,
)
from cluster.observe.nodes import parse_nodes

MIB = 1024 * 1024
NODES = ("c-0", "g-0")


def a_plan(**options: Any) -> CheckPlan:
    together = CheckJob(
        key="together", partition="p", nodes="c-0,g-0", each=False, tasks=2, options=(), program=("node.py", "hello"),
        seconds=60,
    )  # fmt: skip
    return CheckPlan(
        jobs=(together,),
        expected={
            "c-0": Expected(node="c-0", partition="p", tasks=2, memory=512, container_memory=1024, gpus=0),
            "g-0": Expected(node="g-0", partition="p", tasks=2, memory=512, container_memory=1024, gpus=2),
        },
        not_checked=(),
        options=Options(run="ab12", **options),
    )


def said(node: str, task: int = 0, **more: Any) -> str:
    return f"{MARK}{json.dumps({'node': node, 'host': node, 'task': task, 'job': '7', 'cpus': 2, **more})}\n"


def gpus(opened: int, *, devices: int = 2, **more: Any) -> dict[str, Any]:
    names = [f"nvidia{n}" for n in range(devices)]
    return {
        "driver": None, "devices": names, "open": names[:opened], "visible": [str(n) for n in range(opened)], **more
    }  # fmt: skip


def full(node: str, **more: Any) -> str:
    seen = gpus(1) if node == "g-0" else gpus(0, devices=0)
    return said(node, **{"gpus": seen, "memory": 512 * MIB, "home": {}, "shared": True, **more})


def end(key: str, *nodes: str, out: str = "", err: str = "", code: int = 0, late: bool = False) -> dict[str, Any]:
    return {
        "event": "end", "key": key, "partition": "p", "nodes": list(nodes), "code": code, "late": late, "seconds": 1.0,
        "out": out, "err": err,
    }  # fmt: skip


def good() -> dict[str, dict[str, Any]]:
    """The events of a run in which everything passes, by a name."""
    tasks = "".join(said(node, n) for n, node in enumerate(("c-0", "c-0", "g-0", "g-0")))
    return {
        "begin": {"event": "begin"},
        "c": end("node", "c-0", out=full("c-0") + said("c-0", 1)),
        "g": end("node", "g-0", out=said("g-0", 1) + full("g-0")),
        "gpus": end("gpus", "g-0", out=said("g-0", gpus=gpus(2))),
        "together": end("together", "c-0", "g-0", out=tasks),
        "home": {"event": "home", "files": {node: {"own": True, "text": f"ab12 {node}\n"} for node in NODES}},
        "accounting": {
            "event": "accounting",
            "text": "7|alice|research|normal|COMPLETED|c-0\n8|alice|research|normal|COMPLETED|g-0\n",
        },
        "done": {"event": "done"},
    }


def report(events: dict[str, dict[str, Any]], plan: CheckPlan | None = None) -> CheckReport:
    return results(plan or a_plan(), events.values())


def failed(found: CheckReport) -> dict[tuple[str, str], str]:
    return {(one.node, one.check): one.text for one in found.results if one.status == "fail"}


def test_all_of_it_passes():
    found = report(good())
    assert found.passed
    assert {one.status for one in found.results} == {"pass"}
    assert [one.check for one in found.results if one.node == "g-0"] == [
        "hello", "home", "shared", "memory", "gpus", "confined", "accounting",
    ]  # fmt: skip


@pytest.mark.parametrize("gone", ["c", "g", "home", "accounting", "gpus"])
def test_what_never_came_does_not_pass(gone: str):
    events = good()
    del events[gone]
    found = report(events)
    assert not found.passed
    assert failed(found)
    passed = {(one.node, one.check) for one in found.results if one.status == "pass"}
    assert not passed & set(failed(found))


@pytest.mark.parametrize(
    ("name", "change", "check", "text"),
    [
        ("c", {"out": full("c-0")}, "hello", "1 of 2 tasks answered, exit code 0"),
        ("c", {"out": full("x") + said("x", 1)}, "hello", "answered as x"),
        ("c", {"out": "", "code": 1, "err": "srun: error: Task launch failed"}, "hello", "0 of 2 tasks answered"),
        ("c", {"out": "", "code": 124, "late": True}, "hello", "no end within 1 s"),
        ("c", {"out": MARK + "{cut"}, "hello", "0 of 2 tasks answered"),
        ("c", {"out": said("c-0") + said("c-0", 1)}, "hello", "the first task did not look at the node"),
        ("c", {"code": 3}, "hello", "exit code 3"),
        ("c", {"out": full("c-0", home={"error": "/home/a: No such file or directory"}) + said("c-0", 1)}, "home",
         "/home/a: No such file or directory"),
        ("home", {"files": {"g-0": {"own": True, "text": "ab12 g-0"}}}, "home", "is not on the login machine"),
        ("home", {"files": {"c-0": {"own": False, "text": "ab12 c-0"}}}, "home", "another owner"),
        ("home", {"files": {"c-0": {"own": True, "text": "old c-0"}}}, "home", "another content"),
        ("c", {"out": full("c-0", shared=False) + said("c-0", 1)}, "shared", "/opt/apps/hpc can't be read"),
        ("c", {"out": full("c-0", memory=-1) + said("c-0", 1)}, "memory", "no limit on a job's memory"),
        ("c", {"out": full("c-0", memory=2048 * MIB) + said("c-0", 1)}, "memory", "limit 2048 MiB, asked for 512 MiB"),
        ("accounting", {"text": "8|alice|research|normal|COMPLETED|g-0\n"}, "accounting", "no job of this node"),
        ("accounting", {"text": "7|alice||normal|COMPLETED|c-0\n"}, "accounting", "job 7 is recorded without account"),
        ("accounting", {"text": "", "error": "slurmdbd is down"}, "accounting", "sacct gave no answer"),
    ],
)  # fmt: skip
def test_faults_of_a_node_are_found_and_named(name: str, change: dict[str, Any], check: str, text: str):
    events = good()
    events[name] |= change
    found = report(events)
    assert text in failed(found)["c-0", check]
    assert not found.passed


@pytest.mark.parametrize(
    ("one", "whole", "expected"),
    [
        (gpus(2), gpus(2), {"confined": "a job with 1 GPU: 2 in CUDA_VISIBLE_DEVICES, 2 can be opened"}),
        (gpus(1, devices=1), gpus(1, devices=1), {"gpus": "1 of 2 GPUs by device files; 1 of 2 GPUs can be opened"}),
        (gpus(1, driver=1), gpus(2), {"gpus": "1 of 2 GPUs by the driver"}),
        (gpus(1, smi=["GPU 0", "GPU 1"]), gpus(2), {"confined": "a job with 1 GPU: 2 by nvidia-smi"}),
        (gpus(1), gpus(2, smi=["GPU 0"], smi_error="GPU is lost"), {"gpus": "1 of 2 GPUs by nvidia-smi"}),
        (
            gpus(1),
            gpus(2, smi_code=14, smi_error="WARNING: infoROM"),
            {"gpus": "nvidia-smi ended with exit code 14 (the inf"},
        ),
        (gpus(0), gpus(2), {"confined": "a job with 1 GPU: 0 in CUDA_VISIBLE_DEVICES, 0 can be opened"}),
    ],
)
def test_gpus_are_counted_and_confined(one: dict[str, Any], whole: dict[str, Any], expected: dict[str, str]):
    events = good()
    events["g"]["out"] = full("g-0", gpus=one) + said("g-0", 1)
    events["gpus"]["out"] = said("g-0", gpus=whole)
    found = failed(report(events))
    assert found.keys() == {("g-0", check) for check in expected}
    for check, text in expected.items():
        assert text in found["g-0", check]


def test_a_job_with_all_gpus_that_fails_says_why():
    events = good()
    events["gpus"] |= {"out": "", "err": "srun: error: gpu: launch failed", "code": 1}
    (bad,) = [one for one in report(events).results if one.status == "fail"]
    assert (bad.check, bad.output) == ("gpus", "srun: error: gpu: launch failed")


@pytest.mark.parametrize("err", ["Requested nodes are busy", "Immediate execution impossible, insufficient priority"])
def test_jobs_of_others_that_take_the_node_between_two_jobs_are_no_failure(err: str):
    events = good()
    busy = {"out": "", "err": f"srun: error: Unable to allocate resources: {err}", "code": 1}
    events["gpus"] |= busy
    events |= {node: events[node] for node in ("c", "g")}
    for node in NODES:
        events[f"container {node}"] = end("container", node, **busy)
    found = report(events, a_plan(suites=frozenset({"hello", "container"})))
    assert failed(found) == {}
    texts = {one.check: (one.status, one.text) for one in found.results if one.node == "g-0"}
    assert texts["gpus"] == (
        "pass",
        "2 GPUs by device files; not tried together: other jobs took GPUs of the node meanwhile",
    )
    assert texts["container"][0] == "skip"


@pytest.mark.parametrize(
    ("err", "unavailable"),
    [
        ("srun: error: Unable to allocate resources: Requested nodes are busy", False),
        ("srun: error: Unable to allocate resources: Invalid account or account/partition combination specified", True),
    ],
)
def test_a_job_that_may_not_begin_leaves_the_node_unchecked(err: str, unavailable: bool):
    events = good()
    events["c"] |= {"out": "", "err": err, "code": 1}
    found = report(events)
    (missing,) = found.not_checked
    assert (missing.node, missing.unavailable) == ("c-0", unavailable)
    assert not any(one.node == "c-0" for one in found.results)
    assert found.passed is not unavailable


def test_jobs_that_came_meanwhile_are_named():
    events = good()
    events["c"] |= {"out": "", "err": "Requested nodes are busy", "code": 1}
    row = "NodeName=c-0 State=ALLOCATED"
    from_now = parse_nodes(row)
    (missing,) = results(a_plan(), events.values(), now=from_now).not_checked
    assert "Requested nodes are busy" in missing.why


def test_a_task_that_is_silent_among_all_nodes_is_named():
    events = good()
    events["together"]["out"] = "".join(said("c-0", n) for n in (0, 1))
    assert failed(report(events)) == {("", "together"): "2 of 4 tasks on 2 nodes answered, exit code 0; not all of g-0"}
    # One task twice is not two tasks.
    events["together"]["out"] = said("c-0", 0) * 4
    assert not report(events).passed


def test_without_two_good_nodes_the_job_over_all_is_skipped():
    events = good()
    del events["together"]
    (one,) = [one for one in report(events).results if one.check == "together"]
    assert one.status == "skip"


@pytest.mark.parametrize(
    ("event", "status", "text"),
    [
        (end("container", "c-0", out=said("c-0", runtime="podman", wanted="ab12", out="ab12\n")), "pass", "podman"),
        (end("container", "c-0", out=said("c-0", runtime="podman", wanted="ab12", out="")), "fail", "podman did not"),
        (end("container", "c-0", out=said("c-0", runtime="apptainer", error="no")), "fail", "apptainer did not"),
        (end("container", "c-0", out=said("c-0")), "skip", "no pyxis, enroot"),
        (end("container", "c-0", out="ID=rhel\n"), "pass", "pyxis"),
        (end("container", "c-0", err="pyxis: failed to import", code=1), "fail", "no container started, exit code 1"),
        (end("container", "c-0", code=124, late=True), "fail", "no end in time"),
        (None, "fail", "its job did not end"),
    ],
)
def test_containers(event: dict[str, Any] | None, status: str, text: str):
    events = good()
    if event:
        events["container"] = event
    found = report(events, a_plan(suites=frozenset({"hello", "container"})))
    (one,) = [one for one in found.results if (one.node, one.check) == ("c-0", "container")]
    assert one.status == status
    assert text in one.text


def test_skipped_is_not_passed():
    nothing = CheckPlan(jobs=(), expected={}, not_checked=(), options=Options(run="ab12"))
    assert not results(nothing, []).passed
    skipped = results(nothing, [], more=[CheckResult(check="mail", status="skip")])
    assert not skipped.passed


def test_what_is_no_event_is_left_out():
    lines = ["Welcome!", "{}", '{"event": 3}', "[1]", '{"event": "done"}', "\x1b[31m", '{"event": "end"']
    assert list(parse_events(lines)) == [{"event": "done"}]


def test_a_driver_that_failed_is_a_failure():
    assert failed(report({**good(), "failed": {"event": "failed", "text": "OSError: disk full"}})) == {
        ("", "driver"): "OSError: disk full"
    }
