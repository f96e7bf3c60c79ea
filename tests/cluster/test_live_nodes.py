"""What slurmctld prints of nodes and jobs is read as it is meant, whatever people write into it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.live.nodes import Node, chosen, parse_jobs, parse_nodes

# As scontrol of 22.05 prints them, shortened.
NODES = """\
NodeName=dev-cpu-0 Arch=x86_64 CPUAlloc=2 State=MIXED+DRAIN ThreadsPerCore=1 BootTime=2026-11-21T05:43:21 \
SlurmdStartTime=2026-11-21T05:43:27 ExtSensorsTemp=n/s Reason=fan [2] broken [root@2026-11-21T05:43:58]
NodeName=dev-cpu-1 State=DOWN*+DRAIN SlurmdStartTime=None Reason=Not responding [slurm@2026-11-21T06:00:00] Comment=x
NodeName=dev-gpu-0 State=IDLE+PLANNED SlurmdStartTime=2026-11-21T05:43:27
"""
JOBS = """\
7|alice|RUNNING|1:02|22:58:58|dev-cpu-[0-1]|a|b
8_2|bob|COMPLETING|3:00|UNLIMITED|dev-gpu-0|x
"""
NAMES = {name: Node(name=name, states=frozenset({"IDLE"})) for name in ("dev-cpu-0", "dev-cpu-1", "dev-gpu-0")}


def test_a_nodes_state_reason_and_time():
    nodes = parse_nodes(NODES)
    first, second, third = nodes.values()
    assert (first.word, first.reason, first.by, first.since) == (
        "draining", "fan [2] broken", "root", "2026-11-21T05:43:58",
    )  # fmt: skip
    assert (second.word, second.reason, second.drained) == ("down, drained*", "Not responding", True)
    assert (third.word, third.reason, third.fine) == ("idle", "", True)
    assert [node.fine for node in nodes.values()] == [False, False, True]


def test_each_node_has_its_jobs_and_a_completing_one_is_over():
    nodes = parse_nodes(NODES, parse_jobs(JOBS))
    assert [job.number for job in nodes["dev-cpu-1"].busy] == ["7"]
    assert nodes["dev-gpu-0"].jobs
    assert not nodes["dev-gpu-0"].busy
    assert str(nodes["dev-cpu-0"].jobs[0]) == "job 7 (a|b) of alice: running for 1:02, 22:58:58 left"


# Without `=`, which begins another word of scontrol's.
REASON = st.text(st.characters(exclude_categories=["C"], exclude_characters="="), max_size=40)


@given(REASON.map(lambda text: " ".join(text.split())))
def test_any_reason_is_read_back(reason: str):
    line = f"NodeName=n State=IDLE+DRAIN X=1 Reason={reason} [root@2026-11-21T05:43:58]"
    assert parse_nodes(line)["n"].reason == reason


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ("IDLE", "idle"),
        ("IDLE+COMPLETING", "completing"),
        ("IDLE+DRAIN", "drained"),
        ("ALLOCATED+DRAIN", "draining"),
        ("IDLE+COMPLETING+DRAIN", "draining"),
        ("DOWN+NOT_RESPONDING", "down*"),
        ("UNKNOWN", "unknown"),
    ],
)
def test_a_state_is_said_as_sinfo_says_it(states: str, word: str):
    assert Node(name="n", states=frozenset(states.split("+"))).word == word


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
    nodes, missing = chosen(given_, NAMES, "dev")
    assert ([node.name for node in nodes], missing) == (found, unknown)
