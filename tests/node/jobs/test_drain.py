"""What leaves is emptied first: which nodes that is, which jobs are waited for; and nodes whose machines end."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import drain, turns
from slurm import conf_changes, reservations, scheduler

CONF = (
    "# a comment\nClusterName=dev\nTaskPlugin=task/cgroup\n"
    "NodeName=dev-cpu-[0-2] NodeAddr=10.77.2.[1-3] CPUs=2 Sockets=1 RealMemory=2048\n"
    "nodename=dev-gpu-0 CPUs=2 Sockets=1 Gres=gpu:standin:2 Feature=fast\n"
    "PartitionName=cpu Nodes=dev-cpu-[0-2] MaxTime=INFINITE\nPartitionName=gpu Nodes=dev-gpu-0\n"
)
SQUEUE = (
    "17|alice|1:02|10:00|RUNNING|cpu|dev-cpu-[1-2]\n"
    "18|bob|0:00|UNLIMITED|PENDING|cpu,gpu|\n"
    "19|bob|5:00|10:00|COMPLETED|gpu|dev-gpu-0\n"
    "20|carol|5:00|10:00|COMPLETING|gpu|dev-gpu-0\n"
    "21|carol|0:00|10:00|PENDING|cpu|dev-cpu-0\n"
    "22|carol|0:00|10:00|SPECIAL_EXIT|cpu|dev-cpu-0\n"
    "slurm_load_jobs error: something\n"
)


class TestLeaving:
    """Which nodes have to be empty before a new slurm.conf, and why."""

    def test_nobody_by_what_jobs_do_not_notice(self):
        for old, new in (("MaxTime=INFINITE", "MaxTime=60"), ("Feature=fast", "Feature=slow"), ("[0-2]", "[0-3]"),
                         ("RealMemory=2048", "RealMemory=4096"), ("# a comment\n", "")):  # fmt: skip
            assert old in CONF
            assert drain.leaving(CONF, CONF.replace(old, new)) == {}

    def test_those_that_are_gone(self):
        after = CONF.replace("dev-cpu-[0-2]", "dev-cpu-0")
        assert drain.leaving(CONF, after) == {"dev-cpu-1": scheduler.LEAVES, "dev-cpu-2": scheduler.LEAVES}

    @pytest.mark.parametrize(
        ("old", "new"),
        [("Gres=gpu:standin:2", "Gres=gpu:standin:1"), ("CPUs=2 Sockets=1 Gres", "CPUs=4 Sockets=2 Gres")],
    )
    def test_those_whose_jobs_are_tied_to_what_changes(self, old, new):
        assert drain.leaving(CONF, CONF.replace(old, new)) == {"dev-gpu-0": scheduler.RESHAPED}

    def test_nobody_of_a_first_start(self):
        assert drain.leaving("", CONF) == {}


class TestJobs:
    def test_that_hold_a_node_or_are_in_a_partition_are_waited_for(self):
        found = scheduler.parse_jobs(SQUEUE)
        assert [job.number for job in scheduler.jobs_left(found, {"dev-cpu-2"}, set())] == ["17"]
        assert [job.number for job in scheduler.jobs_left(found, {"dev-gpu-0"}, set())] == ["20"]
        assert [job.number for job in scheduler.jobs_left(found, set(), {"gpu"})] == ["18", "20"]

    def test_that_are_to_run_again_hold_nothing_of_what_squeue_still_names(self):
        """They could never start: the node is drained, and it would be waited for until somebody cancels them."""
        found = scheduler.parse_jobs(SQUEUE)
        assert scheduler.jobs_left(found, {"dev-cpu-0"}, set()) == []
        assert [job.number for job in scheduler.jobs_left(found, set(), {"cpu"})] == ["17", "18", "21", "22"]
        assert str(found[4]) == "job 21 of carol waiting"

    @pytest.mark.parametrize("state", ["RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "STAGE_OUT", "NEW_IN_27_05"])
    def test_in_any_other_state_hold_their_nodes(self, state):
        jobs = scheduler.parse_jobs(f"23|bob|1:00|10:00|{state}|gpu|dev-gpu-0\n")
        assert scheduler.jobs_left(jobs, {"dev-gpu-0"}, set())

    def test_are_named_with_user_place_and_time(self):
        running, waiting, *_ = scheduler.parse_jobs(SQUEUE)
        assert str(running) == "job 17 of alice on dev-cpu-1,dev-cpu-2, 1:02 of 10:00"
        assert str(waiting) == "job 18 of bob waiting"

    def test_that_stay_too_long_end_the_wait_with_every_way_on(self):
        found = scheduler.jobs_left(scheduler.parse_jobs(SQUEUE), {"dev-cpu-2"}, {"gpu"})
        text = drain.timeout_error(found, {"dev-cpu-2"}, {"gpu"}, 60)
        assert "after 60 s (slurm.drain_seconds)" in text
        assert "job 17 of alice on dev-cpu-1,dev-cpu-2, 1:02 of 10:00" in text
        for way in (
            "run `up` again", "scancel 17 18 20", "put the old value back", "NodeName=dev-cpu-2 State=RESUME",
            "PartitionName=gpu State=UP",
        ):  # fmt: skip
            assert way in text


def test_the_clusters_name_and_partitions_are_read():
    assert conf_changes.cluster(CONF) == "dev"
    assert conf_changes.partitions(CONF) == {"cpu", "gpu"}


class TestUsersWhoLeave:
    """One with jobs is told of before anything is changed: neither the database nor a node could let go of him."""

    @pytest.fixture(autouse=True)
    def _slurmctld(self, monkeypatch):
        monkeypatch.setattr(drain, "succeeds", lambda *_: True)
        monkeypatch.setattr(drain, "everywhere", lambda: scheduler.parse_jobs(SQUEUE))

    def test_are_refused_while_they_have_jobs(self):
        with pytest.raises(drain.SetupError, match=r"(?s)alice leaves.*job 17 of alice on .*scancel --user=alice"):
            drain.refuse_busy({"alice", "dave"})

    def test_may_go_without(self):
        drain.refuse_busy({"dave"})
        drain.refuse_busy(set())


class Cloud:
    """slurmctld's power saving: a node goes from on to powering down to off, one step at each question, and loses its
    drain on the way, as by idle_on_node_suspend."""

    def __init__(self, **nodes: str) -> None:
        self.nodes = {name: set(states.split("+")) for name, states in nodes.items()}
        self.reasons = dict.fromkeys(nodes, "")
        self.asked: list[str] = []

    def states(self) -> dict[str, scheduler.State]:
        for states in self.nodes.values():
            if "POWERING_DOWN" in states:
                states ^= {"POWERING_DOWN", "POWERED_DOWN"}
            elif "POWER_DOWN" in states:
                states -= {"POWER_DOWN", "DRAIN", "POWERING_UP"}
                states.add("POWERING_DOWN")
        return {
            name: scheduler.State(states=set(states), reason=self.reasons[name], partitions=["p"])
            for name, states in self.nodes.items()
        }

    def run(self, *command: str) -> str:
        words = dict(word.split("=", 1) for word in command[2:])
        name, state = words["NodeName"], words["State"]
        self.asked.append(f"{name} {state}")
        self.reasons[name] = words.get("Reason", self.reasons[name])
        if state == "UNDRAIN":
            self.nodes[name].discard("DRAIN")
        else:
            self.nodes[name].add(state.removesuffix("_FORCE"))
        return ""


class TestElasticNodes:
    """A node that leaves takes its machine along, and takes no job on the way; a static one that becomes elastic has
    its next machine created by Slurm."""

    @pytest.fixture
    def cloud(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cloud:
        found = Cloud(a="IDLE", b="IDLE+CLOUD", c="IDLE+CLOUD+POWERED_DOWN", d="ALLOCATED+CLOUD+POWERING_UP")
        monkeypatch.setattr(scheduler, "states", found.states)
        monkeypatch.setattr(drain, "run", found.run)
        monkeypatch.setattr(scheduler, "run", found.run)
        monkeypatch.setattr(drain, "succeeds", lambda *_: True)
        monkeypatch.setattr(drain, "everywhere", list)
        monkeypatch.setattr(drain, "TIMEOUT", tmp_path / "seconds")
        for name in ("PART", "FOLDER", "LEFT", "FAILED"):
            monkeypatch.setattr(turns, name, tmp_path / name)
        monkeypatch.setattr(drain.time, "sleep", lambda _: None)
        return found

    def test_that_leave_are_off_and_drained_before_slurm_conf_changes(self, cloud):
        drain.drain_removed("".join(f"NodeName={name} CPUs=2\n" for name in "abcd"), "", seconds=60, part=0.25)
        assert cloud.nodes["a"] == {"IDLE", "DRAIN"}
        for name in "bcd":
            assert {"POWERED_DOWN", "DRAIN"} <= cloud.nodes[name]
        assert set(cloud.reasons.values()) == {scheduler.LEAVES}
        assert [one for one in cloud.asked if "POWER" in one] == ["b POWER_DOWN", "d POWER_DOWN_FORCE"]

    def test_that_a_job_wakes_on_the_way_are_powered_down_again(self, cloud, monkeypatch):
        states, woken = cloud.states, []

        def wake() -> dict[str, scheduler.State]:
            found = states()
            if "POWERED_DOWN" in cloud.nodes["b"] and not woken:
                woken.append("b")
                cloud.nodes["b"] = {"ALLOCATED", "CLOUD", "POWERING_UP"}
            return found

        monkeypatch.setattr(scheduler, "states", wake)
        drain.drain_removed("NodeName=b CPUs=2\n", "", seconds=60, part=0.25)
        assert {"POWERED_DOWN", "DRAIN"} <= cloud.nodes["b"]
        assert [one for one in cloud.asked if "POWER" in one] == ["b POWER_DOWN", "b POWER_DOWN_FORCE"]

    def test_that_become_static_are_off_and_drained_until_their_machine_has_joined(self, cloud):
        drain.vacate(["a", "b", "c", "d", "new"])
        assert cloud.nodes["a"] == {"IDLE"}, "it is static already, after an `up` that did not reach its end"
        for name in "bcd":
            assert {"POWERED_DOWN", "DRAIN"} <= cloud.nodes[name]
        assert {cloud.reasons[name] for name in "bcd"} == {scheduler.REMADE}
        assert scheduler.REMADE in scheduler.OURS, "the set-up resumes them"

    def test_that_were_static_are_off_and_not_drained(self, cloud):
        drain.leave("b")
        assert cloud.asked[-1] == "b POWER_DOWN"
        assert cloud.nodes["b"] & scheduler.OFF
        assert "DRAIN" not in cloud.nodes["b"]

    def test_a_static_one_waits_for_its_next_machine(self, cloud):
        drain.leave("a")
        assert cloud.nodes["a"] >= {"DRAIN", "DOWN"}
        assert cloud.reasons["a"] == scheduler.REMADE

    def test_a_machine_that_is_not_deleted_stops_the_change(self, cloud, monkeypatch):
        monkeypatch.setattr(drain, "OFF_SECONDS", -1)
        with pytest.raises(drain.SetupError, match=r"b: not powered down .*journalctl -u hpc-reconcile"):
            drain.leave("b")


NOW = time.time()
END = int(NOW) + 7200
Reserve = Callable[[dict[str, float], str], list[str]]


def local(end: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Reserve:
    """What is sent to scontrol where these reservations are there, but for the question."""

    def ask(wanted: dict[str, float], there: str) -> list[str]:
        sent: list[str] = []

        def run(*command: str, **_: object) -> str:
            if command[1:3] == ("--oneliner", "show"):
                return there
            sent.append(" ".join(command))
            return ""

        monkeypatch.setattr(reservations, "run", run)
        drain.reserve_ends({"ends": wanted})
        return sent

    return ask


def row(node: str, end: float) -> str:
    """As scontrol of 24.11 prints it."""
    return (
        f"ReservationName=hpc-end-{node} StartTime={local(end)} EndTime={local(end + 3600)} Duration=01:00:00 "
        f"Nodes={node} NodeCnt=1 CoreCnt=208 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES "
        "TRES=cpu=208 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE\n"
    )


OTHER = row("x", END).replace("hpc-end-x", "maintenance")
NONE = "No reservations in the system\n"


def test_each_node_that_ends_is_reserved_from_then_on(told: Reserve) -> None:
    (command,) = told({"a3-0": END, "a3-1": 0, "a3-2": NOW - 60}, NONE)
    assert command == (
        f"scontrol create reservation ReservationName=hpc-end-a3-0 StartTime={local(END)} Duration=60 Users=root "
        "Nodes=a3-0 Flags=MAINT,IGNORE_JOBS"
    )


def test_a_second_time_changes_nothing(told: Reserve) -> None:
    assert told({"a3-0": END}, row("a3-0", END) + OTHER) == []


def test_another_end_replaces_it_and_one_that_is_gone_takes_it_along(
    told: Reserve,
) -> None:
    sent = told({"a3-0": END + 60}, row("a3-0", END) + row("a3-1", END) + OTHER)
    assert [command.split(" ")[1] for command in sent] == ["delete", "delete", "create"]
    assert sent[:2] == [f"scontrol delete ReservationName=hpc-end-{node}" for node in ("a3-0", "a3-1")]
    assert told({}, row("a3-0", END) + OTHER) == ["scontrol delete ReservationName=hpc-end-a3-0"]
