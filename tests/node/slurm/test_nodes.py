"""What slurmctld prints of nodes and jobs is read as it is meant, whatever people write into it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm import jobs, nodes
from slurm.nodes import BOOTING, OFF, STATES, Node, StateMeaning

from tests import squeue

# As scontrol of 22.05 prints them, shortened.
NODES = """\
NodeName=dev-cpu-0 Arch=x86_64 CPUAlloc=2 State=MIXED+DRAIN ThreadsPerCore=1 BootTime=2026-11-21T05:43:21 \
SlurmdStartTime=2026-11-21T05:43:27 ExtSensorsTemp=n/s Reason=fan [2] broken [root@2026-11-21T05:43:58]
NodeName=dev-cpu-1 State=DOWN*+DRAIN SlurmdStartTime=None Reason=Not responding [slurm@2026-11-21T06:00:00] Comment=x
NodeName=dev-gpu-0 State=IDLE+PLANNED SlurmdStartTime=2026-11-21T05:43:27
"""
MARK = "0f1e2d3c4b5a6978"
JOBS = (
    {"i": "7", "u": "alice", "T": "RUNNING", "M": "1:02", "L": "22:58:58", "N": "dev-cpu-[0-1]", "j": "a:b"},
    {"i": "8_2", "u": "bob", "T": "COMPLETING", "M": "3:00", "L": "UNLIMITED", "N": "dev-gpu-0", "j": "x"},
)


def read_jobs(*rows: dict[str, str]) -> list[jobs.Job]:
    return jobs.parse(squeue.printed(jobs.command(MARK), rows), MARK)


NAMES = {name: Node(name=name, states=frozenset({"IDLE"})) for name in ("dev-cpu-0", "dev-cpu-1", "dev-gpu-0")}


def test_a_nodes_state_reason_and_time():
    found = nodes.parse(NODES)
    first, second, third = found.values()
    assert (first.word, first.reason, first.by, first.since) == (
        "draining", "fan [2] broken", "root", "2026-11-21T05:43:58",
    )  # fmt: skip
    assert (second.word, second.reason, second.drained) == ("down, drained*", "Not responding", True)
    assert (third.word, third.reason, third.fine) == ("idle", "", True)
    assert [node.fine for node in found.values()] == [False, False, True]


def test_nodes_have_their_jobs_and_completing_ones_are_not_busy():
    found = nodes.parse(NODES, read_jobs(*JOBS))
    assert [job.id for job in found["dev-cpu-1"].busy] == ["7"]
    assert found["dev-gpu-0"].jobs
    assert not found["dev-gpu-0"].busy
    expected = "job 7 (a:b) of alice on dev-cpu-[0-1]: running for 1:02, 22:58:58 left"
    assert str(found["dev-cpu-0"].jobs[0]) == expected


@given(st.lists(st.text(), max_size=4))
def test_job_names_round_trip(names: list[str]):
    found = read_jobs(*({"i": "7", "u": "alice", "T": "RUNNING", "N": "dev-cpu-0", "j": name} for name in names))
    assert [job.name for job in found] == names
    assert {job.id for job in found} <= {"7"}
    assert all(str(job).isprintable() for job in found)


def test_rows_in_a_job_name_are_no_jobs():
    """As one that made `nodes reboot --force` cancel job 1."""
    evil = "x\n1|1|bob||RUNNING|1:02|1:00|dev-cpu-0|y\x1b[2J"
    (job,) = read_jobs({"i": "7", "u": "alice", "T": "RUNNING", "N": "dev-cpu-1", "j": evil})
    assert (job.id, job.hosts) == ("7", ("dev-cpu-1",))
    assert "\n" not in str(job)
    assert "\x1b" not in str(job)


# Without `=`, which begins another word of scontrol's.
REASON = st.text(st.characters(exclude_categories=["C"], exclude_characters="="), max_size=40)


@given(REASON.map(lambda text: " ".join(text.split())))
def test_reasons_round_trip(reason: str):
    line = f"NodeName=n State=IDLE+DRAIN X=1 Reason={reason} [root@2026-11-21T05:43:58]"
    assert nodes.parse(line)["n"].reason == reason


COMBINED = """
    IDLE IDLE+COMPLETING IDLE+DRAIN ALLOCATED+DRAIN MIXED+DRAIN IDLE+COMPLETING+DRAIN DOWN* DOWN+NOT_RESPONDING UNKNOWN
    MIXED+DRAIN+REBOOT_REQUESTED DOWN+DRAIN+REBOOT_ISSUED IDLE+CLOUD DOWN+CLOUD IDLE+CLOUD+POWERED_DOWN
    IDLE+CLOUD+POWERED_DOWN+NOT_RESPONDING ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP IDLE+CLOUD+POWERING_DOWN
    IDLE+CLOUD+NOT_RESPONDING+POWERING_DOWN DOWN+CLOUD+POWERED_DOWN DOWN+CLOUD+POWERING_UP+NOT_RESPONDING
    IDLE+CLOUD+DRAIN+POWERED_DOWN
"""


def test_words_and_properties_of_states(reviewed):
    """CLOUD is how a node was defined, and says nothing of its power."""
    found = {states: nodes.parse(f"NodeName=n State={states}")["n"] for states in COMBINED.split()}
    properties = ("fine", "ready", "down", "drained", "rebooting")
    reviewed(
        "observe/states",
        {
            states: " ".join([node.word, *(f"({p})" for p in properties if getattr(node, p))])
            for states, node in found.items()
        },
    )


@pytest.mark.parametrize(
    ("given_", "found", "unknown"),
    [
        (["cpu-0"], ["dev-cpu-0"], []),
        (["dev-cpu-[0-1]", "cpu-0"], ["dev-cpu-0", "dev-cpu-1"], []),
        (["cpu-[1-3],gpu-0"], ["dev-cpu-1", "dev-gpu-0"], ["cpu-2", "cpu-3"]),
        (["x", "x"], [], ["x"]),
    ],
)
def test_nodes_are_found_by_name_or_range(given_: list[str], found: list[str], unknown: list[str]):
    chosen, missing = nodes.select(given_, NAMES, "dev")
    assert ([node.name for node in chosen], missing) == (found, unknown)


def having(*meanings: StateMeaning) -> set[str]:
    return {name for name, means in STATES.items() if any(meaning in means for meaning in meanings)}


def test_a_node_works_in_a_base_state_that_is_up_or_while_jobs_end():
    working = {state for state in STATES if Node("n", frozenset({state})).working}
    assert working == {"IDLE", "MIXED", "ALLOCATED", "COMPLETING"}


def test_a_node_takes_no_jobs_while_it_is_down_held_off_or_boots():
    broken = {state for state in STATES if Node("n", frozenset({"IDLE", state})).broken}
    assert broken == having(StateMeaning.DOWN, StateMeaning.HELD) | OFF | BOOTING | {"REBOOT_ISSUED"}
    assert having(StateMeaning.ASLEEP) > OFF | BOOTING | {"REBOOT_ISSUED"}


def test_output_that_names_no_node_or_no_number():
    assert nodes.parse("") == nodes.parse("slurm_load_node error: Unable to contact slurm controller") == {}
    node = nodes.parse("NodeName=a CPUTot=x State=IDLE Gres=gpu:h100:8(S:0-1),shard:4")["a"]
    assert (node.cpus, node.gpus, node.free_gpus) == (0, 8, 8)


def test_resources_of_a_node_and_what_is_free():
    line = (
        "NodeName=n CPUAlloc=2 CPUEfctv=6 CPUTot=8 Gres=gpu:h100:8(S:0-1) RealMemory=1000 AllocMem=300 "
        "MemSpecLimit=100 State=MIXED AllocTRES=cpu=2,gres/gpu=3,gres/gpu:h100=3"
    )
    node = nodes.parse(line)["n"]
    assert (node.cpus, node.free_cpus, node.free_memory, node.gpus, node.free_gpus) == (8, 4, 600, 8, 5)
    assert (node.emptied.free_cpus, node.emptied.free_memory, node.emptied.free_gpus) == (6, 900, 8)
