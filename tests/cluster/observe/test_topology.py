"""The tree of switches as slurmctld prints it, and how far apart the nodes of a job are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.observe.topology import TopologyError, parse_topology

# scontrol show topology of 24.11.5, for a topology.conf of the set-up's.
TREE = """\
SwitchName=b-0b639c2a Level=0 LinkSpeed=1 Nodes=tt-cpu-[3,5]
SwitchName=b-6acd191b Level=0 LinkSpeed=1 Nodes=tt-cpu-[0,2]
SwitchName=b-6c872482 Level=0 LinkSpeed=1 Nodes=tt-cpu-[1,4]
SwitchName=ns-more Level=0 LinkSpeed=1 Nodes=tt-more-0
SwitchName=c-6b23c0d5 Level=1 LinkSpeed=1 Nodes=tt-cpu-[0-5] Switches=b-0b639c2a,b-6acd191b,b-6c872482
SwitchName=root Level=2 LinkSpeed=1 Nodes=tt-cpu-[0-5],tt-more-0 Switches=c-6b23c0d5,ns-more
"""
# As topology_block.c of 24.11 and 26.05 prints it.
BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=n-[0-1] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=n-[2-3] BlockSize=2
BlockName=b3 BlockIndex=2 Nodes=n-[4-5] BlockSize=2
BlockName=b4 BlockIndex=3 Nodes=n-[6-7] BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=4 Nodes=n-[0-3] BlockSize=4
AggregatedBlock=b[3-4] BlockIndex=5 Nodes=n-[4-7] BlockSize=4
"""
TITLES = "# c-6b23c0d5 is /C\n# b-0b639c2a is /C/B1\n"
STATES = "NodeName=tt-cpu-0 State=IDLE\nNodeName=tt-cpu-2 State=ALLOCATED\n"


def of(shown=TREE, records="", job=""):
    return parse_topology(f"{shown}MARK\n{TITLES}MARK\n{STATES}MARK\n{records}", "MARK", job)


def test_the_tree_is_drawn_from_the_top_with_states_of_the_leaves():
    assert of().table() == [
        ("SWITCH", "NODES", "STATES", "NAMES", "IN THE CLOUD"),
        ("root", "7", "", "", ""),
        ("  ns-more", "1", "1 unknown", "tt-more-0", ""),
        ("  c-6b23c0d5", "6", "", "", "/C"),
        ("    b-0b639c2a", "2", "2 unknown", "tt-cpu-[3,5]", "/C/B1"),
        ("    b-6acd191b", "2", "1 allocated, 1 idle", "tt-cpu-[0,2]", ""),
        ("    b-6c872482", "2", "2 unknown", "tt-cpu-[1,4]", ""),
    ]


@pytest.mark.parametrize(
    ("shown", "nodes", "leaves", "common", "distance"),
    [
        (TREE, "tt-cpu-[3,5]", {"b-0b639c2a": 2}, "b-0b639c2a", "block"),
        (TREE, "tt-cpu-[0-2]", {"b-6acd191b": 2, "b-6c872482": 1}, "c-6b23c0d5", "cluster"),
        (TREE, "tt-cpu-3,tt-more-0", {"b-0b639c2a": 1, "ns-more": 1}, "root", "different"),
        (TREE, "tt-cpu-3,gone-0", {"b-0b639c2a": 1}, None, "different"),
        (BLOCKS, "n-[0-1]", {"b1": 2}, "b1", "block"),
        (BLOCKS, "n-[1-2]", {"b1": 1, "b2": 1}, "b[1-2]", "different"),
        (BLOCKS, "n-[1,6]", {"b1": 1, "b4": 1}, None, "different"),
    ],
)
def test_distance_of_a_jobs_nodes(shown, nodes, leaves, common, distance):
    job = of(shown, f"7|{nodes}|\n", "7").job
    assert (job["leaves"], job["common"], job["distance"]) == (leaves, common, distance)


@given(st.sets(st.sampled_from([f"tt-cpu-{index}" for index in range(6)]), min_size=1))
def test_every_node_of_a_job_is_below_one_leaf(nodes):
    found = of(records=f"7|{','.join(sorted(nodes))}|\n", job="7")
    assert sum(found.job["leaves"].values()) == len(nodes)
    document = found.document()
    assert {document["nodes"][name]["switch"] for name in nodes} == set(found.job["leaves"])


@pytest.mark.parametrize(
    ("shown", "records", "said"),
    [
        ("error: No topology information available\n", "", "slurmctld has no topology .*No topology information"),
        ("", "", "scontrol lists no switch"),
        (TREE, "", "neither slurmctld nor the database has a job 7"),
        (TREE, "slurm_persist_conn_open: refused\n", "has a job 7: slurm_persist_conn_open: refused"),
        (TREE, "7|None assigned|\n", "has no nodes: it has not begun"),
        (TREE, "7_1|tt-cpu-0|\n7_2|tt-cpu-1|\n", "is 2 jobs: give one of them, such as 7_1"),
    ],
)
def test_errors_of_a_missing_topology_or_job(shown, records, said):
    with pytest.raises(TopologyError, match=said):
        of(shown, records, "7")
