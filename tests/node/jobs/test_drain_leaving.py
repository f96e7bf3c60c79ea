"""Nodes and partitions that leave are drained and their jobs waited for; machines are recreated a part of each
partition at a time, idle nodes first; nodes are reserved from the end of their machines on."""

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import drain_leaving
from slurm import conf_changes, reservations, scheduler
from slurm.jobs import Job
from slurm.nodes import OFF, Node
from slurm.scheduler import REMADE
from system import cluster_state
from system.host import SetupError

CONF = (
    "# a comment\nClusterName=dev\nTaskPlugin=task/cgroup\n"
    "NodeName=dev-cpu-[0-2] NodeAddr=10.77.2.[1-3] CPUs=2 Sockets=1 RealMemory=2048\n"
    "nodename=dev-gpu-0 CPUs=2 Sockets=1 Gres=gpu:standin:2 Feature=fast\n"
    "PartitionName=cpu Nodes=dev-cpu-[0-2] MaxTime=INFINITE\nPartitionName=gpu Nodes=dev-gpu-0\n"
)
JOBS = [
    Job(
        "17",
        "17",
        "alice",
        name="a",
        state="RUNNING",
        partition="cpu",
        nodes="dev-cpu-[1-2]",
        elapsed="1:02",
        left="8:58",
    ),
    Job("18", user="bob", left="UNLIMITED", state="PENDING", partition="cpu,gpu", name="b"),
    Job("19", user="bob", left="5:00", state="COMPLETED", partition="gpu", nodes="dev-gpu-0"),
    Job("20", user="carol", left="5:00", state="COMPLETING", partition="gpu", nodes="dev-gpu-0"),
    Job("21", user="carol", left="10:00", state="PENDING", partition="cpu", nodes="dev-cpu-0", name="c"),
    Job("22", user="carol", left="10:00", state="SPECIAL_EXIT", partition="cpu", nodes="dev-cpu-0"),
]


@pytest.mark.parametrize(
    ("old", "new", "drained"),
    [
        # Changes that running jobs do not notice.
        *((old, new, {}) for old, new in (
            ("MaxTime=INFINITE", "MaxTime=60"), ("Feature=fast", "Feature=slow"), ("[0-2]", "[0-3]"),
            ("RealMemory=2048", "RealMemory=4096"), ("# a comment\n", ""),
        )),
        ("dev-cpu-[0-2]", "dev-cpu-0", dict.fromkeys(("dev-cpu-1", "dev-cpu-2"), scheduler.LEAVES)),
        # Jobs are tied to GPUs, sockets and cores.
        ("Gres=gpu:standin:2", "Gres=gpu:standin:1", {"dev-gpu-0": scheduler.RESHAPED}),
        ("CPUs=2 Sockets=1 Gres", "CPUs=4 Sockets=2 Gres", {"dev-gpu-0": scheduler.RESHAPED}),
    ],
)  # fmt: skip
def test_removed_and_reshaped_nodes_are_drained_and_no_others(old, new, drained):
    assert old in CONF
    assert drain_leaving.nodes_to_drain(CONF, CONF.replace(old, new)) == drained


def test_a_first_start_drains_no_node():
    assert drain_leaving.nodes_to_drain("", CONF) == {}


class TestJobs:
    @pytest.mark.parametrize(
        ("nodes", "partitions", "numbers"),
        [
            ({"dev-cpu-2"}, set(), ["17"]),
            ({"dev-gpu-0"}, set(), ["20"]),
            (set(), {"gpu"}, ["18", "20"]),
            # squeue names nodes of jobs that wait to run again: these would never end, as the node is drained.
            ({"dev-cpu-0"}, set(), []),
            (set(), {"cpu"}, ["17", "18", "21", "22"]),
        ],
    )
    def test_jobs_that_hold_a_node_or_are_in_a_partition_are_waited_for(self, nodes, partitions, numbers):
        assert [job.id for job in scheduler.jobs_left(JOBS, nodes, partitions)] == numbers

    def test_a_job_that_waits_to_run_again_is_described_without_nodes(self):
        assert str(JOBS[4]) == "job 21 (c) of carol: pending"

    @pytest.mark.parametrize("state", ["RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "STAGE_OUT", "NEW_IN_27_05"])
    def test_jobs_in_any_other_state_hold_their_nodes(self, state):
        job = Job("23", user="bob", state=state, partition="gpu", nodes="dev-gpu-0")
        assert scheduler.jobs_left([job], {"dev-gpu-0"}, set())

    def test_the_error_at_the_timeout_names_the_jobs_and_every_remedy(self):
        jobs = scheduler.jobs_left(JOBS, {"dev-cpu-2"}, {"gpu"})
        text = drain_leaving.timeout_error(jobs, {"dev-cpu-2"}, {"gpu"}, 60)
        for part in (
            "after 60 s (slurm.drain_seconds)", "job 17 (a) of alice on dev-cpu-[1-2]: running for 1:02, 8:58 left",
            "job 18 (b) of bob: pending", "run `up` again", "scancel 17 18 20", "put the old value back",
            "NodeName=dev-cpu-2 State=RESUME", "PartitionName=gpu State=UP",
        ):  # fmt: skip
            assert part in text


def test_the_clusters_name_and_partitions_are_read():
    assert conf_changes.cluster_name(CONF) == "dev"
    assert conf_changes.partitions(CONF) == {"cpu", "gpu"}


def test_users_who_leave_are_refused_while_they_have_jobs(monkeypatch):
    """sacctmgr would not delete them, and nodes could not remove the account."""
    monkeypatch.setattr(drain_leaving, "succeeds", lambda *_: True)
    monkeypatch.setattr(drain_leaving, "all_jobs", lambda: JOBS)
    with pytest.raises(SetupError, match=r"(?s)alice leaves.*job 17 \(a\) of alice on .*scancel --user=alice"):
        drain_leaving.refuse_busy({"alice", "dave"})
    drain_leaving.refuse_busy({"dave"})
    drain_leaving.refuse_busy(set())


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The files of `drain_leaving` in a temporary folder."""
    for name in ("TIMEOUT", "PART", "FOLDER", "LEFT", "FAILED"):
        monkeypatch.setattr(drain_leaving, name, tmp_path / name)
    return tmp_path


class Cloud:
    """slurmctld's power saving: a node goes from on to powering down to off, one step at each call of `states`, and
    loses its drain on the way, as with idle_on_node_suspend."""

    def __init__(self, **nodes: str) -> None:
        self.nodes = {name: set(states.split("+")) for name, states in nodes.items()}
        self.reasons = dict.fromkeys(nodes, "")
        self.updates: list[str] = []

    def states(self) -> dict[str, Node]:
        for states in self.nodes.values():
            if "POWERING_DOWN" in states:
                states ^= {"POWERING_DOWN", "POWERED_DOWN"}
            elif "POWER_DOWN" in states:
                states -= {"POWER_DOWN", "DRAIN", "POWERING_UP"}
                states.add("POWERING_DOWN")
        return {
            name: Node(name, frozenset(states), reason=self.reasons[name], partitions=("p",))
            for name, states in self.nodes.items()
        }

    def run(self, *command: str) -> str:
        words = dict(word.split("=", 1) for word in command[2:])
        name, state = words["NodeName"], words["State"]
        self.updates.append(f"{name} {state}")
        self.reasons[name] = words.get("Reason", self.reasons[name])
        self.nodes[name].add(state.removesuffix("_FORCE"))
        return ""


class TestElasticNodes:
    """A node that leaves takes its machine along, and takes no job on the way. For a static node that becomes elastic,
    Slurm requests the next machine."""

    @pytest.fixture
    def cloud(self, monkeypatch: pytest.MonkeyPatch, files: Path) -> Cloud:
        cloud = Cloud(a="IDLE", b="IDLE+CLOUD", c="IDLE+CLOUD+POWERED_DOWN", d="ALLOCATED+CLOUD+POWERING_UP")
        monkeypatch.setattr(scheduler, "read_nodes", cloud.states)
        monkeypatch.setattr(drain_leaving, "run", cloud.run)
        monkeypatch.setattr(scheduler, "run", cloud.run)
        monkeypatch.setattr(drain_leaving, "succeeds", lambda *_: True)
        monkeypatch.setattr(drain_leaving, "all_jobs", list)
        monkeypatch.setattr(drain_leaving.time, "sleep", lambda _: None)
        return cloud

    def test_nodes_that_leave_are_off_and_drained_before_slurm_conf_changes(self, cloud):
        drain_leaving.drain_removed("".join(f"NodeName={name} CPUs=2\n" for name in "abcd"), "", seconds=60, part=0.25)
        assert cloud.nodes["a"] == {"IDLE", "DRAIN"}
        for name in "bcd":
            assert {"POWERED_DOWN", "DRAIN"} <= cloud.nodes[name]
        assert set(cloud.reasons.values()) == {scheduler.LEAVES}
        assert [update for update in cloud.updates if "POWER" in update] == ["b POWER_DOWN", "d POWER_DOWN_FORCE"]

    def test_a_node_that_a_job_powers_up_on_the_way_is_powered_down_again(self, cloud, monkeypatch):
        states, powered_up = cloud.states, []

        def power_up() -> dict[str, Node]:
            nodes = states()
            if "POWERED_DOWN" in cloud.nodes["b"] and not powered_up:
                powered_up.append("b")
                cloud.nodes["b"] = {"ALLOCATED", "CLOUD", "POWERING_UP"}
            return nodes

        monkeypatch.setattr(scheduler, "read_nodes", power_up)
        drain_leaving.drain_removed("NodeName=b CPUs=2\n", "", seconds=60, part=0.25)
        assert {"POWERED_DOWN", "DRAIN"} <= cloud.nodes["b"]
        assert [update for update in cloud.updates if "POWER" in update] == ["b POWER_DOWN", "b POWER_DOWN_FORCE"]

    def test_nodes_that_become_static_are_off_and_drained_until_their_machine_has_joined(self, cloud):
        drain_leaving.vacate(["a", "b", "c", "d", "new"])
        assert cloud.nodes["a"] == {"IDLE"}, "it is static already, after an `up` that did not reach its end"
        for name in "bcd":
            assert {"POWERED_DOWN", "DRAIN"} <= cloud.nodes[name]
        assert {cloud.reasons[name] for name in "bcd"} == {REMADE}
        assert REMADE in scheduler.DRAIN_REASONS, "the set-up resumes them"

    def test_a_node_that_becomes_elastic_is_off_and_not_drained(self, cloud):
        drain_leaving.leave("b")
        assert cloud.updates[-1] == "b POWER_DOWN"
        assert cloud.nodes["b"] & OFF
        assert "DRAIN" not in cloud.nodes["b"]

    @pytest.mark.parametrize("state", ["POWERING_DOWN", "POWERED_DOWN"])
    def test_a_node_that_becomes_elastic_and_that_slurm_has_powered_down_is_not_drained(self, cloud, state):
        """Slurm does so when it was idle for long, and takes no drain off it afterwards."""
        cloud.nodes["b"].add(state)
        drain_leaving.leave("b")
        assert (cloud.updates, cloud.nodes["b"]) == ([], {"IDLE", "CLOUD", "POWERED_DOWN"})

    def test_a_static_node_waits_drained_and_down_for_its_next_machine(self, cloud):
        drain_leaving.leave("a")
        assert cloud.nodes["a"] >= {"DRAIN", "DOWN"}
        assert cloud.reasons["a"] == REMADE

    def test_a_machine_that_is_not_deleted_stops_the_change(self, cloud, monkeypatch):
        monkeypatch.setattr(drain_leaving, "OFF_SECONDS", -1)
        with pytest.raises(SetupError, match=r"b: not powered down .*journalctl -u hpc-reconcile"):
            drain_leaving.leave("b")


PARTITIONS = "pqr"
partitions_of_nodes = st.lists(
    st.tuples(
        st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "IDLE+DRAIN"]), st.sets(st.sampled_from(PARTITIONS))
    ),
    min_size=1,
    max_size=12,
)


def node(states: str, *partitions: str, reason: str = "") -> Node:
    return Node("", frozenset(states.split("+")), reason=reason, partitions=partitions)


@given(partitions_of_nodes, st.floats(0.01, 1), st.randoms())
def test_every_node_has_its_turn_and_no_partition_loses_more_than_its_part(rows, part, random) -> None:
    """Of machines; as many nodes more may be drained while their jobs run."""
    nodes = {f"n{index}": node(states, *sorted(partitions)) for index, (states, partitions) in enumerate(rows)}
    sizes = {partition: sum(partition in row.partitions for row in nodes.values()) for partition in PARTITIONS}
    ends = {name: random.random() for name in nodes}
    waiting = set(nodes)

    def out(partition: str, *, busy: bool) -> int:
        rows = [row for row in nodes.values() if drain_leaving.has_turn(row) and partition in row.partitions]
        return sum(("DOWN" in row.states) != busy for row in rows)

    while waiting:
        for name in drain_leaving.next_turns(waiting, nodes, part, ends):
            row = nodes[name]
            if drain_leaving.has_turn(row):
                nodes[name] = row._replace(states=frozenset({"DOWN", "DRAIN"}))
                waiting.discard(name)
            elif row.broken:
                waiting.discard(name)
            else:
                nodes[name] = row._replace(states=row.states | {"DRAIN"}, reason=REMADE)
            for partition in PARTITIONS:
                assert out(partition, busy=False) <= max(1, int(part * sizes[partition]))
                assert out(partition, busy=True) <= 2 * max(1, int(part * sizes[partition]))
        there = random.choice(sorted(nodes))
        if drain_leaving.has_turn(nodes[there]):
            # Its jobs end, or its next machine joins.
            joined = "DOWN" in nodes[there].states
            states = frozenset({"IDLE"} if joined else {"IDLE", "DRAIN"})
            nodes[there] = nodes[there]._replace(states=states, reason="" if joined else REMADE)


class TestOrder:
    """Of one partition of eight, of which two may be out of service."""

    def turns(self, waiting: str, **states: str) -> list[str]:
        """The turns of these nodes; `-` marks one that has its turn, and numbers are when jobs end."""
        nodes, ends = {name: node("IDLE", "p") for name in "abcdefgh"}, {}
        for name, text in states.items():
            word = text.rstrip("0123456789")
            ends[name] = float(text[len(word) :] or 0)
            nodes[name] = node(word, "p", reason=REMADE if "DRAIN" in word or "DOWN" in word else "")
        return drain_leaving.next_turns(set(waiting), nodes, 0.25, ends)

    def test_idle_nodes_pass_a_busy_one_that_is_drained(self):
        assert self.turns("abcd", a="ALLOCATED+DRAIN") == ["b", "c"]
        assert self.turns("abcd", a="ALLOCATED+DRAIN", b="MIXED+DRAIN") == ["c", "d"]

    def test_no_more_machines_are_recreated_at_a_time_than_the_part(self):
        assert self.turns("cd", a="DOWN+DRAIN", b="DOWN+DRAIN") == []
        assert self.turns("cd", a="DOWN+DRAIN", b="ALLOCATED+DRAIN") == ["c"]
        # One whose jobs have ended comes before those that are not drained yet.
        assert self.turns("abcd", a="DOWN+DRAIN", d="IDLE+DRAIN") == ["d"]
        assert self.turns("bd", a="DOWN+DRAIN", c="DOWN+DRAIN", d="IDLE+DRAIN") == []

    def test_a_drained_node_whose_up_is_gone_counts(self):
        assert self.turns("cd", a="IDLE+DRAIN", b="IDLE+DRAIN") == []

    def test_busy_nodes_come_in_the_order_in_which_their_jobs_end_and_after_idle_ones(self):
        assert self.turns("abc", a="ALLOCATED300", b="MIXED100", c="ALLOCATED200") == ["b", "c"]
        assert self.turns("abcd", a="ALLOCATED300", b="MIXED100", c="ALLOCATED200") == ["d", "b"]
        assert self.turns("abc", a="ALLOCATED300", b="MIXED100", c="ALLOCATED+DRAIN") == ["b"]


class TestTurns:
    @pytest.fixture
    def nodes(self, monkeypatch: pytest.MonkeyPatch, files: Path) -> dict[str, Node]:
        """The nodes of a slurmctld, whose machines have joined."""
        nodes = {"a": node("ALLOCATED", "p"), "b": node("IDLE", "p"), "c": node("IDLE", "p"), "d": node("IDLE", "q")}

        def run(*command: str) -> str:
            words = dict(word.split("=", 1) for word in command[2:])
            row = nodes[words["NodeName"]]
            states = {"IDLE"} if words["State"] == "RESUME" else {*row.states, words["State"]}
            nodes[words["NodeName"]] = row._replace(states=frozenset(states), reason=words.get("Reason", ""))
            return ""

        monkeypatch.setattr(scheduler, "read_nodes", lambda: nodes)
        monkeypatch.setattr(scheduler, "job_ends", dict)
        monkeypatch.setattr(scheduler, "run", run)
        monkeypatch.setattr(drain_leaving, "run", run)
        monkeypatch.setattr(cluster_state, "REPORTS", files)
        monkeypatch.setattr(cluster_state, "CONFIG", files / "cluster.json")
        (files / "cluster.json").write_text('{"digest": "v2"}')
        for name in nodes:
            self.join(name, "old")
        return nodes

    def join(self, name: str, key: str) -> None:
        """Report that a machine with this host key has joined."""
        report = {"state": "configured", "digest": "v2", "host_key": f"{key} {name}"}
        (cluster_state.REPORTS / f"{name}.json").write_text(json.dumps(report))

    def take(self, name: str, *, drained: bool = False) -> bool:
        """Take a node's turn, when the processes of all nodes have had time to start."""
        return drain_leaving.take_turn(name, began=time.time() - 60, drained=drained)[0]

    def test_a_busy_node_waits_for_idle_ones_and_is_resumed_when_its_next_machine_has_joined(self, nodes) -> None:
        with drain_leaving.announce("a"), drain_leaving.announce("d"):
            with drain_leaving.announce("b"):
                assert not self.take("a")
                assert self.take("b")
                assert self.take("b"), "the next `up` goes on"
                assert self.take("b", drained=True)
            assert nodes["b"].states >= {"DRAIN", "DOWN"}
            assert self.take("d"), "of another partition"
            assert not self.take("a"), "the old machine may still run"
            self.join("b", "new")
            assert self.take("a")
        assert nodes["b"] == node("IDLE", "p")
        assert nodes["a"].reason == nodes["d"].reason == REMADE
        assert set(json.loads(drain_leaving.LEFT.read_text())) == {"a", "d"}
        nodes["a"] = node("IDLE+DRAIN+DOWN", "p", reason=REMADE)
        self.join("a", "new")
        drain_leaving.resume_joined()
        assert nodes["a"] == node("IDLE", "p")

    def test_a_busy_node_waits_until_the_processes_of_the_others_have_started(self, nodes) -> None:
        with drain_leaving.announce("a"):
            assert drain_leaving.take_turn("a", began=time.time()) == (False, frozenset())
        with drain_leaving.announce("d"):
            assert drain_leaving.take_turn("d", began=time.time())[0]

    def test_idle_nodes_pass_a_busy_one_and_its_machine_is_not_recreated_beside_theirs(self, nodes) -> None:
        with drain_leaving.announce("a"), drain_leaving.announce("b"), drain_leaving.announce("c"):
            nodes["b"] = nodes["c"] = node("ALLOCATED", "p")
            assert self.take("a")
            assert not self.take("b")
            _, under_way = drain_leaving.take_turn("b", began=time.time() - 60)
            assert drain_leaving.describe_wait("b", under_way) == "b waits for its turn: a waits for its jobs"
            nodes["b"] = node("IDLE", "p")
            assert self.take("b"), "its job has ended"
            assert self.take("b", drained=True)
            nodes["a"] = node("IDLE+DRAIN", "p", reason=REMADE)
            assert not self.take("a", drained=True)
            self.join("b", "new")
            assert self.take("a", drained=True)

    def test_of_busy_nodes_the_one_whose_jobs_end_first_is_drained(self, nodes, monkeypatch) -> None:
        for name in "bc":
            nodes[name] = node("ALLOCATED", "p")
        monkeypatch.setattr(scheduler, "job_ends", lambda: {"a": math.inf, "b": 200.0, "c": 100.0})
        with drain_leaving.announce("a"), drain_leaving.announce("b"), drain_leaving.announce("c"):
            assert [self.take(name) for name in "abc"] == [False, False, True]

    def test_a_process_that_was_killed_is_not_waited_for(self, nodes) -> None:
        drain_leaving.FOLDER.mkdir()
        (drain_leaving.FOLDER / "b").touch()
        with drain_leaving.announce("a"):
            assert self.take("a")
        assert [path.name for path in drain_leaving.FOLDER.glob("[!.]*")] == []

    def test_waiting_processes_end_when_the_jobs_of_a_node_before_them_did_not(self, nodes) -> None:
        with drain_leaving.announce("a"):
            with suppress(SetupError), drain_leaving.announce("b"):
                assert self.take("b")
                raise SetupError("jobs are still there")
            later = time.time() + 60
            os.utime(drain_leaving.FAILED, (later, later))
            with pytest.raises(SetupError, match="a was not drained: jobs of another node"):
                self.take("a")

    def test_a_machine_whose_set_up_fails_is_named_with_the_reason(self, nodes) -> None:
        (cluster_state.REPORTS / "b.json").write_text('{"state": "failed", "message": "no package"}')
        text = drain_leaving.describe_wait("a", frozenset({("b", "DOWN"), ("c", "DRAIN+IDLE"), ("d", "DRAIN+MIXED")}))
        assert text == (
            "a waits for its turn: b is being recreated (its set-up fails: no package), c is drained, "
            "d waits for its jobs"
        )
        assert drain_leaving.describe_wait("a", frozenset()) == "a waits for its turn: nodes without jobs go first"


NOW = time.time()
END = int(NOW) + 7200
Reserve = Callable[[dict[str, float], str], list[str]]


def local(end: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end))


@pytest.fixture
def reserve(monkeypatch: pytest.MonkeyPatch) -> Reserve:
    """Reserve ends where Slurm has these reservations; return the commands that change them."""

    def reserve_ends(ends: dict[str, float], existing: str) -> list[str]:
        commands: list[str] = []

        def run(*command: str, **_: object) -> str:
            if command[1:3] == ("--oneliner", "show"):
                return existing
            commands.append(" ".join(command))
            return ""

        monkeypatch.setattr(reservations, "run", run)
        drain_leaving.reserve_ends({"ends": ends})
        return commands

    return reserve_ends


def row(node: str, end: float) -> str:
    """A reservation as scontrol of 24.11 prints it."""
    return (
        f"ReservationName=hpc-end-{node} StartTime={local(end)} EndTime={local(end + 3600)} Duration=01:00:00 "
        f"Nodes={node} NodeCnt=1 CoreCnt=208 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES "
        "TRES=cpu=208 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE\n"
    )


OTHER = row("x", END).replace("hpc-end-x", "maintenance")


def test_each_node_whose_machine_ends_is_reserved_from_then_on(reserve: Reserve) -> None:
    (command,) = reserve({"a3-0": END, "a3-1": 0, "a3-2": NOW - 60}, "No reservations in the system\n")
    assert command == (
        f"scontrol create reservation ReservationName=hpc-end-a3-0 StartTime={local(END)} Duration=60 Users=root "
        "Nodes=a3-0 Flags=MAINT,IGNORE_JOBS"
    )
    assert reserve({"a3-0": END}, row("a3-0", END) + OTHER) == [], "a second time"


def test_a_reservation_is_replaced_for_another_end_and_deleted_without_one(reserve: Reserve) -> None:
    commands = reserve({"a3-0": END + 60}, row("a3-0", END) + row("a3-1", END) + OTHER)
    assert [command.split(" ")[1] for command in commands] == ["delete", "delete", "create"]
    assert commands[:2] == [f"scontrol delete ReservationName=hpc-end-{node}" for node in ("a3-0", "a3-1")]
    assert reserve({}, row("a3-0", END) + OTHER) == ["scontrol delete ReservationName=hpc-end-a3-0"]
