"""The quickcheck: small jobs, only where there is room, and nothing passes that was not seen."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs.quickcheck import CheckPlan, CheckReport, CheckResult, Options, evaluate, plan
from scripts.node.slurm.jobs import Job
from scripts.node.slurm.nodes import parse as nodes_of
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


def planned(
    *lines: str, jobs: tuple[Job, ...] = (), only: frozenset[str] | None = None, rehearsed: bool = False, **options: Any
) -> CheckPlan:
    chosen = Options(run="ab12", **options)
    return plan(CONFIG, nodes_of("\n".join(lines), jobs), chosen, only=only, rehearsed=rehearsed)


def spec(*lines: str, **options: Any) -> dict[str, Any]:
    """The driver's argument."""
    return json.loads(planned(*lines, **options).spec)


def job(number: str, node: str) -> Job:
    return Job(number, user="bob", state="RUNNING", elapsed="1:00", left="1:00", name="x", nodes=node)


def test_nodes_with_equal_requests_are_one_group_and_each_partition_has_its_nodes():
    found = spec(*map(line, NAMES))
    groups = [(group["nodes"], group["partition"], group["gpus"], group["all_gpus"]) for group in found["groups"]]
    assert groups == [("dev-cpu-[0-2]", "cpu", 0, False), ("dev-gpu-0", "gpu", 2, True)]
    together = {name: partition["together"] for name, partition in found["partitions"].items()}
    assert together == {"cpu": "dev-cpu-[0-2]", "gpu": "", "mixed": "dev-cpu-[0-2],dev-gpu-0"}
    assert {(group["tasks"], group["memory"]) for group in found["groups"]} == {(2, 512)}
    assert not planned(*map(line, NAMES)).not_checked


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
    missing = {node.node: node for node in found.not_checked}
    if why is None:
        assert not missing
        return
    assert missing["dev-cpu-0"].why == f"{why}: fan failed"
    assert missing["dev-cpu-0"].unavailable is unavailable
    assert "dev-cpu-0" not in found.expected


def test_a_busy_node_is_named_with_its_jobs():
    busy = line("dev-cpu-1", "ALLOCATED").replace("CPUAlloc=0", "CPUAlloc=2")
    jobs = (job("12", "dev-cpu-1"), job("14", "dev-cpu-1"))
    found = planned(line("dev-cpu-0"), busy, *map(line, NAMES[2:]), jobs=jobs)
    (missing,) = found.not_checked
    assert missing.why == "no free CPU on dev-cpu-1: busy with jobs 12, 14"
    assert not missing.unavailable
    assert "--wait" in missing.todo
    assert planned(line("dev-cpu-0"), busy, *map(line, NAMES[2:]), wait=True).not_checked == ()


def test_gpus_in_use_are_not_requested():
    used = line("dev-gpu-0", "MIXED", "AllocTRES=cpu=1,mem=1G,gres/gpu=2,gres/gpu:standin=2")
    node = planned(*map(line, NAMES[:3]), used, jobs=(job("7", "dev-gpu-0"),)).expected["dev-gpu-0"]
    assert (node.gpus, node.one_gpu, node.all_gpus) == (2, False, False)
    assert node.busy_gpus == "no free GPU on dev-gpu-0: busy with job 7"
    half = planned(line("dev-gpu-0", "MIXED", "AllocTRES=cpu=1,gres/gpu=1")).expected["dev-gpu-0"]
    assert (half.one_gpu, half.all_gpus) == (True, False)


def test_gpus_that_slurmctld_lacks_are_expected_but_in_a_rehearsal():
    without = line("dev-gpu-0").replace("gpu:standin:2", "(null)")
    real = planned(without).expected["dev-gpu-0"]
    assert (real.gpus, real.one_gpu, real.busy_gpus) == (2, False, "slurmctld has 0 GPUs of dev-gpu-0")
    rehearsed = planned(without, rehearsed=True).expected["dev-gpu-0"]
    assert (rehearsed.gpus, rehearsed.no_gpus) == (0, "nodes of this rehearsal have no GPUs")
    assert not planned(line("dev-gpu-0"), rehearsed=True).expected["dev-gpu-0"].no_gpus


def test_a_node_that_slurmctld_does_not_know_is_not_checked():
    assert [(job.node, job.why) for job in planned(*map(line, NAMES[1:])).not_checked] == [
        ("dev-cpu-0", "slurmctld does not know it")
    ]


def test_only_limits_the_nodes():
    assert list(planned(*map(line, NAMES), only=frozenset({"dev-cpu-2"})).expected) == ["dev-cpu-2"]


def test_mail_is_about_the_job_of_one_node_and_not_root():
    assert spec(*map(line, NAMES))["mail"] == "dev-cpu-0"
    assert spec(*map(line, NAMES), shared_home=False)["mail"] == ""
    assert spec()["groups"] == []


@given(
    cpus=st.integers(0, 256), used=st.integers(0, 300), memory=st.integers(0, 10**6), held=st.integers(0, 10**6),
    wait=st.booleans(),
)  # fmt: skip
def test_no_job_asks_for_more_than_is_free(cpus: int, used: int, memory: int, held: int, wait: bool):
    """Where nobody waits, a job must fit in what is free now."""
    text = f"NodeName=dev-cpu-0 CPUAlloc={used} CPUTot={cpus} RealMemory={memory} AllocMem={held} State=MIXED"
    room = nodes_of(text)["dev-cpu-0"]
    found = planned(text, wait=wait)
    assert {node.node for node in found.not_checked} | set(found.expected) == set(NAMES)
    for expected in found.expected.values():
        assert wait or expected.tasks <= room.free_cpus
        assert wait or 64 <= expected.memory <= room.free_memory


def test_limits_of_partitions_reach_the_driver():
    short = {"cpu": {**PARTITIONS["cpu"], "max_time": "00:03:30", "max_nodes": 2}, "gpu": PARTITIONS["gpu"]}
    config = cluster(nodesets=TWO, partitions=short)
    found = json.loads(plan(config, nodes_of("\n".join(map(line, NAMES))), Options(run="ab12")).spec)["partitions"]
    assert (found["cpu"]["most_nodes"], found["cpu"]["most_minutes"]) == (2, 3)
    assert found["gpu"]["most_minutes"] == 10**6


def row(check: str, status: str = "pass", node: str = "dev-cpu-0", **more: str) -> dict[str, str]:
    return {"check": check, "status": status, "node": node, "partition": "cpu", **more}


def report(*rows: dict[str, Any], more: tuple[CheckResult, ...] = ()) -> CheckReport:
    return evaluate(planned(line("dev-cpu-0"), only=frozenset({"dev-cpu-0"})), rows, more)


def test_a_node_without_a_result_failed():
    assert report(row("hello"), row("home")).passed
    (result,) = report({"note": "downloading"}).results
    assert (result.check, result.status, result.text) == ("hello", "fail", "the check ended before this node's job did")
    assert result.todo.startswith("./hpc logs STACK slurmd --on dev-cpu-0")


@pytest.mark.parametrize("first", ["pass", "fail"])
def test_of_two_results_the_first_failure_counts(first: str):
    found = report(row("home", first, text="1"), row("hello"), row("home", "fail", text="2"))
    home = ("home", "fail", "1" if first == "fail" else "2")
    assert [(result.check, result.status, result.text) for result in found.results] == [("hello", "pass", ""), home]
    assert not found.passed


@pytest.mark.parametrize("unavailable", [True, False])
def test_a_node_that_did_not_begin_is_not_checked(unavailable: bool):
    lost = {"node": "dev-cpu-0", "partition": "cpu", "why": "busy", "todo": "", "unavailable": unavailable}
    found = report(lost, more=(CheckResult(check="mail", status="pass"),))
    assert [node.why for node in found.not_checked] == ["busy"]
    assert found.passed is not unavailable


def test_skipped_is_not_passed():
    assert not report(more=(CheckResult(check="mail", status="skip"),)).passed
    assert not evaluate(planned(only=frozenset()), []).passed
    assert not evaluate(planned(only=frozenset()), [], [CheckResult(check="mail", status="skip")]).passed


def gpu_results(
    *rows: dict[str, Any], more: str = "", gres: str = "gpu:standin:2", rehearsed: bool = False
) -> dict[str, str]:
    text = line("dev-gpu-0", more=more).replace("gpu:standin:2", gres)
    found = evaluate(planned(text, only=frozenset({"dev-gpu-0"}), rehearsed=rehearsed), rows)
    return {result.check: f"{result.status}, {result.text}" for result in found.results}


def test_gpus_that_were_not_tried_together_are_noted():
    rows = [row(check, node="dev-gpu-0", text="2 GPUs") for check in ("hello", "home", "gpus")]
    used = "AllocTRES=cpu=1,gres/gpu=2"
    why = "no free GPU on dev-gpu-0: busy"
    found = gpu_results(*rows, more=used)
    assert (found["gpus"], found["confined"]) == (f"pass, 2 GPUs; not tried together: {why}", f"skip, {why}")
    assert "confined" not in gpu_results(*rows)
    found = gpu_results(*rows[:2], gres="(null)", rehearsed=True)
    assert found["gpus"] == found["confined"] == "skip, nodes of this rehearsal have no GPUs"
