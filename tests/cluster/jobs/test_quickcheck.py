"""The quickcheck: small jobs, only where there is room, and nothing passes that was not seen."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs.partition_facts import partition_facts
from cluster.jobs.quickcheck import (
    LEAST_MEMORY,
    MARK,
    CheckJob,
    CheckPlan,
    CheckReport,
    CheckResult,
    Expected,
    Options,
    Room,
    parse_events,
    parse_rooms,
    plan,
    results,
)
from cluster.observe.nodes import Job, parse_nodes
from scripts.node.slurm.hostlist import expand
from tests.cluster.stacks import cluster

TWO = {"cpu": {"count": 3}, "gpu": {"count": 1, "machine_type": "local-2c-2gpu"}}
PARTITIONS = {
    "cpu": {"nodesets": ["cpu"], "default": True},
    "gpu": {"nodesets": ["gpu"]},
    "mixed": {"nodesets": ["cpu", "gpu"]},
}
CONFIG = cluster(nodesets=TWO, partitions=PARTITIONS)
NAMES = ("dev-cpu-0", "dev-cpu-1", "dev-cpu-2", "dev-gpu-0")


def line(name: str, state: str = "IDLE", more: str = "") -> str:
    """A line of `scontrol --oneliner show node`."""
    gres = "gpu:standin:2" if "gpu" in name else "(null)"
    return f"NodeName={name} CPUAlloc=0 CPUEfctv=2 CPUTot=2 Gres={gres} RealMemory=2048 AllocMem=0 State={state} {more}"


def planned(*lines: str, jobs: tuple[Job, ...] = (), **options: object) -> CheckPlan:
    text = "\n".join(lines)
    chosen = Options(run="ab12", **options)  # type: ignore[arg-type]
    return plan(partition_facts(CONFIG), parse_nodes(text, jobs), parse_rooms(text), chosen)


def job(number: str, node: str) -> Job:
    return Job(number=number, user="bob", state="RUNNING", elapsed="1:00", left="1:00", name="x", nodes=(node,))


def test_every_idle_node_gets_a_job_and_each_partition_one_over_all():
    found = planned(*map(line, NAMES))
    each = [(one.key, one.partition, one.nodes) for one in found.jobs if one.each]
    assert each == [
        ("node", "cpu", "dev-cpu-[0-2]"),
        ("node", "gpu", "dev-gpu-0"),
        ("gpus", "gpu", "dev-gpu-0"),
    ]
    together = [(one.partition, one.nodes) for one in found.jobs if not one.each]
    assert together == [("cpu", "dev-cpu-[0-2]"), ("mixed", "dev-cpu-[0-2],dev-gpu-0")]
    assert not found.not_checked


def test_requests_are_small_and_never_exclusive_unless_asked():
    for one in planned(*map(line, NAMES)).jobs:
        assert one.tasks == 2 or one.key == "gpus"
        assert "--exclusive" not in one.options
        assert "--mem=512M" in one.options
    assert all("--exclusive" in one.options for one in planned(*map(line, NAMES), exclusive=True).jobs)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", "idle~: off until a job needs it"),
        ("ALLOCATED+CLOUD+POWERING_UP+NOT_RESPONDING", "allocated#: booting"),
    ],
)
def test_elastic_nodes_that_are_off_are_left_alone(state: str, why: str):
    found = planned(line("dev-cpu-0", state), *map(line, NAMES[1:]))
    (missing,) = found.not_checked
    assert (missing.node, missing.why, missing.unavailable) == ("dev-cpu-0", why, False)


@pytest.mark.parametrize(
    ("state", "why", "unavailable"),
    [
        ("IDLE+DRAIN", "drained", True),
        ("DOWN*", "down*", True),
        ("IDLE*", "idle*", True),
        ("DOWN+CLOUD+POWERED_DOWN", "down~", True),
        ("IDLE+COMPLETING", None, False),
        ("MIXED", None, False),
    ],
)
def test_nodes_out_of_service_are_not_checked_with_their_state(state: str, why: str | None, unavailable: bool):
    found = planned(line("dev-cpu-0", state, "Reason=fan failed [root@2026-11-21T05:43:58]"), *map(line, NAMES[1:]))
    missing = {one.node: one for one in found.not_checked}
    if why is None:
        assert not missing
        return
    assert missing["dev-cpu-0"].why == f"{why}: fan failed"
    assert missing["dev-cpu-0"].unavailable is unavailable
    assert "dev-cpu-0" not in {node for one in found.jobs for node in expand(one.nodes)}


def test_a_busy_node_is_named_with_its_jobs():
    busy = line("dev-cpu-1", "ALLOCATED").replace("CPUAlloc=0", "CPUAlloc=2")
    jobs = (job("12", "dev-cpu-1"), job("14", "dev-cpu-1"))
    found = planned(line("dev-cpu-0"), busy, *map(line, NAMES[2:]), jobs=jobs)
    (missing,) = found.not_checked
    assert missing.why == "no free CPU on dev-cpu-1: busy with jobs 12, 14"
    assert not missing.unavailable
    assert "--wait" in missing.todo
    assert planned(line("dev-cpu-0"), busy, *map(line, NAMES[2:]), wait=True).not_checked == ()


def test_gpus_that_are_in_use_are_left_to_their_job():
    used = line("dev-gpu-0", "MIXED", "AllocTRES=cpu=1,mem=1G,gres/gpu=2,gres/gpu:standin=2")
    found = planned(*map(line, NAMES[:3]), used, jobs=(job("7", "dev-gpu-0"),))
    assert not any("gres" in option for one in found.jobs for option in one.options)
    assert found.expected["dev-gpu-0"].held_gpus == "no free GPU on dev-gpu-0: busy with job 7"
    half = line("dev-gpu-0", "MIXED", "AllocTRES=cpu=1,gres/gpu=1")
    assert [one.key for one in planned(half).jobs] == ["node"]
    assert "--gres=gpu:1" in planned(half).jobs[0].options


def test_gpus_that_slurmctld_does_not_have_are_looked_for_but_in_a_rehearsal_without():
    without = line("dev-gpu-0").replace("gpu:standin:2", "(null)")
    real = planned(without).expected["dev-gpu-0"]
    assert (real.gpus, real.held_gpus, real.no_gpus) == (2, "slurmctld has 0 GPUs of dev-gpu-0", "")
    assert planned(without, rehearsed=True).expected["dev-gpu-0"].no_gpus
    assert not planned(line("dev-gpu-0"), rehearsed=True).expected["dev-gpu-0"].no_gpus
    assert not any("gres" in option for one in planned(without).jobs for option in one.options)


def test_a_node_that_slurmctld_does_not_know_is_not_checked():
    assert [(one.node, one.why) for one in planned(*map(line, NAMES[1:])).not_checked] == [
        ("dev-cpu-0", "slurmctld does not know it")
    ]


def test_jobs_over_all_nodes_keep_to_the_partitions_limit():
    found = planned(*map(line, NAMES), most_nodes={"cpu": 2, "mixed": 2})
    assert [one.nodes for one in found.jobs if not one.each] == [
        "dev-cpu-[0-1]", "dev-cpu-[0-1]", "dev-cpu-2,dev-gpu-0",
    ]  # fmt: skip


def test_only_names_the_nodes():
    text = "\n".join(map(line, NAMES))
    chosen = Options(run="ab12")
    found = plan(partition_facts(CONFIG), parse_nodes(text), parse_rooms(text), chosen, only=frozenset({"dev-cpu-2"}))
    assert list(found.expected) == ["dev-cpu-2"]
    assert not [one for one in found.jobs if not one.each]


def test_the_drivers_argument_is_json_with_one_mail():
    spec = json.loads(planned(*map(line, NAMES), mail=True).spec())
    assert spec["mail"] == "dev-cpu-0"
    assert {"run", "jobs", "wait", "immediate", "image", "pyxis"} <= spec.keys()
    assert json.loads(planned().spec())["jobs"] == []


@given(
    cpus=st.integers(0, 256), used=st.integers(0, 300), memory=st.integers(0, 10**6), held=st.integers(0, 10**6),
    wait=st.booleans(),
)  # fmt: skip
def test_no_job_asks_for_more_than_is_free(cpus: int, used: int, memory: int, held: int, wait: bool):
    """Where nobody waits, a job must fit in what is free now."""
    text = f"NodeName=dev-cpu-0 CPUAlloc={used} CPUTot={cpus} RealMemory={memory} AllocMem={held} State=MIXED"
    room = parse_rooms(text)["dev-cpu-0"]
    found = planned(text, wait=wait)
    assert {one.node for one in found.not_checked} | set(found.expected) == set(NAMES)
    for one in found.expected.values():
        assert wait or one.tasks <= room.free_cpus
        assert wait or LEAST_MEMORY <= one.memory <= room.free_memory


def test_rooms_of_odd_output():
    assert parse_rooms("") == {}
    assert parse_rooms("slurm_load_node error: Unable to contact slurm controller") == {}
    assert parse_rooms("NodeName=a CPUTot=x State=IDLE Gres=gpu:h100:8(S:0-1),shard:4") == {
        "a": Room(gpus=8, free_gpus=8)
    }


def test_no_job_asks_for_longer_than_its_partition_allows():
    short = {"cpu": {**PARTITIONS["cpu"], "max_time": "00:03:30"}, "gpu": PARTITIONS["gpu"]}
    text = "\n".join(map(line, NAMES))
    chosen = Options(run="ab12", suites=frozenset({"hello", "container"}))
    facts = partition_facts(cluster(nodesets=TWO, partitions=short))
    found = plan(facts, parse_nodes(text), parse_rooms(text), chosen)
    minutes = {(job.partition, job.key): job.minutes for job in found.jobs}
    assert minutes["cpu", "container"] == 3
    assert minutes["gpu", "container"] == 5
    assert minutes["cpu", "node"] == minutes["cpu", "together"] == 1


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
    facts: dict[str, Any] = {"gpus": seen, "memory": 512 * MIB, "home": {}, "shared": True, **more}
    return said(node, **facts)


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
