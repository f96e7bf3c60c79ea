"""Which jobs the quickcheck asks for: small ones, only where there is room, and every node is accounted for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs.partition_facts import partition_facts
from cluster.jobs.quickcheck import LEAST_MEMORY, CheckPlan, Options, Room, parse_rooms, plan
from cluster.observe.nodes import Job, parse_nodes
from cluster.slurm.hostlist import expand
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
    ("state", "why", "unavailable"),
    [
        ("IDLE+DRAIN", "drained", True),
        ("DOWN*", "down*", True),
        ("IDLE*", "idle*", True),
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
