"""Machines are recreated a part of each partition at a time, idle nodes first, and those that are back take jobs."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import turns
from slurm import scheduler
from slurm.scheduler import REMADE, State
from system import cluster_state
from system.host import SetupError

PARTS = "pqr"
nodes_of_partitions = st.lists(
    st.tuples(st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "IDLE+DRAIN"]), st.sets(st.sampled_from(PARTS))),
    min_size=1,
    max_size=12,
)


def node(states: str, *partitions: str, reason: str = "") -> State:
    return State(states=set(states.split("+")), reason=reason, partitions=list(partitions))


def out(nodes: dict[str, State], part: str) -> int:
    """Nodes of a partition that would take jobs if their machines were not recreated."""
    return sum(turns.has_turn(one) and part in one["partitions"] for one in nodes.values())


@given(nodes_of_partitions, st.floats(0.01, 1), st.randoms())
def test_every_node_has_its_turn_and_no_partition_loses_more_than_its_part(rows, part, random) -> None:
    nodes = {f"n{index}": node(states, *sorted(parts)) for index, (states, parts) in enumerate(rows)}
    sizes = {one: sum(one in row["partitions"] for row in nodes.values()) for one in PARTS}
    waiting = set(nodes)
    while waiting:
        for name in turns.next_ones(waiting, nodes, part):
            if nodes[name]["states"] & scheduler.BROKEN:
                waiting.discard(name)  # takes no jobs: nothing is lost by it
                continue
            idle = {one for one in waiting if nodes[one]["states"] == {"IDLE"}}
            if nodes[name]["states"] & turns.BUSY:
                # None that is idle could go in its place.
                assert not {one for one in turns.next_ones(idle, nodes, part) if nodes[one]["partitions"]}
            nodes[name] = {**nodes[name], "states": nodes[name]["states"] | {"DRAIN"}, "reason": REMADE}
            for one in PARTS:
                assert out(nodes, one) <= max(1, int(part * sizes[one]))
        back = random.choice(sorted(name for name in nodes if turns.has_turn(nodes[name])) or [""])
        if back:
            nodes[back] = {**nodes[back], "states": {"IDLE"}, "reason": ""}
            waiting.discard(back)


class Slurm:
    def __init__(self, **nodes: State) -> None:
        self.nodes = nodes

    def run(self, *command: str) -> str:
        words = dict(word.split("=", 1) for word in command[2:])
        found = self.nodes[words["NodeName"]]
        found["reason"] = words.get("Reason", "")
        found["states"] = {"IDLE"} if words["State"] == "RESUME" else {*found["states"], words["State"]}
        return ""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Slurm:
    found = Slurm(a=node("ALLOCATED", "p"), b=node("IDLE", "p"), c=node("IDLE", "p"), d=node("IDLE", "q"))
    monkeypatch.setattr(scheduler, "states", lambda: found.nodes)
    monkeypatch.setattr(scheduler, "run", found.run)
    for name in ("PART", "FOLDER", "LEFT", "FAILED"):
        monkeypatch.setattr(turns, name, tmp_path / name)
    monkeypatch.setattr(cluster_state, "REPORTS", tmp_path)
    monkeypatch.setattr(cluster_state, "CONFIG", tmp_path / "cluster.json")
    (tmp_path / "cluster.json").write_text('{"digest": "v2"}')
    for name in found.nodes:
        machine(name, "old")
    return found


def machine(name: str, key: str) -> None:
    report = {"state": "configured", "digest": "v2", "host_key": f"{key} {name}"}
    (cluster_state.REPORTS / f"{name}.json").write_text(json.dumps(report))


def taken(name: str) -> bool:
    """Whether it is the node's turn, when the processes of all nodes have come."""
    return turns.take(name, began=time.time() - 60)[0]


def test_a_busy_node_waits_for_idle_ones_and_takes_jobs_again_when_its_next_machine_has_joined(slurm: Slurm) -> None:
    with turns.present("a"), turns.present("d"):
        with turns.present("b"):
            assert not taken("a")
            assert taken("b")
            assert taken("b"), "the next `up` goes on"
        assert taken("d"), "of another partition"
        assert not taken("a")
        slurm.nodes["b"]["states"].add("DOWN")
        assert not taken("a"), "the old machine may still be there"
        machine("b", "new")
        assert taken("a")
    assert slurm.nodes["b"] == node("IDLE", "p")
    assert slurm.nodes["a"]["reason"] == slurm.nodes["d"]["reason"] == REMADE
    assert set(json.loads(turns.LEFT.read_text())) == {"a", "d"}
    machine("a", "new")
    turns.resume_joined()
    assert slurm.nodes["a"] == node("IDLE", "p")


def test_a_busy_node_that_comes_first_lets_idle_ones_come(slurm: Slurm) -> None:
    with turns.present("a"):
        assert turns.take("a", began=time.time()) == (False, frozenset())
        for name in ("b", "c"):
            slurm.nodes[name]["states"] = {"ALLOCATED"}
        assert turns.take("a", began=time.time())[0], "there are none"
    with turns.present("d"):
        assert turns.take("d", began=time.time())[0]


def test_a_process_that_was_killed_is_not_waited_for(slurm: Slurm) -> None:
    turns.FOLDER.mkdir()
    (turns.FOLDER / "b").touch()
    with turns.present("a"):
        assert taken("a")
    assert [path.name for path in turns.FOLDER.glob("[!.]*")] == []


def test_those_that_wait_end_when_the_jobs_of_one_before_them_did_not(slurm: Slurm) -> None:
    with turns.present("a"):
        with suppress(SetupError), turns.present("b"):
            assert taken("b")
            raise SetupError("jobs are still there")
        later = time.time() + 60
        os.utime(turns.FAILED, (later, later))
        with pytest.raises(SetupError, match="a was not drained: jobs of another node"):
            taken("a")


def test_a_machine_whose_set_up_fails_is_named_with_the_reason(slurm: Slurm) -> None:
    (cluster_state.REPORTS / "b.json").write_text('{"state": "failed", "message": "no package"}')
    found = turns.describe("a", frozenset({("b", "DOWN"), ("c", "DRAIN")}))
    assert turns.describe("a", frozenset()) == "a waits for its turn: idle nodes go first"
    assert found == "a waits for its turn: b (its set-up fails: no package), c being recreated"
