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
    ExpectedNode,
    Options,
    parse_events,
    plan,
    results,
)
from scripts.node.slurm.hostlist import expand
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


def planned(*lines: str, jobs: tuple[Job, ...] = (), **options: object) -> CheckPlan:
    text = "\n".join(lines)
    chosen = Options(run="ab12", **options)  # type: ignore[arg-type]
    return plan(partition_facts(CONFIG), nodes_of(text, jobs), chosen)


def job(number: str, node: str) -> Job:
    return Job(number, user="bob", state="RUNNING", elapsed="1:00", left="1:00", name="x", nodes=node)


def test_every_idle_node_gets_a_job_and_each_partition_one_over_all():
    found = planned(*map(line, NAMES))
    each = [(job.key, job.partition, job.nodes) for job in found.jobs if job.each]
    assert each == [
        ("node", "cpu", "dev-cpu-[0-2]"),
        ("node", "gpu", "dev-gpu-0"),
        ("gpus", "gpu", "dev-gpu-0"),
    ]
    together = [(job.partition, job.nodes) for job in found.jobs if not job.each]
    assert together == [("cpu", "dev-cpu-[0-2]"), ("mixed", "dev-cpu-[0-2],dev-gpu-0")]
    assert not found.not_checked


def test_requests_are_small_and_never_exclusive_unless_asked():
    for job in planned(*map(line, NAMES)).jobs:
        assert job.tasks == 2 or job.key == "gpus"
        assert "--exclusive" not in job.options
        assert "--mem=512M" in job.options
    assert all("--exclusive" in job.options for job in planned(*map(line, NAMES), exclusive=True).jobs)


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
    assert "dev-cpu-0" not in {node for job in found.jobs for node in expand(job.nodes)}


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
    found = planned(*map(line, NAMES[:3]), used, jobs=(job("7", "dev-gpu-0"),))
    assert not any("gres" in option for job in found.jobs for option in job.options)
    assert found.expected["dev-gpu-0"].held_gpus == "no free GPU on dev-gpu-0: busy with job 7"
    half = line("dev-gpu-0", "MIXED", "AllocTRES=cpu=1,gres/gpu=1")
    assert [job.key for job in planned(half).jobs] == ["node"]
    assert "--gres=gpu:1" in planned(half).jobs[0].options


def test_gpus_that_slurmctld_lacks_are_expected_but_in_a_rehearsal():
    without = line("dev-gpu-0").replace("gpu:standin:2", "(null)")
    real = planned(without).expected["dev-gpu-0"]
    assert (real.gpus, real.held_gpus, real.no_gpus) == (2, "slurmctld has 0 GPUs of dev-gpu-0", "")
    assert planned(without, rehearsed=True).expected["dev-gpu-0"].no_gpus
    assert not planned(line("dev-gpu-0"), rehearsed=True).expected["dev-gpu-0"].no_gpus
    assert not any("gres" in option for job in planned(without).jobs for option in job.options)


def test_a_node_that_slurmctld_does_not_know_is_not_checked():
    assert [(job.node, job.why) for job in planned(*map(line, NAMES[1:])).not_checked] == [
        ("dev-cpu-0", "slurmctld does not know it")
    ]


def test_jobs_over_all_nodes_keep_to_the_partitions_limit():
    found = planned(*map(line, NAMES), most_nodes={"cpu": 2, "mixed": 2})
    assert [job.nodes for job in found.jobs if not job.each] == [
        "dev-cpu-[0-1]", "dev-cpu-[0-1]", "dev-cpu-2,dev-gpu-0",
    ]  # fmt: skip


def test_only_limits_the_nodes():
    text = "\n".join(map(line, NAMES))
    chosen = Options(run="ab12")
    found = plan(partition_facts(CONFIG), nodes_of(text), chosen, only=frozenset({"dev-cpu-2"}))
    assert list(found.expected) == ["dev-cpu-2"]
    assert not [job for job in found.jobs if not job.each]


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
    room = nodes_of(text)["dev-cpu-0"]
    found = planned(text, wait=wait)
    assert {node.node for node in found.not_checked} | set(found.expected) == set(NAMES)
    for expected in found.expected.values():
        assert wait or expected.tasks <= room.free_cpus
        assert wait or LEAST_MEMORY <= expected.memory <= room.free_memory


def test_no_job_asks_for_longer_than_its_partition_allows():
    short = {"cpu": {**PARTITIONS["cpu"], "max_time": "00:03:30"}, "gpu": PARTITIONS["gpu"]}
    text = "\n".join(map(line, NAMES))
    chosen = Options(run="ab12", container=True)
    facts = partition_facts(cluster(nodesets=TWO, partitions=short))
    found = plan(facts, nodes_of(text), chosen)
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
            "c-0": ExpectedNode(node="c-0", partition="p", tasks=2, memory=512, container_memory=1024, gpus=0),
            "g-0": ExpectedNode(node="g-0", partition="p", tasks=2, memory=512, container_memory=1024, gpus=2),
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


def test_a_cluster_without_faults_passes():
    found = report(good())
    assert found.passed
    assert {result.status for result in found.results} == {"pass"}
    assert [result.check for result in found.results if result.node == "g-0"] == [
        "hello", "home", "shared", "memory", "gpus", "confined", "accounting",
    ]  # fmt: skip


Events = dict[str, dict[str, Any]]
BUSY = "srun: error: Unable to allocate resources: Requested nodes are busy"
CARD = {"out": "", "err": "srun: error: gpu: launch failed", "code": 1}
DAMAGED_HOME = {"error": "/home/a: No such file or directory"}


def at_c(**task: Any) -> Events:
    """The events of node c-0 whose first task reports this."""
    return {"c": {"out": full("c-0", **task) + said("c-0", 1)}}


def at_home(**file: Any) -> Events:
    return {"home": {"files": {"c-0": {"own": True, "text": "ab12 c-0", **file}}}}


def at_g(one: dict[str, Any], whole: dict[str, Any]) -> Events:
    """Reports of a job with one GPU of node g-0, and of a job with both."""
    return {"g": {"out": full("g-0", gpus=one) + said("g-0", 1)}, "gpus": {"out": said("g-0", gpus=whole)}}


def container(**more: Any) -> Events:
    return {"container": end("container", "c-0", **more)}


def ran(**more: Any) -> Events:
    """The event of a container whose task reports this."""
    return container(out=said("c-0", **more))


OUTCOMES: dict[str, Events] = {
    "nothing": {},
    "one task of two": {"c": {"out": full("c-0")}},
    "another host": {"c": {"out": full("x") + said("x", 1)}},
    "a launch that failed": {"c": {"out": "", "code": 1, "err": "srun: error: Task launch failed"}},
    "a job that hangs": {"c": {"out": "", "code": 124, "late": True}},
    "an answer that is cut": {"c": {"out": MARK + "{cut"}},
    "a first task that did not look at the node": {"c": {"out": said("c-0") + said("c-0", 1)}},
    "an exit code": {"c": {"code": 3}},
    "a home that is missing": at_c(home=DAMAGED_HOME),
    "a file that is not on the login machine": {"home": {"files": {"g-0": {"own": True, "text": "ab12 g-0"}}}},
    "a file of another owner": at_home(own=False),
    "a file of another run": at_home(text="old c-0"),
    "no shared folder": at_c(shared=False),
    "no limit on memory": at_c(memory=-1),
    "another limit on memory": at_c(memory=2048 * MIB),
    "a job that is not recorded": {"accounting": {"text": "8|alice|research|normal|COMPLETED|g-0\n"}},
    "a record without account": {"accounting": {"text": "7|alice||normal|COMPLETED|c-0\n"}},
    "no accounting": {"accounting": {"text": "", "error": "slurmdbd is down"}},
    "GPUs that are not confined": at_g(gpus(2), gpus(2)),
    "a GPU that is missing": at_g(gpus(1, devices=1), gpus(1, devices=1)),
    "a GPU that the driver does not have": at_g(gpus(1, driver=1), gpus(2)),
    "two GPUs by nvidia-smi where one is asked for": at_g(gpus(1, smi=["GPU 0", "GPU 1"]), gpus(2)),
    "a GPU that is lost": at_g(gpus(1), gpus(2, smi=["GPU 0"], smi_error="GPU is lost")),
    "a warning of nvidia-smi": at_g(gpus(1), gpus(2, smi_code=14, smi_error="WARNING: infoROM")),
    "no GPU where one is asked for": at_g(gpus(0), gpus(2)),
    "a job with all GPUs that fails": {"gpus": CARD},
    "other jobs that took the GPUs": {"gpus": {**CARD, "err": BUSY}},
    "other jobs that took the GPUs, by priority": {
        "gpus": {**CARD, "err": "Immediate execution impossible, insufficient priority"}
    },
    "other jobs that took the node": {"c": {**CARD, "err": BUSY}, **container(**{**CARD, "err": BUSY})},
    "an account that may not begin": {"c": {**CARD, "err": "srun: error: Invalid account or account/partition"}},
    "a task that is silent among all nodes": {"together": {"out": "".join(said("c-0", n) for n in (0, 1))}},
    "one task four times": {"together": {"out": said("c-0", 0) * 4}},
    "podman": ran(runtime="podman", wanted="ab12", out="ab12\n"),
    "podman without output": ran(runtime="podman", wanted="ab12", out=""),
    "apptainer that fails": ran(runtime="apptainer", error="no"),
    "no container runtime": ran(),
    "no event of a container": {"container": {"event": "none"}},
    "pyxis": container(out="ID=rhel\n"),
    "an image that can't be imported": container(err="pyxis: failed to import", code=1),
    "a container that hangs": container(code=124, late=True),
    "a driver that failed": {"failed": {"event": "failed", "text": "OSError: disk full"}},
}
GONE = ("c", "g", "home", "accounting", "gpus", "together")


def shown(found: CheckReport) -> str:
    """Return results that differ from those of a run in which everything passes, and nodes that were not checked."""
    passing = report(good()).results
    rows = [
        " | ".join(
            filter(None, (f"{result.node or '-'} {result.check}: {result.status}, {result.text}", result.output))
        )
        for result in found.results
        if not any(
            (result.node, result.check, result.text) == (other.node, other.check, other.text) for other in passing
        )
    ]
    rows += [
        f"{node.node} is not checked{' (unavailable)' * node.unavailable}: {node.why}" for node in found.not_checked
    ]
    return "\n".join([f"passed: {found.passed}", *rows])


def test_results_of_faults(reviewed):
    """What never came does not pass either."""
    cases: dict[str, Events] = {f"no event of {name}": {**good()} for name in GONE}
    for name in GONE:
        del cases[f"no event of {name}"][name]
    for case, changes in OUTCOMES.items():
        events = good()
        cases[case] = events | {name: {**events.get(name, {}), **change} for name, change in changes.items()}
    hello, both = a_plan(), a_plan(container=True)
    plans = {case: both if "container" in events else hello for case, events in cases.items()}
    reviewed("jobs/quickcheck", {case: shown(report(events, plans[case])) for case, events in cases.items()})


def test_a_node_that_became_busy_is_skipped():
    events = good()
    events["c"] |= {**CARD, "err": BUSY}
    (missing,) = results(a_plan(), events.values(), now=nodes_of("NodeName=c-0 State=ALLOCATED")).not_checked
    assert "Requested nodes are busy" in missing.why


def test_skipped_is_not_passed():
    nothing = CheckPlan(jobs=(), expected={}, not_checked=(), options=Options(run="ab12"))
    assert not results(nothing, []).passed
    skipped = results(nothing, [], more=[CheckResult(check="mail", status="skip")])
    assert not skipped.passed


def test_lines_that_are_no_events_are_left_out():
    lines = ["Welcome!", "{}", '{"event": 3}', "[1]", '{"event": "done"}', "\x1b[31m", '{"event": "end"']
    assert list(parse_events(lines)) == [{"event": "done"}]
