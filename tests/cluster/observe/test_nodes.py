"""What slurmctld prints of nodes and jobs is read as it is meant, whatever people write into it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.observe.nodes import Node, jobs_command, parse_jobs, parse_nodes, select_nodes

# As scontrol of 22.05 prints them, shortened.
NODES = """\
NodeName=dev-cpu-0 Arch=x86_64 CPUAlloc=2 State=MIXED+DRAIN ThreadsPerCore=1 BootTime=2026-11-21T05:43:21 \
SlurmdStartTime=2026-11-21T05:43:27 ExtSensorsTemp=n/s Reason=fan [2] broken [root@2026-11-21T05:43:58]
NodeName=dev-cpu-1 State=DOWN*+DRAIN SlurmdStartTime=None Reason=Not responding [slurm@2026-11-21T06:00:00] Comment=x
NodeName=dev-gpu-0 State=IDLE+PLANNED SlurmdStartTime=2026-11-21T05:43:27
"""
MARK = "0f1e2d3c4b5a6978"
JOBS = """\
7|alice|RUNNING|1:02|22:58:58|dev-cpu-[0-1]|a:b|
8_2|bob|COMPLETING|3:00|UNLIMITED|dev-gpu-0|x|
""".replace("|", MARK)
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


def test_nodes_have_their_jobs_and_completing_ones_are_not_busy():
    nodes = parse_nodes(NODES, parse_jobs(JOBS, MARK))
    assert [job.number for job in nodes["dev-cpu-1"].busy] == ["7"]
    assert nodes["dev-gpu-0"].jobs
    assert not nodes["dev-gpu-0"].busy
    assert str(nodes["dev-cpu-0"].jobs[0]) == "job 7 (a:b) of alice: running for 1:02, 22:58:58 left"


@given(st.lists(st.text(), max_size=4))
def test_job_names_round_trip(names: list[str]):
    rows = [("7", "alice", "RUNNING", "1:02", "1:00", "dev-cpu-0", name) for name in names]
    printed = "".join("".join(f"{cell}{MARK}" for cell in row) + "\n" for row in rows)
    assert [job.name for job in parse_jobs(printed, MARK)] == names
    assert {job.number for job in parse_jobs(printed, MARK)} <= {"7"}


def test_rows_in_a_job_name_are_no_jobs():
    """As one that made `nodes reboot --force` cancel job 1."""
    evil = "x\n1|bob|RUNNING|1:02|1:00|dev-cpu-0|y\x1b[2J"
    printed = f"7|alice|RUNNING|1:02|1:00|dev-cpu-1|{evil}".replace("|", MARK, 6) + f"{MARK}\n"
    (job,) = parse_jobs(printed, MARK)
    assert (job.number, job.nodes) == ("7", ("dev-cpu-1",))
    assert "\n" not in str(job)
    assert "\x1b" not in str(job)


def test_the_command_has_a_mark_after_every_field():
    assert jobs_command("ab").endswith("--format='%iab%uab%Tab%Mab%Lab%Nab%jab'")


# Without `=`, which begins another word of scontrol's.
REASON = st.text(st.characters(exclude_categories=["C"], exclude_characters="="), max_size=40)


@given(REASON.map(lambda text: " ".join(text.split())))
def test_reasons_round_trip(reason: str):
    line = f"NodeName=n State=IDLE+DRAIN X=1 Reason={reason} [root@2026-11-21T05:43:58]"
    assert parse_nodes(line)["n"].reason == reason


STATES = """
    IDLE IDLE+COMPLETING IDLE+DRAIN ALLOCATED+DRAIN MIXED+DRAIN IDLE+COMPLETING+DRAIN DOWN* DOWN+NOT_RESPONDING UNKNOWN
    MIXED+DRAIN+REBOOT_REQUESTED DOWN+DRAIN+REBOOT_ISSUED IDLE+CLOUD DOWN+CLOUD IDLE+CLOUD+POWERED_DOWN
    IDLE+CLOUD+POWERED_DOWN+NOT_RESPONDING ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP IDLE+CLOUD+POWERING_DOWN
    IDLE+CLOUD+NOT_RESPONDING+POWERING_DOWN DOWN+CLOUD+POWERED_DOWN DOWN+CLOUD+POWERING_UP+NOT_RESPONDING
    IDLE+CLOUD+DRAIN+POWERED_DOWN
"""


def test_words_and_properties_of_states(reviewed):
    """CLOUD is how a node was defined, and says nothing of its power."""
    nodes = {states: parse_nodes(f"NodeName=n State={states}")["n"] for states in STATES.split()}
    properties = ("fine", "ready", "down", "drained", "rebooting")
    reviewed(
        "observe/states",
        {
            states: " ".join([node.word, *(f"({p})" for p in properties if getattr(node, p))])
            for states, node in nodes.items()
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
    nodes, missing = select_nodes(given_, NAMES, "dev")
    assert ([node.name for node in nodes], missing) == (found, unknown)
